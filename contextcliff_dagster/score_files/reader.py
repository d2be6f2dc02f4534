"""Score files prepared for an analysis: files are pooled, and one model is chosen.

Tables of means whose lengths or tasks are columns, and RULER's summaries, are read here, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.columns import stem
from contextcliff_dagster.score_files.logs.answers import Lengths, LogOptions, figure
from contextcliff_dagster.score_files.logs.collect import read_logs
from contextcliff_dagster.score_files.logs.members import files_in, rows_of
from contextcliff_dagster.score_files.logs.row_formats import ruler_log, size_of
from contextcliff_dagster.score_files.records import (
    MeansTable,
    ScoreRecords,
    pooled_means,
    read_records,
)

T = TypeVar("T", bound="ScoreRecords | MeansTable")


def read_scores(path: Path, log: LogOptions, *, scale: float = 1.0) -> list[ScoreRecords]:
    """Read the records in ``path`` by model; the content determines the format.

    Raises:
        ScoreFileError: it cannot be used, or ``log`` has options for logs and it is not a log.
    """
    table = bool(log.columns)
    records = None if table else read_logs(path, replace(log, scale=scale))
    if records is not None:
        return records
    if log != LogOptions(tokenizer=log.tokenizer, columns=log.columns):
        what = "is read as a plain table with --columns" if table else "is not another tool's log"
        raise ScoreFileError(
            f"{path} {what}: --metric, --score, --documents and --partial say how to read a log; "
            "leave them out."
        )
    lengths = Lengths(log) if log.tokenizer else None
    return read_records(path, scale=scale, counted=lengths, columns=log.columns)


def pooled(files: Sequence[tuple[Path, Sequence[ScoreRecords]]]) -> list[ScoreRecords]:
    """Pool the records in all ``files`` by model, ordered by the models' names.

    In logs, examples with the same name are repeats; in other files, they are distinguished by
    file. Files without a model's name all belong to the same model.

    Raises:
        ScoreFileError: lengths or scores of one model are not the same measure in all files.
    """
    by_model: dict[str | None, list[tuple[Path, ScoreRecords]]] = {}
    for path, of_file in files:
        for records in of_file:
            by_model.setdefault(records.model, []).append((path, records))
    if None in by_model and len(by_model) > 1:
        path = by_model[None][0][0]
        raise ScoreFileError(
            f"{path} names no model and other files do: analyse it by itself with --model NAME."
        )
    return [_one(by_model[model]) for model in sorted(by_model, key=str)]


def _one(parts: Sequence[tuple[Path, ScoreRecords]]) -> ScoreRecords:
    path, first = parts[0]
    for other, records in parts[1:]:
        if records.length_kind != first.length_kind:
            kinds = (kind or "length_tokens" for kind in (first.length_kind, records.length_kind))
            raise ScoreFileError(
                f"{path} and {other} measure length differently ({'; '.join(kinds)}): pool "
                "files of one measure, or count all with --tokenizer."
            )
        if records.tokenizer != first.tokenizer and records.tokenizer and first.tokenizer:
            raise ScoreFileError(
                f"{path} counts tokens with {first.tokenizer}, {other} with {records.tokenizer}: "
                "pool files of one tokenizer, or count all with --tokenizer."
            )
        if records.score_name != first.score_name:
            raise ScoreFileError(
                f"{path} and {other} have different scores ({first.score_name}; "
                f"{records.score_name}): choose one with --metric NAME, or --score em, f1 or "
                "contained."
            )
    tasks = sorted({records.task for _, records in parts if records.task})
    frames = []
    for file, records in parts:
        frame = records.frame
        if len(tasks) > 1 and records.task is not None:
            frame = frame.assign(task=records.task)
        if records.length_kind is None and "example_id" in frame:
            names = f"{stem(file)}/" + frame["example_id"].astype("string")
            frame = frame.assign(example_id=names.astype(object).where(names.notna(), None))
        frames.append(frame)
    frame = pd.concat(frames, ignore_index=True)
    if "example_id" in frame and first.length_kind is not None:
        frame["replicate"] = frame.groupby("example_id", dropna=False).cumcount()
    notes = dict.fromkeys(note for _, records in parts for note in records.notes)
    if len(tasks) > 1:
        mixed = (
            f"{len(tasks)} tasks are pooled ({', '.join(tasks[:6])}"
            f"{' and others' if len(tasks) > 6 else ''}): where long documents belong to harder "
            "tasks, a fall is the tasks' and not the length's."
        )
        notes[mixed] = None
    task = tasks[0] if len(tasks) == 1 else None
    shares = [records.copied_share for _, records in parts if records.copied_share is not None]
    copied = min(shares) if len(shares) == len(parts) else None
    return replace(first, frame=frame, task=task, notes=tuple(notes), copied_share=copied)


def chosen(
    path: Path, tables: Sequence[T], *, model: str | None, by_model: bool
) -> list[tuple[str, T]]:
    """Return the ``tables`` to analyse, each with its name.

    ``model`` picks one of the file's models, or gives a name if the file has none. A file with one
    model needs neither that nor ``by_model``; a model without a name is named after the file.

    Raises:
        ScoreFileError: there are several models and none was chosen, or the chosen one is missing.
    """
    names = [str(item.model) for item in tables if item.model is not None]
    if not names:
        if by_model:
            raise ScoreFileError(
                f"{path} has no column 'model' to go by; leave --by model out, or name its one "
                "model with --model NAME."
            )
        return [(model or stem(path), tables[0])]
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    if model is not None and model not in names:
        raise ScoreFileError(f"{path} has no model {model!r}; it has {listed}.")
    if model is not None:
        return [(model, tables[names.index(model)])]
    if len(names) > 1 and not by_model:
        raise ScoreFileError(
            f"{path} holds {len(names)} models ({listed}): choose one with --model NAME, or take "
            "each by itself with --by model."
        )
    return list(zip(names, tables, strict=True))


def need_two_lengths(path: Path, scores: ScoreRecords | MeansTable) -> None:
    """Raise ScoreFileError unless there are scores at two or more lengths."""
    lengths = scores.measured_lengths
    of_model = "" if scores.model is None else f" of model {scores.model!r}"
    if not len(lengths):
        raise ScoreFileError(f"{path}: no row{of_model} has a score, so nothing can be analysed.")
    if (lengths == lengths[0]).all():
        of_log = isinstance(scores, ScoreRecords) and scores.length_kind is not None
        hint = "; --pool takes several files as one measurement" if of_log else ""
        raise ScoreFileError(
            f"{path}: everything{of_model} was measured at one length, {lengths[0]:,.0f} tokens; "
            f"an effect of length needs at least two{hint}."
        )


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
    """Return the mean in one cell, which may have a decimal comma; None for an empty one."""
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
