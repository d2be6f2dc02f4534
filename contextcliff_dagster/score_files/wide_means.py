"""Tables of means whose lengths or tasks are columns, and RULER's summaries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.logs.answers import figure
from contextcliff_dagster.score_files.logs.members import files_in, rows_of
from contextcliff_dagster.score_files.logs.row_formats import ruler_log, size_of
from contextcliff_dagster.score_files.records import MeansTable, pooled_means

_TASK = re.compile(r"(niah|vt|cwe|fwe|qa)(_|$)")
_EMPTY = ("", "-", "–", "—", "n/a", "na", "nan", "none", "null")
_COLUMNS = ["model", "length", "mean", "n"]
_Mean = tuple[str | None, float, float, float]
"""Those columns: the mean is a share; n is NaN if it is not known."""


def read_wide_means(paths: Sequence[Path], scale: float) -> list[MeansTable] | None:
    """Return the tables in ``paths`` by model; None unless each has one of these forms.

    - a row for each model and a column for each length, such as ``4K`` or ``8192``
    - a row for each length and a column for each task of RULER; tasks count alike
    - RULER's ``summary.csv``, which has the number of examples, in a folder for each length

    RULER's means are percentages.

    Raises:
        ScoreFileError: a mean lies outside 0..``scale``.
    """
    notes: list[str] = []
    of_files = [
        [mean for file in files_in(path) for mean in _means(file, scale, notes)] for path in paths
    ]
    if not all(of_files):
        return None
    frame = pd.DataFrame([mean for means in of_files for mean in means], columns=_COLUMNS)
    if len(outside := frame["mean"][(frame["mean"] < 0) | (frame["mean"] > 1)]):
        raise ScoreFileError(
            f"{paths[0]}: the mean {outside.iloc[0] * scale:g} lies outside 0..{scale:g}; "
            "percentages are read with --scale 100."
        )
    tables = []
    for model, rows in frame.groupby("model", dropna=False):
        pooled = pooled_means(*rows[_COLUMNS[1:]].to_numpy(np.float64).T)
        table = MeansTable(None if pd.isna(model) else str(model), *pooled)
        tables.append(replace(table, notes=tuple(notes)))
    return tables


def _means(path: Path, scale: float, notes: list[str]) -> Iterator[_Mean]:
    """Yield the means of one file; none if it has another form. ``notes`` names unused tasks."""
    try:
        rows = rows_of(path)
        first = next(rows, None)
    except (ScoreFileError, OSError):
        return  # the reader of plain files reports the error
    if not isinstance(first, dict) or "length_tokens" in first:
        return
    sizes = {name: size for name in first if (size := size_of(name))}
    tasks = [name for name in first if _TASK.match(name)]
    length = next((name for name in first if size_of(first[name])), None)
    if first.get("0") == "Tasks":
        yield from _summary(path, {row["0"]: [*row.values()][1:] for row in rows})
    elif tasks and length is not None:
        table = [first, *rows]
        means = {name: [_mean(path, n, row, name) for n, row in enumerate(table)] for name in tasks}
        measured = [name for name, values in means.items() if None not in values]
        if left_out := [name for name in tasks if name not in measured]:
            notes.append(
                f"{path.name}: {', '.join(left_out)} left out, as some lengths have no value "
                f"({len(measured)} of {len(tasks)} tasks used)."
            )
        cells = [
            (row, mean or 0.0)
            for name in measured
            for row, mean in zip(table, means[name], strict=True)
        ]
        top = 100 if any(mean > 1 for _, mean in cells) else 1
        for row, mean in cells:
            yield row.get("model"), size_of(row[length]) or np.nan, mean / top, np.nan
    elif len(sizes) > 1:
        model = next((name for name in first if name not in sizes), "")
        for n, row in enumerate([first, *rows]):
            for name, size in sizes.items():
                if (cell := _mean(path, n, row, name)) is not None:
                    yield row.get(model), size, cell / scale, np.nan


def _mean(path: Path, index: int, row: Mapping[str, Any], name: str) -> float | None:
    """Return the mean in one cell, which may have a decimal comma; None for an empty one.

    Raises:
        ScoreFileError: the cell holds something else.
    """
    cell = row.get(name)
    if cell is None or str(cell).strip().lower() in _EMPTY:
        return None
    text = re.sub(r"^(\d+),(\d+)$", r"\1.\2", str(cell).strip())
    if (mean := figure(text)) is None:
        raise ScoreFileError(
            f"{path}, data row {index + 1}, column {name}: {cell!r} is no number; write digits "
            "only, or leave the cell empty."
        )
    return mean


def _summary(path: Path, cells: Mapping[str, Sequence[str]]) -> Iterator[_Mean]:
    run = ruler_log(path, {})
    if any(path.parent.glob("*.jsonl")):
        return  # single answers are better
    if run["size"] is None:
        raise ScoreFileError(f"{path} is a summary of RULER: {run['remedy']}.")
    for score, nulls in zip(cells["Score"], cells["Nulls"], strict=True):
        n = figure(nulls.partition("/")[2]) or np.nan  # 0/500: no answer was empty
        yield run["model"], run["size"], float(score) / 100, n
