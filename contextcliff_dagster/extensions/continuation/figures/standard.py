"""Four metrics over context size: averages of several runs, or each round of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.continuation.compat.coherence import COHERENCE_KEYS
from contextcliff_dagster.extensions.continuation.compat.runs import Run
from contextcliff_dagster.extensions.continuation.compat.statistics import Round
from contextcliff_dagster.extensions.continuation.figures.collapse_axis import (
    UsualRange,
    collapse_axis,
)
from contextcliff_dagster.reporting.figures import house

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_AUTHOR = "#2E8B57"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with a panel: its key, its name and the range that prose usually has."""

    key: str
    name: str
    usual: UsualRange
    invert: bool = False


PANELS = (
    Metric("vocabulary_diversity", "Vocabulary diversity", UsualRange(0.2, 0.7), invert=True),
    Metric("cloze_score", "Cloze score (a readability formula)", UsualRange(15, 40)),
    Metric("adjacent_coherence", "Similarity of neighbouring sentences", UsualRange(0.4, 1)),
    Metric("bigram_repetition_rate", "Repeated pairs of words", UsualRange(0, 0.3)),
)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a panel: sizes (tokens) with their values, and how it is drawn."""

    name: str | None
    figures: dict[int, Round]
    style: house.Look
    faint: bool = False

    def points(self, metric: str) -> list[tuple[int, float]]:
        found = ((size, value_of(one, metric)) for size, one in self.figures.items())
        return [(size, value) for size, value in found if value is not None]


def value_of(figures: Round, metric: str) -> float | None:
    """The figure; None where it is missing, and for a coherence of 0 in all parts: not measured."""
    value = figures.get(metric)
    if metric in COHERENCE_KEYS and not any(figures.get(key) for key in COHERENCE_KEYS):
        return None
    return None if value is None else float(value)


@house.styled()
def plot_standard(runs: Sequence[Run], dpi: int) -> bytes:
    """PNG bytes: the averages of one to six runs, a line each, with the authors' figures dashed."""
    lines = [
        _Line(run.name, dict(run.averages), house.look(place)) for place, run in enumerate(runs)
    ]
    return _page("Continuation over context size: averages", lines, runs, dpi)


@house.styled()
def plot_rounds(runs: Sequence[Run], dpi: int) -> bytes:
    """PNG bytes: each round a thin line, and the average a thick one.

    The rounds of a single run have their names (R1, R2, ...); of several runs they have its colour.
    """
    lines = []
    for place, run in enumerate(runs):
        most = max(map(len, run.rounds.values()))
        for number in range(most):
            figures = {s: some[number] for s, some in run.rounds.items() if number < len(some)}
            alone = len(runs) == 1
            name = f"R{number + 1}" if alone else None
            lines.append(
                _Line(name, dict(figures), house.look(number if alone else place), faint=True)
            )
        style = house.look(place) if len(runs) > 1 else house.Look(house.INK, "o", (0, None))
        lines.append(_Line(f"{run.name} AVG", dict(run.averages), style))
    return _page("Continuation over context size: rounds and their average", lines, runs, dpi)


def _page(title: str, lines: Sequence[_Line], runs: Sequence[Run], dpi: int) -> bytes:
    rows = -(-len([line for line in lines if line.name]) // 3)
    height = 9.0 + 0.24 * rows
    figure = house.blank_page(height)
    figure.set_dpi(dpi)
    sizes = [float(size) for line in lines for size in line.figures]
    limits = house.with_air(*house.token_limits(sizes))
    handles: dict[str, Line2D] = {}
    for place, metric in enumerate(PANELS):
        row, column = divmod(place, 2)
        axes = house.panel(figure, 0.75 + 5.5 * column, 4.75 - 4.05 * row, 4.85, 3.2)
        house.token_axis(axes, limits)
        handles |= _draw(axes, metric, lines, runs)
        if row:
            axes.set_xlabel("Context size in tokens (log scale)")
    house.write(figure, 0.37, height - 0.3, title, fontsize=14, fontweight="bold")
    figure.legend(
        handles=list(handles.values()),
        loc="upper left",
        bbox_to_anchor=(0.025, 1 - 0.5 / height),
        ncol=3,
        fontsize=9.5,
    )
    return house.png_bytes(figure)


def _draw(
    axes: Axes, metric: Metric, lines: Sequence[_Line], runs: Sequence[Run]
) -> dict[str, Line2D]:
    """Draw one panel, and return its lines by their names."""
    drawn, seen = {}, []
    axes.set_title(metric.name, fontsize=11)
    axes.grid(axis="y")
    for line in lines:
        points = line.points(metric.key)
        seen += [value for _, value in points]
        style = line.style
        (artist,) = axes.plot(
            [size for size, _ in points],
            [value for _, value in points],
            color=style.colour,
            ls=style.dash,
            lw=0.9 if line.faint else 2.0,
            alpha=0.55 if line.faint else 1.0,
            marker=style.marker,
            ms=3 if line.faint else 5,
            zorder=2 if line.faint else 3,
            label=house.shortened(line.name or "", 44),
        )
        if line.name:
            drawn[line.name] = artist
    authors = {value_of(run.author, metric.key) for run in runs} - {None}
    for value in sorted(value for value in authors if value is not None):
        seen.append(value)
        drawn["author"] = axes.axhline(value, color=_AUTHOR, ls="--", lw=1.2, label="the author")
    if not seen:
        words = "not in these results"
        axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", color=house.SOFT_INK)
    collapse_axis(axes, metric.usual, seen, invert=metric.invert)
    return drawn
