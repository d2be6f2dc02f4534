"""Tables of mean scores by length, as papers and leaderboards print them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.column_values import (
    lengths,
    need,
    numbers,
    of_scale,
    refuse,
    rows_by_model,
)
from contextcliff_dagster.score_files.columns import Columns, read_columns

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

_NUMBERS = ("length_tokens", "mean", "n", "base_score", "threshold")


@dataclass(frozen=True, slots=True)
class MeansTable:
    """One model's means; arrays of one entry a length, shortest first.

    ``mean``, ``base_score`` and ``threshold`` are 0..1; ``n`` counts examples, NaN where the table
    does not say. ``base_score`` and ``threshold`` are None where it has none.
    """

    model: str | None
    length_tokens: Ints
    mean: Floats
    n: Floats
    base_score: float | None = None
    threshold: float | None = None

    @property
    def measured_lengths(self) -> Ints:
        """Lengths with a mean, tokens."""
        return self.length_tokens


def read_tables(
    path: Path, *, scale: float = 1.0, columns: Mapping[str, str] | None = None
) -> list[MeansTable]:
    """The tables of ``path`` by model, in order of the models' names; one where it names none.

    The file needs ``length_tokens`` (above 0) and ``mean`` (0..``scale``); ``n`` may be empty or
    not there, ``base_score`` and ``threshold`` (0..``scale``) are stated once or the same in every
    row. Rows of one length are pooled, weighted by n; where one of them has none, they count alike
    and the length has no n. ``columns``: the file's name of a column that it calls otherwise.

    Raises:
        ScoreFileError: the file cannot be read, lacks a column, or a row cannot be used.
    """
    table = read_columns(path, ("model",), _NUMBERS, columns)
    hint = "; records of single answers are read without --aggregated"
    need(table, "length_tokens", "mean", hint=hint if "score" in table.found else "")
    length, mean = lengths(table), numbers(table, "mean")
    refuse(table, "mean", ~np.isfinite(mean), "; give a number or leave the row out")
    mean = of_scale(table, "mean", mean, scale)
    absent = np.full(table.rows, np.nan)
    stated = {
        name: of_scale(table, name, numbers(table, name), scale) if name in table.arrays else absent
        for name in ("base_score", "threshold")
    }
    n = numbers(table, "n") if "n" in table.arrays else absent
    wrong = (n < 1) | (n != np.round(n))
    refuse(table, "n", wrong & ~np.isnan(n), "; it counts examples, or stays empty")
    tables = []
    for model, rows in rows_by_model(table):
        tokens, means, counts = _pooled(length[rows], mean[rows], n[rows])
        facts = {name: _only(table, name, values[rows], model) for name, values in stated.items()}
        tables.append(MeansTable(model, tokens, means, counts, **facts))
    return tables


def _only(columns: Columns, name: str, values: Floats, model: str | None) -> float | None:
    known = np.unique(values[~np.isnan(values)])
    if len(known) > 1:
        whose = "one table" if model is None else f"the table of model {model!r}"
        raise ScoreFileError(
            f"{columns.path}: {name} has {len(known)} different values in {whose}; state one."
        )
    return float(known[0]) if len(known) else None


def _pooled(length: Floats, mean: Floats, n: Floats) -> tuple[Ints, Floats, Floats]:
    """Lengths in order, each once; a length of fractions of a token is rounded."""
    tokens, group = np.unique(np.maximum(length.round(), 1).astype(np.int64), return_inverse=True)
    rows = np.bincount(group)
    total = np.bincount(group, weights=n).astype(np.float64)  # NaN where one of them is
    weight = np.where(np.isnan(total)[group], 1.0, n)
    pooled = np.bincount(group, weights=weight * mean) / np.bincount(group, weights=weight)
    # A single row keeps its mean to the last digit.
    first = np.zeros(len(tokens))
    first[group] = mean
    means: Floats = np.where(rows == 1, first, pooled).clip(0.0, 1.0)
    return tokens, means, total
