"""From files of scores to results, and where the results go."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ContextCliffError, StoreError
from contextcliff_dagster.score_files import (
    LogOptions,
    MeansTable,
    ScoreFileError,
    ScoreRecords,
    chosen,
    need_two_lengths,
    pooled,
    read_scores,
    read_tables,
    stem,
)
from contextcliff_dagster.store import slug, write_result

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results import Cliffs

_LONGEST_PART = 120
"""Bytes of a model's name in a file's; most file systems end at 255 for the whole."""


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """What to make of each file, as the command line asks for it."""

    settings: AnalysisSettings
    aggregated: bool = False
    scale: float = 1.0
    model: str | None = None
    by_model: bool = False
    window: int | None = None
    log: LogOptions = field(default_factory=LogOptions)


@dataclass(frozen=True, slots=True)
class Analyzed:
    """The result of one model of one file, and its single answers where the file has them."""

    path: Path
    result: Cliffs
    answers: pd.DataFrame | None


def analyze_files(
    paths: Sequence[Path], options: AnalyzeOptions, errors: list[ContextCliffError]
) -> Iterator[Analyzed]:
    """One result a model of ``paths``, which are one measurement and mostly one file.

    What cannot be analysed is appended to ``errors``.
    """
    from contextcliff_dagster.analysis.profile.model_profile import ProfileContext, profile_model
    from contextcliff_dagster.analysis.profile.table_profile import profile_table

    try:
        path = paths[0]
        read = _tables if options.aggregated else _records
        with ThreadPoolExecutor(1) as beside:
            digests = [beside.submit(_sha256, one) for one in paths]
            models = read(paths, options)
            names = ["file"] if len(paths) == 1 else [str(one) for one in paths]
            hashes = {name: one.result() for name, one in zip(names, digests, strict=True)}
            provenance = {"hashes": hashes, "file": ", ".join(one.name for one in paths)}
    except ContextCliffError as error:
        errors.append(error)
        return
    models.reverse()
    while models:  # what is done with is let go: a file may be as large as the memory allows
        name, found = models.pop()
        try:
            need_two_lengths(path, found)
            if isinstance(found, MeansTable):
                context = ProfileContext(name, window_tokens=options.window, provenance=provenance)
                yield Analyzed(path, profile_table(found, options.settings, context), None)
            else:
                context = ProfileContext(
                    name,
                    task=found.task,
                    tokenizer=found.tokenizer,
                    window_tokens=options.window,
                    score_name=found.score_name,
                    provenance=provenance,
                    warnings=found.notes,
                )
                result = profile_model(found.frame, [], options.settings, context).cliffs
                answers = found.frame[["length_tokens", "score"]].assign(model=name)
                yield Analyzed(path, result, answers)
        except ContextCliffError as error:
            errors.append(error)


_Models = list[tuple[str, ScoreRecords | MeansTable]]


def _records(paths: Sequence[Path], options: AnalyzeOptions) -> _Models:
    found = [(path, read_scores(path, options.log, scale=options.scale)) for path in paths]
    models = found[0][1] if len(found) == 1 else pooled(found)
    return [*chosen(paths[0], models, model=options.model, by_model=options.by_model)]


def _tables(paths: Sequence[Path], options: AnalyzeOptions) -> _Models:
    (path,) = paths
    found = read_tables(path, scale=options.scale)
    return [*chosen(path, found, model=options.model, by_model=options.by_model)]


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error


@dataclass(frozen=True, slots=True)
class Places:
    """Where the results for machines go: nowhere, to stdout, into one file, or into a folder."""

    target: str | None
    folder: bool
    array: bool

    @classmethod
    def of(cls, target: str | None, files: Sequence[Path], *, by_model: bool) -> Places:
        """``target`` is a folder where it is one, ends with a slash or has no ending.

        Raises:
            ContextCliffError: it is one file for several, or two files would have one name in it.
        """
        array = by_model or len(files) > 1
        if target in (None, "-"):
            return cls(target, False, array)
        path = Path(str(target))
        folder = path.is_dir() or str(target).endswith("/") or not (path.suffix or path.exists())
        if not folder and len(files) > 1:
            raise ContextCliffError(
                f"--json {target} is one file, and there are {len(files)} to analyse; name a "
                "folder, which then holds a JSON file for each."
            )
        names = Counter(stem(file) for file in files)
        twice = [name for name, count in names.items() if count > 1]
        if folder and twice:
            raise ContextCliffError(
                f"Two of the files are called {twice[0]!r}, and both results would be "
                f"{path / twice[0]}.json; analyse them one by one, or rename one."
            )
        return cls(str(target), folder, array)

    def write(self, path: Path, results: Sequence[Cliffs], *, by_model: bool) -> list[Path]:
        """Write the results of input ``path``; the files written.

        Raises:
            ContextCliffError: the place cannot be written.
        """
        if self.target in (None, "-") or not results:
            return []
        place = Path(str(self.target))
        if not self.folder:
            return [_written(place, list(results) if by_model else results[0])]
        if not by_model:
            return [_written(place / f"{stem(path)}.json", results[0])]
        return [
            _written(place / f"{stem(path)}.{_file_part(result.model)}.json", result)
            for result in results
        ]


def _file_part(model: str) -> str:
    """The model's name as it is, where any file system takes it; else made safe and unique."""
    plain = model.isprintable() and not set(model) & set('/\\:*?"<>|')
    whole = model == model.strip(" .") and 0 < len(model.encode()) <= _LONGEST_PART
    return model if plain and whole else slug(model)


def _written(path: Path, value: Cliffs | Sequence[Cliffs]) -> Path:
    try:
        write_result(path, value)
    except StoreError as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        raise ContextCliffError(
            f"Cannot write {path}: {reason}; name another place with --json."
        ) from error
    return path
