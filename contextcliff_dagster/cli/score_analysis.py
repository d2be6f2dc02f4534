"""Analysis of score files, and writing of the results."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ContextCliffError, StoreError
from contextcliff_dagster.corpora.readers.tables import saved_files
from contextcliff_dagster.score_files import (
    LogOptions,
    MeansTable,
    ScoreFileError,
    ScoreRecords,
    UnusableLogError,
    chosen,
    files_in,
    need_two_lengths,
    pooled,
    read_scores,
    read_tables,
    read_wide_means,
    stem,
)
from contextcliff_dagster.store import slug, write_result
from contextcliff_dagster.user_files import open_file

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts.results import Cliffs

_OF_SCORES = ("task", "tokenizer", "length_unit", "score_name", "copied_share")
"""What a file of scores states about them, as the context of their analysis."""
_LONGEST_PART = 120
"""Maximum bytes of a model's name in a file name; most file systems allow 255 in all."""


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """The options of `analyze` that apply to each file."""

    settings: AnalysisSettings
    aggregated: bool = False
    scale: float = 1.0
    model: str | None = None
    by_model: bool = False
    window: int | None = None
    log: LogOptions = field(default_factory=LogOptions)


@dataclass(frozen=True, slots=True)
class Analyzed:
    """The result of one model in one file, with its single answers if the file has them."""

    path: Path
    result: Cliffs
    answers: pd.DataFrame | None


def analyze_files(
    paths: Sequence[Path], options: AnalyzeOptions, errors: list[ContextCliffError]
) -> Iterator[Analyzed]:
    """Yield one result per model of ``paths``, the files of one measurement.

    Errors are appended to ``errors``.
    """
    from contextcliff_dagster.analysis.profile import ProfileContext, profile_model, profile_table

    try:
        path = paths[0]
        with ThreadPoolExecutor(1) as pool:
            refused = Event()
            digests = [pool.submit(_sha256, file, refused) for file in paths]
            try:
                models = _read(paths, options)
            except BaseException:
                refused.set()  # a useless file is not read to its end
                raise
            names = ["file"] if len(paths) == 1 else [str(file) for file in paths]
            hashes = {name: digest.result() for name, digest in zip(names, digests, strict=True)}
            provenance = {"hashes": hashes, "file": ", ".join(file.name for file in paths)}
    except ContextCliffError as error:
        errors.append(error)
        return
    models.reverse()
    while models:  # finished models are released: a file may nearly fill the memory
        name, scores = models.pop()
        context = ProfileContext(
            name, window_tokens=options.window, provenance=provenance, length_unit="as given"
        )
        try:
            need_two_lengths(path, scores)
            if isinstance(scores, MeansTable):
                context = replace(context, warnings=scores.notes)
                yield Analyzed(path, profile_table(scores, options.settings, context), None)
                continue
            times = scores.frame.get("ttft_ms")
            if options.settings.ttft_limit_ms is not None and (times is None or times.isna().all()):
                raise ScoreFileError(
                    f"{path} has no times to the first token of {name} (column ttft_ms), so "
                    "--ttft-limit cannot be judged; add them, or leave the option out."
                )
            stated = {name: getattr(scores, name) for name in _OF_SCORES}
            context = replace(context, warnings=scores.notes, **stated)
            result = profile_model(scores.frame, [], options.settings, context).cliffs
            answers = scores.frame[["length_tokens", "score"]].assign(model=name)
            yield Analyzed(path, result, answers)
        except ContextCliffError as error:
            errors.append(error)


def _read(
    paths: Sequence[Path], options: AnalyzeOptions
) -> list[tuple[str, ScoreRecords | MeansTable]]:
    scores: Sequence[ScoreRecords | MeansTable]
    columns = options.log.columns
    if not columns and (wide := read_wide_means(paths, options.scale)) is not None:
        scores = wide
    elif options.aggregated:
        scores = read_tables(paths[0], scale=options.scale, columns=columns)
    else:
        scores = _pooled(paths, options)
    return chosen(paths[0], scores, model=options.model, by_model=options.by_model)


def _pooled(paths: Sequence[Path], options: AnalyzeOptions) -> Sequence[ScoreRecords]:
    """Return the records of all files; note logs without usable answers if others have some."""
    files, unusable = [], []
    for path in paths:
        try:
            files.append((path, read_scores(path, options.log, scale=options.scale)))
        except UnusableLogError as error:
            unusable.append(error)
    if not files:
        raise unusable[0]
    scores = files[0][1] if len(files) == 1 else pooled(files)
    notes = tuple(f"Left out: {error}" for error in unusable)
    return [replace(result, notes=(*result.notes, *notes)) for result in scores]


def _sha256(path: Path, refused: Event) -> str:
    digest = hashlib.sha256()
    try:
        for part in saved_files(path, ScoreFileError) or files_in(path):
            with open_file(part) as file:
                while not refused.is_set() and (piece := file.read(1 << 20)):
                    digest.update(piece)
        return digest.hexdigest()
    except OSError as error:
        raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """The destination of machine-readable results: one file, a ``folder`` of files, or None.

    ``by_model``: one result per model.
    """

    target: Path | None
    by_model: bool
    folder: bool = False

    @classmethod
    def of(cls, target: str | None, inputs: Sequence[Path], *, by_model: bool) -> ResultFiles:
        """Treat ``target`` as a folder if it is one, ends with a slash or has no suffix.

        Raises:
            ContextCliffError: one file is given for several inputs, or two results share a name.
        """
        if target is None or target == "-":
            return cls(None, by_model)
        path = Path(target)
        folder = path.is_dir() or target.endswith("/") or not (path.suffix or path.exists())
        if not folder and len(inputs) > 1:
            raise ContextCliffError(
                f"--json {target} is one file, but there are {len(inputs)} files to analyse; name "
                "a folder for one JSON file each."
            )
        ((name, count),) = Counter(map(stem, inputs)).most_common(1)
        if folder and count > 1:
            raise ContextCliffError(
                f"Two of the files are called {name!r}, and both results would be "
                f"{path / name}.json; analyse them one by one, or rename one."
            )
        return cls(path, by_model, folder)

    def write(self, path: Path, results: Sequence[Cliffs]) -> list[Path]:
        """Write the results of input ``path``; return the files written.

        Raises:
            ContextCliffError: a file cannot be written.
        """
        if self.target is None or not results:
            return []
        written: dict[Path, Cliffs | Sequence[Cliffs]]
        if not self.folder:
            written = {self.target: list(results) if self.by_model else results[0]}
        elif self.by_model:
            folder, name = self.target, stem(path)
            written = {folder / f"{name}.{_file_part(r.model)}.json": r for r in results}
        else:
            written = {self.target / f"{stem(path)}.json": results[0]}
        for file, value in written.items():
            try:
                write_result(file, value)
            except StoreError as error:
                reason = getattr(error.__cause__, "strerror", None) or error
                raise ContextCliffError(
                    f"Cannot write {file}: {reason}; choose another file or folder with --json."
                ) from error
        return list(written)


def _file_part(model: str) -> str:
    """Return the model's name if every file system accepts it, else a safe and unique slug."""
    plain = model.isprintable() and not set(model) & set('/\\:*?"<>|')
    whole = model == model.strip(" .") and 0 < len(model.encode()) <= _LONGEST_PART
    return model if plain and whole else slug(model)
