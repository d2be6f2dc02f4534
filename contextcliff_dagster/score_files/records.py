"""Score files in the form that an analysis needs: records of single answers, or means by length."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contextcliff_dagster.contracts import UNSCORED_TAGS, ScoreFileError
from contextcliff_dagster.contracts.arrays import Floats, Ints
from contextcliff_dagster.contracts.results.json_form import LengthUnit
from contextcliff_dagster.score_files.columns import (
    Columns,
    lengths,
    need,
    numbers,
    of_scale,
    read_columns,
    refuse,
    rows_by_model,
    texts,
)
from contextcliff_dagster.score_files.logs.answers import TEXT_FIELDS, Lengths, digest
from contextcliff_dagster.score_files.logs.row_formats import TOOLS

_NUMBERS_OF_MEANS = ("length_tokens", "mean", "n", "base_score", "threshold")


@dataclass(frozen=True, slots=True)
class MeansTable:
    """One model's means; arrays with one entry per length, shortest first.

    ``mean``, ``base_score`` and ``threshold`` are 0..1; ``n`` counts examples (NaN if the table
    gives no count). ``base_score`` and ``threshold`` are None if the table has none; ``notes`` are
    remarks for the reader.
    """

    model: str | None
    length_tokens: Ints
    mean: Floats
    n: Floats
    base_score: float | None = None
    threshold: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def measured_lengths(self) -> Ints:
        """Lengths that have a mean, in tokens."""
        return self.length_tokens


def read_tables(
    path: Path, *, scale: float = 1.0, columns: Mapping[str, str] | None = None
) -> list[MeansTable]:
    """Read the tables in ``path`` by model, ordered by name; only one if no model is named.

    The file needs ``length_tokens`` (above 0) and ``mean`` (0..``scale``); ``n`` may be empty or
    missing, ``base_score`` and ``threshold`` (0..``scale``) are stated once or the same in every
    row. Rows of one length are pooled, weighted by n; if one of them has no n, all count equally
    and the length has no n. ``columns``: our name for a column -> the file's, where they differ.

    Raises:
        ScoreFileError: the file cannot be read, lacks a column, or a row cannot be used.
    """
    table = read_columns(path, ("model",), _NUMBERS_OF_MEANS, columns)
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
        tokens, means, counts = pooled_means(length[rows], mean[rows], n[rows])
        facts = {name: _only(table, name, values[rows], model) for name, values in stated.items()}
        base, threshold = facts["base_score"], facts["threshold"]
        tables.append(MeansTable(model, tokens, means, counts, base, threshold))
    return tables


def _only(columns: Columns, name: str, values: Floats, model: str | None) -> float | None:
    distinct = np.unique(values[~np.isnan(values)])
    if len(distinct) > 1:
        source = "one table" if model is None else f"the table of model {model!r}"
        raise ScoreFileError(
            f"{columns.path}: {name} has {len(distinct)} different values in {source}; state one."
        )
    return float(distinct[0]) if len(distinct) else None


def pooled_means(length: Floats, mean: Floats, n: Floats) -> tuple[Ints, Floats, Floats]:
    """Pool rows of equal length, ordered by length; fractions of a token are rounded."""
    tokens, group = np.unique(np.maximum(length.round(), 1).astype(np.int64), return_inverse=True)
    rows = np.bincount(group)
    total = np.bincount(group, weights=n).astype(np.float64)  # NaN if one of them is
    weight = np.where(np.isnan(total)[group], 1.0, n)
    pooled = np.bincount(group, weights=weight * mean) / np.bincount(group, weights=weight)
    # A single row keeps its mean to the last digit.
    first = np.zeros(len(tokens))
    first[group] = mean
    means: Floats = np.where(rows == 1, first, pooled).clip(0.0, 1.0)
    return tokens, means, total


_TIME = "finished_at"
_NAMES = ("document_id", "example_id", "failure")
_FACTS = ("task", "tokenizer")
_CATEGORIES = ("kind", "level", "domain", "source")
_TIMES_AND_TOKENS = (
    "evidence_position", "inter_evidence_tokens", "failed", "ttft_ms", "duration_ms",
    "queue_ms", "loop_lag_ms", "prompt_tokens", "cached_tokens", "completion_tokens",
    "reasoning_tokens", "cost_usd",
)  # fmt: skip
_TEXTS = (*_NAMES, *_FACTS, *_CATEGORIES, "model", "replicate", _TIME)
_NUMBERS = ("length_tokens", "score", *_TIMES_AND_TOKENS)


@dataclass(frozen=True, slots=True)
class ScoreRecords:
    """One model's records from one file.

    ``frame`` holds the columns of ``EVAL_RECORDS`` that the file has, scores 0..1. ``task`` and
    ``tokenizer`` are set if all rows agree. For logs of other tools, ``length_kind`` is what
    ``length_tokens`` counts, ``notes`` are remarks for the reader, and ``copied_share`` is the
    share of accepted answers that occur in their documents.
    """

    model: str | None
    frame: pd.DataFrame
    task: str | None = None
    tokenizer: str | None = None
    score_name: str = "score"
    length_kind: str | None = None
    length_unit: LengthUnit = "as given"
    notes: tuple[str, ...] = ()
    copied_share: float | None = None

    @property
    def measured_lengths(self) -> Floats:
        """Lengths that have a score, in tokens."""
        scored = self.frame["score"].notna().to_numpy()
        out: Floats = self.frame["length_tokens"].to_numpy(np.float64)[scored]
        return out


def read_records(
    path: Path,
    *,
    scale: float = 1.0,
    counted: Lengths | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[ScoreRecords]:
    """Read the records in ``path`` by model, ordered by name; only one if no model is named.

    The file needs ``length_tokens`` (above 0) and ``score`` (0..``scale``; empty only where
    ``failure`` says why there is no answer). ``document_id``, ``example_id``, ``replicate``,
    ``model``, ``failure``, ``task``, ``kind``, ``level``, ``domain``, ``source``, ``tokenizer``,
    times and token counts are used if present, anything else is ignored. With ``counted``, lengths
    are counted from each row's longest text, whatever ``length_tokens`` says, and the texts are the
    documents where ``document_id`` does not name them. ``columns``: our name of a column -> the
    file's, where they differ (``{"score": "llm_judge_output"}``).

    Raises:
        ScoreFileError: the file cannot be read, lacks a column, or a row cannot be used.
    """
    names = (*_TEXTS, *(TEXT_FIELDS if counted else ()))
    table = read_columns(path, names, _NUMBERS, columns)
    hint = f"; results of {', '.join(TOOLS)} are recognised by their content"
    hint = "; a table of means is read with --aggregated" if "mean" in table.found else hint
    need(table, *(() if counted else ("length_tokens",)), "score", hint=hint)
    frame = _frame(table, scale, counted)
    return [
        _records(model, frame.iloc[rows].reset_index(drop=True))
        for model, rows in rows_by_model(table)
    ]


def _frame(columns: Columns, scale: float, counted: Lengths | None) -> pd.DataFrame:
    data: dict[str, Any] = _measured_lengths(columns, counted)
    for name in _NAMES:
        if name in columns.arrays:
            document_names = texts(columns, name).to_pandas()
            data[name] = _one_a_text(document_names, data[name]) if name in data else document_names
    score = numbers(columns, "score")
    tags = ", ".join(sorted(tag.value for tag in UNSCORED_TAGS))
    answered = ~np.isin(data["failure"], tags.split(", ")) if "failure" in data else True
    hint = f"; give a score, or the reason in column 'failure' ({tags}), or leave the row out"
    refuse(columns, "score", ~np.isfinite(score) & answered, hint)
    data["score"] = of_scale(columns, "score", score, scale)
    for name in _TIMES_AND_TOKENS:
        if name in columns.arrays:
            data[name] = numbers(columns, name)
    for name, limit, hint in (
        ("evidence_position", 1.0, "; a place is 0 (start) to 1 (end of the text)"),
        ("inter_evidence_tokens", np.inf, "; a distance counts tokens from 0"),
    ):
        if name in data:
            refuse(columns, name, (data[name] < 0) | (data[name] > limit), hint)
    if "replicate" in columns.arrays:  # numbers or names: only their identity matters
        data["replicate"] = pd.factorize(texts(columns, "replicate").to_pandas(), sort=True)[0]
    for name in _FACTS:
        if name in columns.arrays:
            data[name] = pd.Categorical(texts(columns, name).to_pandas())
    if counted is not None:
        data["tokenizer"] = pd.Categorical([counted.name] * columns.rows)
    for name in (_TIME, *_CATEGORIES):
        if name in columns.arrays:
            with suppress(ScoreFileError):  # a column without names is ignored
                named = texts(columns, name).to_pandas()
                data[name] = moments(named) if name == _TIME else pd.Categorical(named)
    return pd.DataFrame(data, copy=False)


def _one_a_text(named: pd.Series[Any], digests: pd.Series[Any]) -> pd.Series[Any]:
    """Identify documents by name, else by text digest; names that share a text become one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names = named.fillna(digests)
    (of_name, ids), (of_text, text) = (pd.factorize(values) for values in (names, digests))
    size = len(ids) + len(text)
    graph = coo_array((np.ones(len(names)), (of_name, len(ids) + of_text)), shape=(size, size))
    return names.groupby(connected_components(graph, directed=False)[1][of_name]).transform("first")


def moments(written: pd.Series[Any]) -> pd.Series[Any]:
    """Parse times given in ISO 8601 or in seconds since 1970; null for anything else."""
    seconds = pd.to_numeric(written, errors="coerce")
    if seconds.notna().any():
        return pd.to_datetime(seconds, unit="s", utc=True, errors="coerce")
    return pd.to_datetime(written, format="ISO8601", utc=True, errors="coerce")


def _measured_lengths(columns: Columns, counted: Lengths | None) -> dict[str, Any]:
    """Return ``length_tokens``, from the file or counted; if counted, also ``document_id``."""
    if counted is None:
        return {"length_tokens": lengths(columns)}
    names = [name for name in TEXT_FIELDS if name in columns.arrays]
    if not names:
        raise ScoreFileError(
            f"{columns.path} has no column of texts whose tokens --tokenizer could count (one of "
            f"{', '.join(TEXT_FIELDS)}); columns found: {columns.listed}."
        )
    rows = zip(*(texts(columns, name).to_pylist() for name in names), strict=True)
    longest = [max((text for text in row if text), key=len, default="") for row in rows]
    digests = [digest(text) for text in longest]
    tokens = np.array(
        [
            float(counted.count(text, document)) if text.strip() else 0.0
            for text, document in zip(longest, digests, strict=True)
        ]
    )
    refuse(columns, names[0], tokens <= 0, "; give every row its text")
    return {"length_tokens": tokens, "document_id": pd.Series(digests)}


def _records(model: str | None, frame: pd.DataFrame) -> ScoreRecords:
    values = {name: frame[name].dropna().unique() for name in _FACTS if name in frame}
    facts: dict[str, Any] = {name: str(seen[0]) for name, seen in values.items() if len(seen) == 1}
    # Several tasks in one file are categories of questions.
    dropped = [name for name in values if name in facts or name != "task"]
    return ScoreRecords(model, frame.drop(columns=dropped), **facts)
