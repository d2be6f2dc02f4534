"""Read runs of Context-Tester: folders of results, and CSV files of averages of any version."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.extensions.continuation.compat.metrics import METRICS
from contextcliff_dagster.extensions.continuation.compat.runs import ContextResult, Run
from contextcliff_dagster.user_files import loads, read_file

_CONTEXT_FILE = re.compile(r"context_(\d+)_results\.json")
_TEXT_COLUMNS = {
    *("model_name", "text_name", "model_id", "timestamp", "continuation_text", "reading_level"),
}
_NUMERIC = tuple(metric for metric in METRICS if metric != "reading_level")
_SETTINGS = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "rep_pen")
_MOST_CHARACTERS = 1 << 24


def read_run(path: Path) -> Run:
    """Return the run whose folder or CSV file is at ``path``.

    Of a folder the files of the context sizes are read; where it has none, the averages of its
    `degradation_analysis.json`, or of its only CSV file. Figures that are no finite numbers are
    missing.

    Raises:
        ScoreFileError: there is no run, or a file of it is damaged.
    """
    if not path.is_dir():
        return _of_csv(path)
    files = {
        int(found[1]): file
        for file in sorted(path.iterdir())
        if (found := _CONTEXT_FILE.fullmatch(file.name))
    }
    if files:
        return _of_context_files(path, files)
    if (path / "degradation_analysis.json").exists():
        return _of_analysis(path / "degradation_analysis.json")
    tables = sorted(path.glob("*.csv"))
    if len(tables) == 1:
        return _of_csv(tables[0])
    what = f"{len(tables)} CSV files" if tables else "neither context_N_results.json nor CSV files"
    raise ScoreFileError(f"{path} is no run: it has {what}; name the folder of a run or one file.")


def _of_context_files(folder: Path, files: Mapping[int, Path]) -> Run:
    contexts = {}
    for size, file in sorted(files.items()):
        content = _object(file)
        rounds = tuple(_figures(one) for one in _objects(content, "individual_rounds", file))
        average = content.get("averaged_stats")
        known = _figures(average) if isinstance(average, dict) and average else None
        if not rounds and known is None:
            _refuse(file, "it has neither individual_rounds nor averaged_stats")
        info = content.get("context_info")
        contexts[size] = ContextResult(size, rounds, info if isinstance(info, dict) else {}, known)
    metadata = folder / "metadata.json"
    return _with_metadata(
        _object(metadata) if os.path.lexists(metadata) else {}, contexts, folder.name
    )


def _of_analysis(file: Path) -> Run:
    content = _object(file)
    rows = [_figures(row) for row in _objects(content, "results", file)]
    metadata = content.get("metadata")
    return _with_metadata(
        metadata if isinstance(metadata, dict) else {}, _averages(rows, file), file.parent.name
    )


def _of_csv(file: Path) -> Run:
    try:
        content = read_file(file).decode("utf-8-sig")
        csv.field_size_limit(_MOST_CHARACTERS)
        rows = [_row(row) for row in csv.DictReader(io.StringIO(content, newline=""))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScoreFileError(f"{file} cannot be read: {reason}.") from error
    names = {(row.get("model_name"), row.get("model_id")) for row in rows}
    if len(names) > 1:
        _refuse(file, f"it holds {len(names)} runs; give each a file of its own")
    contexts = _averages(rows, file)
    first = rows[0]
    metadata = {
        "model_name": first.get("model_name"),
        "model_id": first.get("model_id"),
        "source_text_name": first.get("text_name"),
        "num_rounds": first.get("num_rounds"),
        "generation_params": {key: first[key] for key in _SETTINGS if key in first},
    }
    return _with_metadata({"experiment_metadata": metadata}, contexts, file.stem)


def _with_metadata(
    content: Mapping[str, Any], contexts: Mapping[int, ContextResult], name: str
) -> Run:
    """The run, under ``name`` where its files have none."""
    given, author = content.get("experiment_metadata"), content.get("ground_truth_analysis")
    metadata = dict(given) if isinstance(given, dict) else {}
    if not metadata.get("model_name"):
        metadata["model_name"] = name
    lengths = content.get("context_lengths")
    planned = tuple(x for x in lengths if isinstance(x, int)) if isinstance(lengths, list) else ()
    known = _figures(author) if isinstance(author, dict) else {}
    return Run(metadata, contexts, known, planned)


def _averages(rows: Iterable[Mapping[str, Any]], file: Path) -> dict[int, ContextResult]:
    contexts: dict[int, ContextResult] = {}
    for row in rows:
        size = row.get("context_length")
        if not isinstance(size, int | float) or size < 1 or size != int(size):
            _refuse(file, "a row has no context_length, a number of tokens from 1 on")
        if int(size) in contexts:
            _refuse(file, f"it has context length {int(size):,} twice; keep one row of each")
        figures = {key: value for key, value in row.items() if key != "context_length"}
        contexts[int(size)] = ContextResult(int(size), known_average=figures)
    if not contexts:
        _refuse(file, "it has no rows")
    if not any(metric in one.average for one in contexts.values() for metric in _NUMERIC):
        _refuse(file, f"it has none of the figures {', '.join(_NUMERIC[:3])}, ...")
    return contexts


def _figures(given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` without figures that are no finite numbers."""
    return {key: v for key, v in given.items() if key not in _NUMERIC or _is_finite(v)}


def _is_finite(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


def _row(row: Mapping[str | None, Any]) -> dict[str, Any]:
    """Cells, numbers as numbers; without empty ones and those beyond the header."""
    cells = {key: cell for key, cell in row.items() if key is not None and cell not in (None, "")}
    return _figures({k: v if k in _TEXT_COLUMNS else _number(v) for k, v in cells.items()})


def _number(cell: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def _object(file: Path) -> dict[str, Any]:
    try:
        content = loads(read_file(file))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"it is no JSON ({error})"
        raise ScoreFileError(f"{file} cannot be read: {reason}.") from error
    if not isinstance(content, dict):
        _refuse(file, "its content is no JSON object")
    return content


def _objects(content: Mapping[str, Any], key: str, file: Path) -> list[dict[str, Any]]:
    given = content.get(key, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        _refuse(file, f"its {key} is no list of objects")
    return given


def _refuse(file: Path, what: str) -> NoReturn:
    raise ScoreFileError(f"{file} is no file of a run: {what}.")
