"""Result files of every version of Context-Tester: reading of runs and writing of folders."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any, NoReturn

from contextcliff_dagster.contracts import ScoreFileError, StudyError
from contextcliff_dagster.extensions.continuation.compat.metrics import METRICS
from contextcliff_dagster.extensions.continuation.compat.statistics import (
    Round,
    averaged,
    is_number,
    trend_analysis,
)
from contextcliff_dagster.store import write_atomic
from contextcliff_dagster.user_files import loads, read_file


@dataclass(frozen=True)
class ContextResult:
    """Generations at one context size.

    ``info`` describes the context and the author's continuation (`context_info` in the files).
    Without ``rounds``, ``known_average`` holds the averages of a CSV file.
    """

    context_tokens: int
    rounds: tuple[Round, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    known_average: Round | None = None

    @cached_property
    def average(self) -> Round:
        """Return the averages stored in the file or, if there are none, those of the rounds."""
        return averaged(self.rounds) if self.known_average is None else self.known_average


@dataclass(frozen=True)
class Run:
    """A run: ``metadata`` of the experiment, results by context size, and the author's figures."""

    metadata: Mapping[str, Any]
    contexts: Mapping[int, ContextResult]
    author: Round = field(default_factory=dict)
    context_lengths: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Return the model and id, as shown in legends."""
        parts = (self.metadata.get("model_name"), self.metadata.get("model_id"))
        return " ".join(str(part) for part in parts if part not in (None, "")) or "unnamed"

    @property
    def averages(self) -> dict[int, Round]:
        """Return the averages by context size, ascending."""
        return {size: self.contexts[size].average for size in sorted(self.contexts)}

    @property
    def rounds(self) -> dict[int, tuple[Round, ...]]:
        """Return the rounds by context size, ascending, without sizes that have only averages."""
        return {size: part.rounds for size, part in sorted(self.contexts.items()) if part.rounds}

    @property
    def folder_name(self) -> str:
        """Return `model-text-id` without characters that a path cannot have."""
        stem = PureWindowsPath(str(self.metadata.get("source_text_name", "text"))).stem
        return file_name(self.metadata.get("model_name"), stem, self.metadata.get("model_id"))

    @property
    def file_stem(self) -> str:
        """Return the stem of CSV, texts and picture: `folder_name` with the text's file name."""
        text = self.metadata.get("source_text_name", "text")
        return file_name(self.metadata.get("model_name"), text, self.metadata.get("model_id"))


def file_name(*parts: object) -> str:
    """Join names with hyphens; ``/ \\ :`` become hyphens, spaces ``_``, ``<>"|?*`` are dropped."""
    return "-".join(str(part) for part in parts).translate(str.maketrans("/\\: ", "---_", '<>"|?*'))


_CONTEXT_FILE = re.compile(r"context_(\d+)_results\.json")
_TEXT_COLUMNS = {
    *("model_name", "text_name", "model_id", "timestamp", "continuation_text", "reading_level"),
}
_NUMERIC = tuple(metric for metric in METRICS if metric != "reading_level")
_EARLIER_SETTINGS = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "rep_pen")
_MOST_CHARACTERS = 1 << 24


def read_run(path: Path) -> Run:
    """Read the run in the folder or CSV file ``path``.

    A folder is read from its files for context sizes, else from `degradation_analysis.json`, else
    from its only CSV file. The latter two have only averages. Figures that are not finite numbers
    count as missing.

    Raises:
        ScoreFileError: there is no run, or one of its files is damaged.
    """
    if not path.is_dir():
        return _of_csv(path)
    files = {
        int(match[1]): file
        for file in sorted(path.iterdir())
        if (match := _CONTEXT_FILE.fullmatch(file.name))
    }
    if files:
        return _of_context_files(path, files)
    if (path / "degradation_analysis.json").exists():
        return _of_analysis(path / "degradation_analysis.json")
    tables = sorted(path.glob("*.csv"))
    if len(tables) == 1:
        return _of_csv(tables[0])
    what = f"{len(tables)} CSV files" if tables else "neither context_N_results.json nor CSV files"
    raise ScoreFileError(f"{path} is not a run: it has {what}; choose a run's folder or one file.")


def _of_context_files(folder: Path, files: Mapping[int, Path]) -> Run:
    contexts = {}
    for size, file in sorted(files.items()):
        content = _object(file)
        rounds = tuple(_figures(row) for row in _objects(content, "individual_rounds", file))
        average = content.get("averaged_stats")
        means = _figures(average) if isinstance(average, dict) and average else None
        if not rounds and means is None:
            _refuse(file, "it has neither individual_rounds nor averaged_stats")
        info = content.get("context_info")
        contexts[size] = ContextResult(size, rounds, info if isinstance(info, dict) else {}, means)
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
        "generation_params": {key: first[key] for key in _EARLIER_SETTINGS if key in first},
    }
    return _with_metadata({"experiment_metadata": metadata}, contexts, file.stem)


def _with_metadata(
    content: Mapping[str, Any], contexts: Mapping[int, ContextResult], name: str
) -> Run:
    """Return the run, named ``name`` if its files contain no name."""
    fields, author = content.get("experiment_metadata"), content.get("ground_truth_analysis")
    metadata = dict(fields) if isinstance(fields, dict) else {}
    if not metadata.get("model_name"):
        metadata["model_name"] = name
    lengths = content.get("context_lengths")
    planned = tuple(x for x in lengths if isinstance(x, int)) if isinstance(lengths, list) else ()
    figures = _figures(author) if isinstance(author, dict) else {}
    return Run(metadata, contexts, figures, planned)


def _averages(rows: Iterable[Mapping[str, Any]], file: Path) -> dict[int, ContextResult]:
    contexts: dict[int, ContextResult] = {}
    for row in rows:
        size = row.get("context_length")
        if not isinstance(size, int | float) or size < 1 or size != int(size):
            _refuse(file, "a row has no context_length, a whole number of tokens")
        if int(size) in contexts:
            _refuse(file, f"it has context length {int(size):,} twice; keep one row of each")
        figures = {key: value for key, value in row.items() if key != "context_length"}
        contexts[int(size)] = ContextResult(int(size), known_average=figures)
    if not contexts:
        _refuse(file, "it has no rows")
    if not any(metric in result.average for result in contexts.values() for metric in _NUMERIC):
        _refuse(file, f"it has none of the figures {', '.join(_NUMERIC[:3])}, ...")
    return contexts


def _figures(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``given`` without figures that are not finite numbers."""
    return {
        key: value
        for key, value in given.items()
        if key not in _NUMERIC or (is_number(value) and math.isfinite(value))
    }


def _row(row: Mapping[str | None, Any]) -> dict[str, Any]:
    """Return the cells, with numbers parsed, without empty ones and those beyond the header."""
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
        reason = getattr(error, "strerror", None) or f"it is not JSON ({error})"
        raise ScoreFileError(f"{file} cannot be read: {reason}.") from error
    if not isinstance(content, dict):
        _refuse(file, "its content is not a JSON object")
    return content


def _objects(content: Mapping[str, Any], key: str, file: Path) -> list[dict[str, Any]]:
    items = content.get(key, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        _refuse(file, f"its {key} is not a list of objects")
    return items


def _refuse(file: Path, what: str) -> NoReturn:
    raise ScoreFileError(f"{file} is not a result file of a run: {what}.")


_SETTINGS = ("max_tokens", "temperature", "top_k", "top_p")
_AUTHOR_SHOWN = (
    *("cloze_score", "vocabulary_diversity", "adjacent_coherence", "bigram_repetition_rate"),
)


def start_folder(results: Path, run: Run) -> Path:
    """Return the path of a new folder for ``run``; raise StudyError if it exists."""
    folder = results / run.folder_name
    if folder.exists():
        raise StudyError(
            f"{folder} exists; give this run another --model-id, or delete the folder."
        )
    return folder


def write_run(folder: Path, run: Run, at: str) -> list[Path]:
    """Write all files of ``run`` except the picture; return the paths of interest to a user.

    ``folder`` is created if missing; ``at`` is the time as ISO 8601.
    """
    _write(folder / "metadata.json", _metadata(run))
    for context in run.contexts.values():
        content = {
            "context_length": context.context_tokens,
            "context_info": context.info,
            "generation_params": run.metadata.get("generation_params", {}),
            "num_rounds": len(context.rounds),
            "individual_rounds": list(context.rounds),
            "averaged_stats": context.average,
            "timestamp": at,
        }
        _write(folder / f"context_{context.context_tokens}_results.json", content)
    return write_analysis(folder, run, at)


def write_analysis(folder: Path, run: Run, at: str) -> list[Path]:
    """Write the files derived from the averages of ``run``, and return their paths.

    They are `degradation_analysis.json`, the CSV file of averages and the generated texts, if any.
    """
    rows = [{**average, "context_length": size} for size, average in run.averages.items()]
    analysis = folder / "degradation_analysis.json"
    trends = trend_analysis(run.averages)
    _write(
        analysis,
        {"metadata": _metadata(run), "results": rows, **trends, "analysis_timestamp": at},
    )
    table = folder / f"{run.file_stem}.csv"
    write_atomic(table, averages_csv(run).encode())
    if not run.rounds:
        return [analysis, table]
    texts = folder / f"{run.file_stem}_generations.txt"
    write_atomic(texts, generations_text(run).encode())
    return [analysis, table, texts]


def averages_csv(run: Run) -> str:
    """Return a CSV with a row per context size: model, settings, averages and size."""
    settings = run.metadata.get("generation_params", {})
    head = {
        "model_name": run.metadata.get("model_name"),
        "text_name": run.metadata.get("source_text_name"),
        "model_id": run.metadata.get("model_id"),
        **{key: settings.get(key) for key in _SETTINGS},
    }
    rows = [{**head, **average, "context_length": s} for s, average in run.averages.items()]
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "context_length"))
    out = io.StringIO()
    writer = csv.DictWriter(out, [*columns, "context_length"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def generations_text(run: Run) -> str:
    """Return the author's text and the generated texts, one after another, for reading."""
    pieces = [f"Model: {run.name}\nText: {run.metadata.get('source_text_name', 'unknown')}\n"]
    author = next((c.info.get("ground_truth_text") for c in run.contexts.values() if c.info), None)
    if author:
        author_figures = (f"{key}: {run.author[key]}" for key in _AUTHOR_SHOWN if key in run.author)
        pieces.append(_block("The author's text", "\n".join([*author_figures, "", str(author)])))
    pieces += [
        _block(f"Context {size:,}, round {figures.get('round_number', place)}", text)
        for size, rounds in run.rounds.items()
        for place, figures in enumerate(rounds, 1)
        if (text := str(figures.get("continuation_text", "")))
    ]
    return "\n".join(pieces)


def _metadata(run: Run) -> dict[str, Any]:
    lengths = run.context_lengths or tuple(sorted(run.contexts))
    author = {"ground_truth_analysis": run.author} if run.author else {}
    return {"experiment_metadata": run.metadata, "context_lengths": list(lengths), **author}


def _block(title: str, text: str) -> str:
    return f"{'=' * 80}\n{title}\n{'=' * 80}\n{text}\n"


def _write(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=dict)
    write_atomic(path, text.encode())
