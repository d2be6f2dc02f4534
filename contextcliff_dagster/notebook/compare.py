"""`compare`: compare two results, score files, archives or measurements in the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd

from contextcliff_dagster.analysis.comparison import Measured, whole_cache_first
from contextcliff_dagster.analysis.comparison import compare as compare_measured
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.cli.commands.compare import Ref, ScoreFile, notes_on, resolve, score_file
from contextcliff_dagster.cli.options import DEFAULT_STUDY
from contextcliff_dagster.contracts import DataError, LengthBin
from contextcliff_dagster.contracts.results import Cliffs, Comparison, to_json
from contextcliff_dagster.experiments.length_profile.profile_and_report import policy_of
from contextcliff_dagster.notebook.results import (
    Result,
    Results,
    comparison_html,
    comparison_picture,
    only,
    plot_comparison,
)
from contextcliff_dagster.reporting.comparison import (
    ComparisonFiles,
    comparison_markdown,
    write_comparison,
)
from contextcliff_dagster.reporting.report_files import PICTURES, format_of
from contextcliff_dagster.run.study import ArchivedStudy, is_archive, rebuild_archive
from contextcliff_dagster.score_files import LogOptions
from contextcliff_dagster.store import Store, write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Side = Result | Results | str | Path
Source = Result | Ref | ScoreFile


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonResult:
    """The comparison B minus A; a negative difference means that B is worse.

    Attributes:
        comparison: differences overall, by bin and over length; what ``comparison.json`` holds.
        cliffs: the results of A and B.
    """

    comparison: Comparison
    cliffs: tuple[Cliffs, Cliffs]

    def __repr__(self) -> str:
        return self.comparison.sentence

    def _repr_html_(self) -> str:
        return comparison_html(self.comparison, self.cliffs)

    def plot(self, axes: tuple[Axes, Axes] | None = None) -> tuple[Figure, tuple[Axes, Axes]]:
        """Draw both curves, and their difference below.

        Args:
            axes: where to draw the two; None makes a new figure.
        """
        return plot_comparison(self.comparison, self.cliffs, axes)

    def to_frame(self) -> pd.DataFrame:
        """Return means and difference by length bin, indexed by ``bin``."""
        return pd.DataFrame(to_json(self.comparison.bins)).set_index("bin")

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values: ``comparison.json``."""
        content: dict[str, Any] = to_json(self.comparison)
        return content

    def report(self) -> str:
        """Return the comparison as Markdown, which links to its picture next to it."""
        return comparison_markdown(self.comparison)

    def save(self, target: str | Path) -> ComparisonFiles | Path:
        """Write a picture (``.png``, ``.pdf``, ``.svg``), or a report into a folder.

        A folder gets ``comparison.html``, ``.md``, ``.json`` and ``.png``.

        Raises:
            DataError: the file's suffix is that of no picture.
            StoreError: the file or folder cannot be written.
        """
        path = Path(target)
        if kind := format_of(target, PICTURES):
            write_atomic(path, comparison_picture(self.comparison, self.cliffs, kind))
            return path
        return write_comparison(self.comparison, path, self.cliffs)


def compare(a: Side, b: Side, *, names: tuple[str, str] | None = None) -> ComparisonResult:
    """Compare two measurements, paired by example if they share any, without any call to a model.

    Answers that name no example are paired by document. Tolerance, confidence and bins are A's.

    Args:
        a, b: a result of `analyze` or `profile`; ``[STUDY:]MODEL[@CAMPAIGN]`` of the store; a file
            of scores or a log of another tool, FILE or FILE:MODEL; an archive of
            ``contextcliff export``, FILE or FILE:MODEL. Of a KV policy and the whole cache of the
            same model, the whole cache is A.
        names: names of A and B; by default their own.

    Raises:
        DataError: a side is none of these, or has several models.
        ContextCliffError: a side cannot be read, or has no scored answer.
    """
    with TemporaryDirectory(prefix="contextcliff-") as folder:
        archives = _Archives(Path(folder))
        sources = [_source(side, archives) for side in (a, b)]
        refs = [ref for ref, _ in sources]
        labels = names or _names(refs)
        sides = [
            _measured(ref, store, name) for (ref, store), name in zip(sources, labels, strict=True)
        ]
    if whole_cache_first(sides[0][0], sides[1][0]):
        sides = sides[::-1]
    first, second = (measured for measured, _, _ in sides)
    assert first.cliffs is not None
    assert second.cliffs is not None
    notes = notes_on(first, second, same=refs[0] is refs[1] or refs[0] == refs[1])
    comparison = compare_measured(first, second, sides[0][1], sides[0][2], notes=notes)
    return ComparisonResult(comparison, (first.cliffs, second.cliffs))


@dataclass(frozen=True, slots=True)
class _Archives:
    """Archives, each unpacked once into its own store below ``folder``."""

    folder: Path
    _unpacked: dict[Path, ArchivedStudy] = field(default_factory=dict)

    def unpack(self, file: Path) -> ArchivedStudy:
        """Unpack ``file`` and return its study. Raises ContextCliffError: it cannot be read."""
        key = file.resolve()
        if key not in self._unpacked:
            target = self.folder / str(len(self._unpacked))
            self._unpacked[key] = rebuild_archive(file, target)
        return self._unpacked[key]


def _source(side: Side, archives: _Archives) -> tuple[Source, Store]:
    """Return the measurement that ``side`` names, and its store."""
    store = Store.default()
    if isinstance(side, Results):
        side = only(side)
    if isinstance(side, Result):
        return side, store
    if not isinstance(side, str | Path) or not str(side).strip():
        raise DataError(
            f"A side of the comparison is of type {type(side).__name__}; give a result of analyze "
            "or profile, a file, or [STUDY:]MODEL[@CAMPAIGN]."
        )
    text = str(side)
    path, _, model = text.partition(":")
    for file, model_name in ((Path(text), None), (Path(path), model or None)):
        if is_archive(file):
            return _of_archive(file, model_name, archives)
    if (named := _of_result_file(Path(text))) is not None:
        return resolve(named, store, DEFAULT_STUDY, None), store
    return score_file(text, LogOptions()) or resolve(text, store, DEFAULT_STUDY, None), store


def _of_archive(file: Path, model: str | None, archives: _Archives) -> tuple[Ref, Store]:
    """Return the model of an archive, and the store that it was unpacked into."""
    _, done, store = archives.unpack(file)
    models = [cliffs.model for cliffs in done.cliffs]
    if model is None and len(models) == 1:
        (model,) = models
    if model not in models:
        contents = "several models" if model is None else f"no model {model!r}"
        raise DataError(
            f"{file} holds {contents}: {', '.join(models)}; choose one as {file}:{models[0]}."
        )
    return Ref(done.study, model, done.campaign), store


def _of_result_file(file: Path) -> str | None:
    """Return STUDY:MODEL@CAMPAIGN of a ``cliffs.json``; None for any other file."""
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        head = json.loads(file.read_bytes())
    except ValueError:
        return None
    if not isinstance(head, dict) or not {"schema_version", "verdict"} <= head.keys():
        return None
    study, model, campaign = (head.get(name) for name in ("study", "model", "campaign"))
    if study is None or campaign is None:
        raise DataError(
            f"{file} is a result without its answers, which a comparison needs; give the file of "
            "scores that it was computed from."
        )
    return f"{study}:{model}@{campaign}"


def _names(refs: Sequence[Source]) -> tuple[str, str]:
    """Return the sides' own names, with (A) and (B) added if they are equal."""
    files = [ref for ref in refs if not isinstance(ref, Result)]
    first, second = (ref.name if isinstance(ref, Result) else ref.name(files) for ref in refs)
    return (first, second) if first != second else (f"{first} (A)", f"{second} (B)")


def _measured(
    ref: Source, store: Store, name: str
) -> tuple[Measured, Sequence[LengthBin], AnalysisSettings]:
    if isinstance(ref, Result):
        model = ref.cliffs.model if ref.cliffs.study is not None else None
        kv = policy_of(model) if model is not None else None
        return Measured(name, ref.records, ref.cliffs, kv), ref.bins, ref.settings
    return ref.measured(store, name), ref.bins(store), ref.settings()
