"""The scores of each format over length, and below them the difference with its band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.experiments.utilization.analysis.wording import two_digits
from contextcliff_dagster.experiments.utilization.report.names import FORMAT_NAMES, scope_name
from contextcliff_dagster.reporting.figures.style import (
    FAINT,
    INK,
    SOFT_INK,
    blank_page,
    draw_markers,
    house_style,
    look,
    png_bytes,
    shortened,
    token_axis,
    token_limits,
    with_air,
)
from contextcliff_dagster.reporting.wording.number_format import tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from contextcliff_dagster.experiments.utilization.curve_results import FormatCurve
    from contextcliff_dagster.experiments.utilization.results import (
        ScopeComparison,
        UtilizationResult,
    )


@house_style()
def plot_formats(result: UtilizationResult) -> bytes:
    """The picture as PNG bytes: a column for each benchmark, all pooled first where there are more.

    Dots are mean scores of a scale with 95% intervals, at the length of the JSON rendering, so that
    the same records lie above each other; formats are set apart a little. Same input, same bytes.
    """
    scopes = [None, *result.benchmarks] if len(result.benchmarks) > 1 else [None]
    rows, columns = math.ceil(len(scopes) / 2), min(2, len(scopes))
    height = 1.7 + 5.2 * rows
    figure = blank_page(height)
    pair = result.comparisons[0] if result.comparisons else None
    left, gap, bottom, top = 0.075, 0.075, 0.95 / height, 1 - 0.8 / height
    wide = (0.985 - left - gap * (columns - 1)) / columns
    tall = (top - bottom) / rows
    for place, scope in enumerate(scopes):
        row, column = divmod(place, columns)
        x, y = left + column * (wide + gap), top - (row + 1) * tall + 0.075 * tall
        split = 0.3 if pair else 0.0
        above = figure.add_axes((x, y + split * tall, wide, (0.87 - split) * tall))
        curves = [curve for curve in result.curves if curve.benchmark == scope]
        title = scope_name(scope, result.benchmarks)
        _scores(above, curves, title, named=not pair)
        if pair is not None:
            below = figure.add_axes((x, y, wide, 0.22 * tall), sharex=above)
            scoped = {one.benchmark: one for one in (*pair.benchmarks, pair.pooled)}.get(scope)
            _difference(below, scoped, result)
    handles = _legend(result)
    figure.text(
        left,
        1 - 0.35 / height,
        f"Score by format: {shortened(result.model, 60)}",
        fontsize=14,
        fontweight="bold",
    )
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(left - 0.01, 1 - 0.42 / height),
        ncol=len(handles),
    )
    figure.text(left, 0.2 / height, _note(result), fontsize=10, color=SOFT_INK, va="bottom")
    return png_bytes(figure, colours=128)


def _scores(axes: Axes, curves: Sequence[FormatCurve], title: str, *, named: bool) -> None:
    seen = [point.scale_tokens for curve in curves for point in curve.scales]
    token_axis(axes, with_air(*token_limits(seen)))
    axes.tick_params(axis="x", labelbottom=named)
    axes.grid(axis="y")
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.set_ylabel("mean score")
    axes.set_title(title, fontsize=12)
    for place, curve in enumerate(curves):
        style = look(place)
        points = [p for p in curve.scales if p.mean is not None]
        if not points:
            continue
        at = [p.scale_tokens * 1.06 ** (place - (len(curves) - 1) / 2) for p in points]
        means = [p.mean or 0.0 for p in points]
        axes.plot(at, means, color=style.colour, ls=style.dash, lw=1.8, zorder=3)
        draw_markers(axes, at, means, style.colour, marker=style.marker, ms=7, mew=0.9, zorder=4)
        for x, p in zip(at, points, strict=True):
            if p.ci_low is not None and p.ci_high is not None:
                axes.plot([x, x], [p.ci_low, p.ci_high], color=style.colour, lw=1.3, zorder=2)


def _difference(axes: Axes, scoped: ScopeComparison | None, result: UtilizationResult) -> None:
    axes.axhline(0, color=SOFT_INK, lw=1.0, zorder=2)
    axes.axhspan(-result.margin, result.margin, color=FAINT, alpha=0.55, lw=0, zorder=0)
    axes.set_ylim(-1.05, 1.05)
    axes.set_yticks([-1, 0, 1])
    axes.grid(axis="y")
    axes.set_ylabel("difference")
    axes.set_xlabel("tokens of the JSON lines (log scale)")
    if scoped is None:
        return
    points = [(s.scale_tokens, s.test) for s in scoped.scales if s.test.difference is not None]
    banded = [(x, t) for x, t in points if t.band_low is not None and t.band_high is not None]
    if banded:
        xs = [x for x, _ in banded]
        lows, highs = (
            [t.band_low or 0.0 for _, t in banded],
            [t.band_high or 0.0 for _, t in banded],
        )
        axes.fill_between(xs, lows, highs, color=SOFT_INK, alpha=0.22, lw=0, zorder=1)
    axes.plot([x for x, _ in points], [t.difference or 0.0 for _, t in points], color=INK, lw=1.6)
    for x, test in points:
        sure = test.p_holm is not None and test.p_holm <= 1 - result.confidence
        marks: dict[str, Any] = {"mfc": INK if sure else "white", "mec": INK, "zorder": 4}
        draw_markers(axes, [x], [test.difference], INK, ms=6, mew=1.2, **marks)
    _parting(axes, scoped)


def _parting(axes: Axes, scoped: ScopeComparison) -> None:
    """The divergence point as a line over both panels' width, its interval as a bar."""
    found = scoped.divergence
    if found.status != "parted" or found.tokens is None:
        return
    low, high = axes.get_xlim()
    ends = (found.low_tokens or low, found.high_tokens or high)
    axes.plot(ends, [-0.93, -0.93], color="#B3261E", lw=4, alpha=0.55, solid_capstyle="butt")
    axes.axvline(found.tokens, color="#B3261E", lw=1.4, zorder=3)
    axes.annotate(
        f"part at {tokens(two_digits(found.tokens))}",
        (found.tokens, -0.93),
        xytext=(4, 5),
        textcoords="offset points",
        color="#B3261E",
        fontsize=10,
        bbox={"boxstyle": "square,pad=0.1", "fc": (1, 1, 1, 0.8), "ec": "none"},
        zorder=6,
    )


def _legend(result: UtilizationResult) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=style.colour, ls=style.dash, marker=style.marker, label=label)
        for style, label in (
            (look(place), FORMAT_NAMES[name]) for place, name in enumerate(result.formats)
        )
    ]


def _note(result: UtilizationResult) -> str:
    if not result.comparisons:
        return "Bars: 95% intervals of single means, over documents."
    pair = result.comparisons[0]
    less = f"{FORMAT_NAMES[pair.a]} less {FORMAT_NAMES[pair.b]}"
    return (
        f"Bars: {result.confidence:.0%} intervals of single means, over documents. Below: {less}, "
        f"with a {result.confidence:.0%} band for all scales at once;\n"
        f"filled: p <= {1 - result.confidence:.2g} after Holm; grey: the margin of "
        f"{result.margin:.2g}; red: where they part, with its interval."
    )
