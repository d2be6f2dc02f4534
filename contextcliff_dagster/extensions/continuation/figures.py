"""Pictures of finished runs: averages, rounds, statistics and convergence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.extensions.continuation.compat.metrics import COHERENCE_KEYS
from contextcliff_dagster.extensions.continuation.compat.result_files import Run
from contextcliff_dagster.extensions.continuation.compat.statistics import Convergence, Round
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.figures.house import FAINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


_GROWTH, _AIR = 0.06, 0.04


@dataclass(frozen=True, slots=True)
class UsualRange:
    """Axis scale that is linear from ``low`` to ``high`` and logarithmic beyond."""

    low: float
    high: float

    def stretched(self, values: Iterable[float]) -> UsualRange:
        """Extend the range to include ``values`` that are within its own width of it."""
        width = self.high - self.low
        near = [x for x in values if self.low - width <= x <= self.high + width]
        return UsualRange(min([self.low, *near]), max([self.high, *near]))

    def forward(self, y: Any) -> NDArray[Any]:
        """Return the heights of values; the usual range maps to 0..1."""
        u = (np.asarray(y, dtype=float) - self.low) / (self.high - self.low)
        beyond = np.where(u > 1, u - 1, np.where(u < 0, u, 0.0))
        outside = np.sign(beyond) * _GROWTH * np.log1p(np.abs(beyond) / _GROWTH)
        return np.asarray(np.clip(u, 0, 1) + outside)

    def inverse(self, heights: Any) -> NDArray[Any]:
        """Return the values at the given heights."""
        h = np.asarray(heights, dtype=float)
        beyond = np.where(h > 1, h - 1, np.where(h < 0, h, 0.0))
        outside = np.sign(beyond) * _GROWTH * np.expm1(np.abs(beyond) / _GROWTH)
        return np.asarray((np.clip(h, 0, 1) + outside) * (self.high - self.low) + self.low)


def collapse_axis(axes: Axes, usual: UsualRange, values: Iterable[float], *, invert: bool) -> None:
    """Set limits of ``axes`` that include all ``values``, with a log scale for distant values.

    A line marks the end of the linear range, and the outermost value gets a tick.
    """
    from matplotlib.ticker import MaxNLocator

    finite = [value for value in values if math.isfinite(value)]
    linear = usual.stretched(finite)
    low, high = min([linear.low, *finite]), max([linear.high, *finite])
    ends = linear.forward([low, high])
    air = _AIR * (ends[1] - ends[0])
    axes.set_yscale("function", functions=(linear.forward, linear.inverse))
    limits = linear.inverse([ends[0] - air, ends[1] + air])
    ticks = [
        float(tick)
        for tick in MaxNLocator(6).tick_values(linear.low, linear.high)
        if linear.low - 1e-9 <= tick <= linear.high + 1e-9
    ]
    for end, edge, limit in ((low, linear.low, limits[0]), (high, linear.high, limits[1])):
        if end != edge:
            ticks.append(end)
            axes.axhline(edge, color=FAINT, lw=1.4, zorder=1)
            axes.axhspan(edge, float(limit), color=FAINT, alpha=0.25, lw=0)
    axes.set_yticks(sorted(ticks), [f"{tick:.3g}" for tick in sorted(ticks)])
    axes.set_ylim(*(limits[::-1] if invert else limits))


_AUTHOR = "#2E8B57"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that has a panel: its key, its name and its usual range in prose."""

    key: str
    name: str
    usual: UsualRange
    invert: bool = False


PANELS = (
    Metric("vocabulary_diversity", "Vocabulary diversity", UsualRange(0.2, 0.7), invert=True),
    Metric("cloze_score", "Cloze score (a readability formula)", UsualRange(15, 40)),
    Metric("adjacent_coherence", "Similarity of neighbouring sentences", UsualRange(0.4, 1)),
    Metric("bigram_repetition_rate", "Repeated word pairs", UsualRange(0, 0.3)),
)


@dataclass(frozen=True, slots=True)
class _Line:
    """Line of a panel: sizes (tokens) with their values, and its style."""

    name: str | None
    figures: dict[int, Round]
    style: house.Look
    faint: bool = False

    def points(self, metric: str) -> list[tuple[int, float]]:
        pairs = ((size, value_of(figures, metric)) for size, figures in self.figures.items())
        return [(size, value) for size, value in pairs if value is not None]


def value_of(figures: Round, metric: str) -> float | None:
    """Return the value of a metric; None if missing, or if all coherence is 0 (unmeasured)."""
    value = figures.get(metric)
    if metric in COHERENCE_KEYS and not any(figures.get(key) for key in COHERENCE_KEYS):
        return None
    return None if value is None else float(value)


@house.styled()
def plot_standard(runs: Sequence[Run], dpi: int) -> bytes:
    """Draw the averages of one to six runs as lines, the authors' figures dashed; return a PNG."""
    lines = [
        _Line(run.name, dict(run.averages), house.look(place)) for place, run in enumerate(runs)
    ]
    return _page("Continuation over context size: averages", lines, runs, dpi)


@house.styled()
def plot_rounds(runs: Sequence[Run], dpi: int) -> bytes:
    """Draw each round as a thin line and the average as a thick one; return a PNG.

    Rounds of a single run are labelled (R1, R2, ...); with several runs, each has its own colour.
    """
    lines = []
    for place, run in enumerate(runs):
        for turn in range(max(map(len, run.rounds.values()))):
            figures = {s: rounds[turn] for s, rounds in run.rounds.items() if turn < len(rounds)}
            single = len(runs) == 1
            name = f"R{turn + 1}" if single else None
            lines.append(
                _Line(name, dict(figures), house.look(turn if single else place), faint=True)
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
    """Draw one panel and return its lines by name."""
    artists, plotted = {}, []
    axes.set_title(metric.name, fontsize=11)
    if metric.invert:
        axes.set_ylabel("axis inverted: further up is worse", fontsize=9)
    axes.grid(axis="y")
    for line in lines:
        points = line.points(metric.key)
        plotted += [value for _, value in points]
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
            artists[line.name] = artist
    authors = {value_of(run.author, metric.key) for run in runs} - {None}
    for value in sorted(value for value in authors if value is not None):
        plotted.append(value)
        artists["author"] = axes.axhline(value, color=_AUTHOR, ls="--", lw=1.2, label="the author")
    if not plotted:
        words = "not in these results"
        axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", color=house.SOFT_INK)
    collapse_axis(axes, metric.usual, plotted, invert=metric.invert)
    return artists


_ZONES = (
    (0, 20, "stable", "none"),
    (20, 40, "transition", "mild"),
    (40, 100, "degraded", "severe"),
)
_VARIATION_LIMIT, _MEDIUM, _LARGE = 0.15, 0.3, 0.5
_COLOURS = {"p < .01": "#B5482F", "p < .05": "#E39B7B", "n.s.": "#EEF1F4"}


@house.styled()
def plot_enhanced(run: Run, result: dict[str, Any], dpi: int) -> bytes:
    """Draw ``result``, the statistics of ``run`` (`compat.statistics`); return a PNG."""
    height = 9.7
    figure = house.blank_page(height)
    figure.set_dpi(dpi)
    places = [(0.75 + 5.5 * column, 5.35 - 4.2 * row) for row in (0, 1) for column in (0, 1)]
    axes = [house.panel(figure, left, bottom, 4.85, 3.2) for left, bottom in places]
    _draw_composite(axes[0], result)
    _draw_variation(axes[1], result)
    _draw_effects(axes[2], result)
    _draw_significance(axes[3], result)
    title = f"Degradation statistics: {house.shortened(run.name, 60)}"
    house.write(figure, 0.37, height - 0.3, title, fontsize=14, fontweight="bold")
    summary, rho = result["summary"], result["trend_correlation"]
    trend = f"rank correlation {rho:.2f}, p = {result['trend_p_value']:.3g}"
    words = (
        f"Trend of the means: {'none, they are equal' if math.isnan(rho) else trend}; "
        f"{'degradation' if summary['degradation_detected'] else 'no degradation'} by this rule, "
        f"which ignores chance; two-sided tests against {result['baseline_context']:,} tokens"
    )
    house.write(figure, 0.37, height - 0.62, words, fontsize=9.5, color=house.SOFT_INK)
    return house.png_bytes(figure)


def _draw_composite(axes: Axes, result: dict[str, Any]) -> None:
    sizes, scores = result["context_sizes"], result["composite_scores"]
    house.token_axis(axes, house.with_air(*house.token_limits([float(size) for size in sizes])))
    for low, high, zone, word in _ZONES:
        axes.axhspan(low, high, color=house.ZONE_SHADE[zone], lw=0, zorder=0)
        axes.text(
            1.0, low + 1, word, transform=axes.get_yaxis_transform(), ha="right", fontsize=8.5
        )
    means = [scores[size]["mean"] for size in sizes]
    below = [mean - scores[size]["ci_lower"] for mean, size in zip(means, sizes, strict=True)]
    above = [scores[size]["ci_upper"] - mean for mean, size in zip(means, sizes, strict=True)]
    colour = house.look(0).colour
    # An interval of the bootstrap may miss its own mean by a rounding error.
    errors = [[max(0.0, x) for x in below], [max(0.0, x) for x in above]]
    axes.errorbar(sizes, means, errors, color=colour, marker="o", ms=5, capsize=3, lw=1.8)
    axes.set_ylim(0, 100)
    axes.set_title("Composite score with 95% interval (higher is worse)", fontsize=11)
    axes.set_xlabel("Context size in tokens (log scale)")


def _draw_variation(axes: Axes, result: dict[str, Any]) -> None:
    scores = [result["composite_scores"][size] for size in result["context_sizes"]]
    bars = [score["std"] / score["mean"] if score["mean"] else 0.0 for score in scores]
    _bars(axes, result["context_sizes"], bars)
    axes.axhline(_VARIATION_LIMIT, color=house.INK, ls="--", lw=1.1)
    axes.set_ylim(0, 1.08 * max(_VARIATION_LIMIT * 1.3, *bars))
    axes.set_title("Coefficient of variation of the composite score", fontsize=11)


def _draw_effects(axes: Axes, result: dict[str, Any]) -> None:
    effects = result["effect_sizes"]
    _bars(axes, list(effects), [abs(effect["effect_size"]) for effect in effects.values()])
    for limit, word in ((_MEDIUM, "medium"), (_LARGE, "large")):
        axes.axhline(limit, color=house.INK, ls="--", lw=1.1)
        axes.text(0.005, limit + 0.01, word, transform=axes.get_yaxis_transform(), fontsize=8)
    axes.set_ylim(0, 1.08)
    axes.set_title("Effect against the smallest context (|rank-biserial r|)", fontsize=11)


def _draw_significance(axes: Axes, result: dict[str, Any]) -> None:
    from matplotlib.patches import Patch, Rectangle

    tests = result["significance_tests"]
    for row, key in enumerate(("p_value", "corrected_p_value")):
        for place, test in enumerate(tests.values()):
            p = test[key]
            word = "p < .01" if p < 0.01 else "p < .05" if p < 0.05 else "n.s."
            axes.add_patch(
                Rectangle((place - 0.5, row - 0.5), 1, 1, fc=_COLOURS[word], ec="white", lw=1.5)
            )
            if len(tests) <= 12:
                colour = "white" if p < 0.01 else house.INK
                axes.text(place, row, f"{p:.2g}", ha="center", va="center", color=colour)
    axes.set_xlim(-0.5, max(len(tests), 1) - 0.5)
    axes.set_ylim(1.5, -0.5)
    _name_sizes(axes, list(tests))
    axes.set_yticks([0, 1], ["p", "Holm"])
    axes.tick_params(length=0)
    patches = [Patch(color=colour, label=word) for word, colour in _COLOURS.items()]
    axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1.0, -0.35), ncol=3, fontsize=9)
    axes.set_title("Significance (Mann-Whitney, two-sided)", fontsize=11)


def _bars(axes: Axes, sizes: list[int], values: list[float]) -> None:
    axes.grid(axis="y", color=house.FAINT)
    axes.bar(range(len(sizes)), values, color=house.look(0).colour, width=0.7)
    axes.set_xlim(-0.6, max(len(sizes), 1) - 0.4)
    _name_sizes(axes, sizes)


def _name_sizes(axes: Axes, sizes: list[int]) -> None:
    step = -(-len(sizes) // 9) or 1
    names = [house.token_label(size) if k % step == 0 else "" for k, size in enumerate(sizes)]
    axes.set_xticks(range(len(sizes)), names)
    axes.set_xlabel("Context size in tokens")


_NEAR, _FAR = "#4C9A6A", "#E9ECEF"
_ROW, _MOST_LINES = 0.24, 9


@house.styled()
def plot_convergence(run: Run, match: Convergence, dpi: int) -> bytes:
    """Draw a map of the metrics near the author's, their first sizes and groups; return a PNG."""
    tall = max(4.6, _ROW * len(match.near))
    height = tall + 1.9
    figure = house.blank_page(height)
    figure.set_dpi(dpi)
    _draw_map(house.panel(figure, 2.35, 0.75, 4.0, tall), match)
    _draw_first(house.panel(figure, 7.1, 0.75 + tall - 2.0, 4.0, 2.0), match)
    _write_groups(figure, match, 0.75 + tall - 2.9)
    title = f"Near the author's text: {house.shortened(run.name, 56)}"
    house.write(figure, 0.37, height - 0.3, title, fontsize=14, fontweight="bold")
    words = f"Averages within {match.tolerance:.0%} of the author's figure"
    house.write(figure, 0.37, height - 0.62, words, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure)


def _draw_map(axes: Axes, match: Convergence) -> None:
    from matplotlib.colors import ListedColormap

    cells = [[float(is_near) for is_near in row] for row in match.near.values()]
    colours = ListedColormap([_FAR, _NEAR])
    axes.pcolormesh(cells, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1.2)
    axes.invert_yaxis()
    axes.set_yticks([k + 0.5 for k in range(len(cells))], list(match.near), fontsize=8.5)
    step = -(-len(match.sizes) // 9)
    names = [house.token_label(size) if k % step == 0 else "" for k, size in enumerate(match.sizes)]
    axes.set_xticks([k + 0.5 for k in range(len(names))], names)
    axes.tick_params(length=0)
    axes.set_xlabel("Context size in tokens (green: near)")


def _draw_first(axes: Axes, match: Convergence) -> None:
    from matplotlib.ticker import MaxNLocator

    firsts = [match.first_size(metric) for metric in match.near]
    bins: list[int | None] = [*match.sizes, None]
    axes.bar(range(len(bins)), [firsts.count(size) for size in bins], color=house.look(0).colour)
    step = -(-len(bins) // 7)
    names = ["never" if size is None else house.token_label(size) for size in bins]
    labels = [name if k % step == 0 or name == "never" else "" for k, name in enumerate(names)]
    axes.set_xticks(range(len(bins)), labels, fontsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Metrics by the first size at which they are near", fontsize=11)


def _write_groups(figure: Figure, match: Convergence, top: float) -> None:
    house.write(figure, 7.1, top, "Metrics near at the same sizes", fontsize=11, fontweight="bold")
    groups = [group for group in match.groups() if len(group) > 1]
    lines = [line for group in groups for line in wrap(", ".join(group), 62)] or ["none"]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = ["and others, listed in the JSON file"]
    for place, line in enumerate(lines):
        house.write(figure, 7.1, top - 0.28 - 0.2 * place, line, fontsize=8)
