"""Results of `analyze` and `profile`, with methods to display, draw and write them.

A notebook shows a result as one self-contained block of HTML without scripts. The text uses the
notebook's colours, light or dark; the picture always has a white background.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts import DataError, LengthBin, Verdict
from contextcliff_dagster.contracts.results import Cliffs, Comparison, Metrics, to_json
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.figures.comparison import draw_shift
from contextcliff_dagster.reporting.figures.house import blank_page, figure_bytes, printable, styled
from contextcliff_dagster.reporting.figures.report_figure import ASPECT, draw_scores, plot_scores
from contextcliff_dagster.reporting.methods import citation, methods
from contextcliff_dagster.reporting.report_files import (
    ReportFiles,
    format_of,
    results_frame,
    write_file,
    write_report,
)
from contextcliff_dagster.reporting.terminal import comparison_line, risk_report
from contextcliff_dagster.store import slug, write_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDE, _TALL, _DPI, _COLOURS = 9.0, 6.2, 120, 64
"""Size of figures in inches, as wide as a notebook's column; and pictures of few bytes."""


def plot_comparison(
    comparison: Comparison, cliffs: Sequence[Cliffs | None], axes: tuple[Axes, Axes] | None
) -> tuple[Figure, tuple[Axes, Axes]]:
    """Draw a comparison into two ``axes``, or into a new pyplot figure that a notebook shows."""
    import matplotlib

    if axes is not None:
        above, below = axes
        with matplotlib.rc_context({"text.parse_math": False}):
            _draw_comparison((above, below), comparison, cliffs)
        return _figure_of(above), (above, below)
    from matplotlib import pyplot

    with styled():
        figure, pair = pyplot.subplots(2, figsize=(_WIDE, _TALL), layout="constrained", **_PANELS)
        _draw_comparison((pair[0], pair[1]), comparison, cliffs)
    return printable(figure), (pair[0], pair[1])


def comparison_picture(
    comparison: Comparison, cliffs: Sequence[Cliffs | None], kind: str = "png"
) -> bytes:
    """Return the picture of a comparison, without leaving a figure open."""
    with styled():
        figure = blank_page(_TALL, _WIDE, _DPI, layout="constrained")
        above, below = figure.subplots(2, **_PANELS)
        _draw_comparison((above, below), comparison, cliffs)
        return figure_bytes(figure, kind, _COLOURS)


_PANELS: dict[str, Any] = {"sharex": True, "height_ratios": (2, 1)}


def _draw_comparison(
    panels: tuple[Axes, Axes], comparison: Comparison, cliffs: Sequence[Cliffs | None]
) -> None:
    legend = draw_shift(panels, comparison, cliffs)
    panels[0].legend(handles=legend, loc="lower left", bbox_to_anchor=(0, 1.0), frameon=False)


def drawn(results: Sequence[Result]) -> tuple[list[Cliffs], pd.DataFrame | None]:
    """Return what pictures show: all results, and lengths and scores by model if there are any."""
    frames = [
        result.records[["length_tokens", "score"]].assign(model=result.cliffs.model)
        for result in results
    ]
    records = pd.concat(frames, ignore_index=True) if frames else None
    return [result.cliffs for result in results], records


def _figure_of(ax: Axes) -> Figure:
    """Return the top figure that holds ``ax``, through subfigures."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


_MOST_SHOWN = 12
"""Maximum number of models in the picture's alternative text."""
_CARD = "max-width:56rem;font-family:system-ui,sans-serif;line-height:1.45;overflow-wrap:anywhere"
_BIG = "font-size:1.25em;font-weight:600;margin:.2em 0"
_IMAGE = "width:100%;height:auto;background:#fff;border-radius:6px;margin:.4em 0"


def results_html(results: Sequence[Result]) -> str:
    """Return HTML with the caps, the verdicts, the picture, and the notes of the analysis."""
    if not results:
        return "<p>No results.</p>"
    cliffs, records = drawn(results)
    shown = [
        _model_html(result, name)
        for result, name in zip(cliffs, wording.labels(cliffs), strict=True)
    ]
    lines = "; ".join(f"{result.cliffs.model}: {result!r}" for result in results[:_MOST_SHOWN])
    png = plot_scores(cliffs, records, "png", _WIDE, _DPI, _COLOURS)
    picture = _picture(png, f"Score over document length. {lines}")
    notes = list(dict.fromkeys(note for result in cliffs for note in result.warnings))
    return _block("".join(shown) + picture + _notes(notes))


def comparison_html(comparison: Comparison, cliffs: Sequence[Cliffs | None]) -> str:
    """Return HTML with the comparison in one sentence, the picture, and the analysis notes."""
    names = f"{comparison.b.name} vs. {comparison.a.name}"
    how = "paired by example" if comparison.paired else "unpaired: different documents"
    return _block(
        f'<p style="{_BIG}">{escape(names)}</p>'
        f"<p>{escape(comparison.sentence)} {wording.level(comparison.confidence)} intervals, "
        f"{how}.</p>"
        + _picture(comparison_picture(comparison, cliffs), comparison.sentence)
        + _notes(comparison.warnings)
    )


def _model_html(cliffs: Cliffs, name: str) -> str:
    cap = wording.deciding_cap(cliffs)
    words = "no safe cap" if cap is None else f"safe up to {wording.tokens(cap)} tokens"
    drop = wording.drop_clause(cliffs)
    facts = [f"{drop[0].upper()}{drop[1:]}{' tokens' if drop[-1] in ']0123456789' else ''}."]
    if cap is not None:
        facts.append(
            f"A drop of {wording.level(cliffs.tolerance)} from the baseline is excluded up to the "
            f"cap at {wording.level(cliffs.confidence)} confidence."
        )
    else:
        facts.append(wording.sentence(cliffs.safe_cap_reason))
    facts.append(f"{wording.amount(cliffs)}.")
    head = f"<bdi>{escape(name)}</bdi>: {escape(words)}"
    return f'<p style="{_BIG}">{head}</p><p>{escape(" ".join(facts))}</p>'


def _picture(png: bytes, words: str) -> str:
    source = base64.b64encode(png).decode()
    return f'<img style="{_IMAGE}" alt="{escape(words)}" src="data:image/png;base64,{source}">'


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(wording.sentence(note))}</li>" for note in notes)
    title = f"{len(notes)} note{'s' * (len(notes) > 1)}"
    return f"<details><summary>{title}</summary><ul>{items}</ul></details>"


def _block(content: str) -> str:
    return f'<div class="contextcliff" style="{_CARD}">{content}</div>'


class Shown:
    """Common base of one result and several: display, drawing and writing."""

    def _each(self) -> list[Result]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return results_html(self._each())

    def plot(self, ax: Axes | None = None, *, width: float = _WIDE) -> tuple[Figure, Axes]:
        """Draw scores over length, with caps, curves and intervals.

        Args:
            ax: where to draw; None makes a new figure.
            width: of a new figure, in inches; marks and texts are smaller in a narrow one.
        """
        cliffs, records = drawn(self._each())
        if ax is not None:
            draw_scores(ax, cliffs, records)
            return _figure_of(ax), ax
        from matplotlib import pyplot

        with styled():
            figure, ax = pyplot.subplots(figsize=(width, width * ASPECT), layout="constrained")
            draw_scores(ax, cliffs, records)
        return printable(figure), ax

    def report(self) -> str:
        """Return the command line's report; for several models, with a line that compares them."""
        cliffs = [result.cliffs for result in self._each()]
        return "\n\n".join(filter(None, [*map(risk_report, cliffs), comparison_line(cliffs)]))

    def to_frame(self, by: Literal["model", "bin"] = "model") -> pd.DataFrame:
        """Return a table with one row per model, or per length bin (the fields of ``cliffs.bins``).

        Bins are indexed by ``bin``, and those of several models by ``model`` and ``bin``; counts by
        failure tag and times have a column each, such as ``failures.refusal``.

        Raises:
            DataError: ``by`` is neither.
        """
        if by not in ("model", "bin"):
            raise DataError(f"by is {by!r}; give 'model' or 'bin'.")
        each = self._each()
        if by == "model" or not each:
            return results_frame([result.cliffs for result in each])
        frames = {
            result.name: pd.json_normalize(to_json(result.cliffs.bins)).set_index("bin")
            for result in each
        }
        return frames[each[0].name] if self is each[0] else pd.concat(frames, names=["model"])

    def methods(self) -> str:
        """Return how the results came about, as a paragraph for a paper's methods section."""
        return methods([result.cliffs for result in self._each()])

    def citation(self) -> str:
        """Return what to cite, as BibTeX."""
        return citation()

    def save(self, target: str | Path, *, width: float = 6.5) -> ReportFiles | Path:
        """Write one file of the kind that its suffix names, or a report into a folder.

        A file is a picture (``.png``, ``.pdf``, ``.svg``), the table of `to_frame` (``.csv``,
        ``.parquet``), ``cliffs.json`` (``.json``; of several models a list), or a page (``.html``,
        ``.md``). A folder gets the report, its pictures and each model's ``cliffs.json``.

        Args:
            width: of a picture, in inches.

        Raises:
            DataError: no format has the file's suffix.
            StoreError: the file or folder cannot be written.
        """
        kind, path = format_of(target), Path(target)
        cliffs, records = drawn(self._each())
        title = f"Scores of {', '.join(result.model for result in cliffs[:4])}"
        if kind is not None:
            write_file(path, kind, cliffs, records, title=title, width=width)
            return path
        files = write_report(cliffs, records, path, title=title)
        for result in cliffs:
            name = "cliffs.json" if len(cliffs) == 1 else f"{slug(result.model)}.cliffs.json"
            write_result(path / name, result)
        return files


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown):
    """One model's verdict and safe context cap.

    Attributes:
        cliffs: verdict, cap and the evidence for them; the content of ``cliffs.json``.
        metrics: means, failures and times by bin; the content of ``metrics.json``.
        records: the answers, one row each, with at least ``length_tokens`` (of the document) and
            ``score`` (0..1).
        settings: tolerance, confidence and the other choices of the analysis.
        bins: bins of the study's frozen sample; empty if deciles of the lengths were used.
    """

    cliffs: Cliffs
    metrics: Metrics
    records: pd.DataFrame
    settings: AnalysisSettings
    bins: Sequence[LengthBin] = ()

    def _each(self) -> list[Result]:
        return [self]

    @property
    def name(self) -> str:
        """Return the model's name, as given."""
        return self.cliffs.model

    @property
    def verdict(self) -> Verdict:
        """Return the verdict, for example ``cliff`` or ``stable``."""
        return self.cliffs.verdict

    @property
    def safe_cap_tokens(self) -> int | None:
        """Return the length of the longest safe document in tokens; None if no length is safe."""
        return wording.deciding_cap(self.cliffs)

    def __repr__(self) -> str:
        return wording.one_line(self.cliffs)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values: ``cliffs.json`` (schema: ``cliffs.schema.json``)."""
        content: dict[str, Any] = to_json(self.cliffs)
        return content


class Results(Shown, Mapping[str, Result]):
    """A mapping of model names to results."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = dict(results)

    def __getitem__(self, name: str) -> Result:
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def _each(self) -> list[Result]:
        return list(self.values())

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {result}" for name, result in self.items()) or "no results"

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return `Result.to_dict` of each model."""
        return {name: result.to_dict() for name, result in self.items()}


def only(results: Results) -> Result:
    """Return the only result. Raises DataError: there are several, or none."""
    if len(results) == 1:
        return next(iter(results.values()))
    names = ", ".join(results) or "none"
    raise DataError(f"One model is needed, but there are {len(results)} ({names}); choose one.")
