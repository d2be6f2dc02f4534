"""Pictures of differences: two formats by scale, and a dot plot of other conditions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.utilization.analysis.wording import (
    beyond_zero,
    capitalised,
    format_name,
)
from contextcliff_dagster.extensions.utilization.report.names import scale_axis, scope_name
from contextcliff_dagster.extensions.utilization.scales import scale_tokens
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import level, tokens, two_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from contextcliff_dagster.extensions.utilization.results import (
        Divergence,
        Effect,
        FormatComparison,
        ScopeComparison,
        UtilizationResult,
    )

_PARTING, _MARGIN = "#B3261E", "#8A5A00"
_LEFT, _GAP, _FULL = 0.95, 0.85, 10.25
_TALL, _ROW, _FOOT, _HEAD = 2.5, 3.55, 1.3, 1.2


@house.styled()
def plot_difference(pair: FormatComparison, result: UtilizationResult) -> bytes:
    """Return the picture as PNG, with a panel for all benchmarks pooled and one for each.

    The same input gives the same bytes.
    """
    scopes = [pair.pooled, *pair.benchmarks]
    columns = min(2, len(scopes))
    rows = math.ceil(len(scopes) / columns)
    wide = (_FULL - _GAP * (columns - 1)) / columns
    height = _HEAD + _ROW * rows - (_ROW - _TALL) + _FOOT
    figure = house.blank_page(height)
    ends = [e for s in scopes for at in s.scales for e in (at.test.band_low, at.test.band_high)]
    limit = min(1.02, 1.12 * max([2.0 * result.margin, *(abs(end) for end in ends if end)]))
    for place, scope in enumerate(scopes):
        row, column = divmod(place, columns)
        bottom = height - _HEAD - row * _ROW - _TALL
        axes = house.panel(figure, _LEFT + column * (wide + _GAP), bottom, wide, _TALL)
        scale_axis(
            axes, result.scales, [scale_tokens(scale) for scale in result.scales], 11 - 2 * columns
        )
        axes.set_ylim(-1.25 * limit, 1.25 * limit)  # with room for the divergence point
        axes.set_title(scope_name(scope.benchmark, result.benchmarks), fontsize=12)
        if column == 0:
            axes.set_ylabel("difference in score")
        if place + columns >= len(scopes):
            axes.set_xlabel("tokens of the JSON lines")
        _draw(axes, scope, result.margin)
        _part(axes, scope.divergence, above=scope.divergence.better == pair.b)
    a, b = format_name(pair.a), format_name(pair.b)
    title = f"{capitalised(a)} minus {b}: {house.shortened(result.model, 50)}"
    house.write(figure, 0.3, height - 0.3, title, fontsize=14, fontweight="bold")
    above = f"Above 0 the score is higher as {a}, below 0 as {b}."
    house.write(figure, 0.3, height - 0.64, above, fontsize=10.5, color=house.SOFT_INK)
    notes = (
        f"Grey: {level(result.confidence)} band for all scales at once; a mark is filled where the "
        "band excludes 0.",
        f"Dashed: the margin of {result.margin:g}. Red: where the formats start to differ by "
        "more than the margin, with its interval.",
    )
    for line, text in enumerate(notes):
        house.write(figure, 0.3, 0.46 - 0.24 * line, text, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=96)


def _draw(axes: Axes, scope: ScopeComparison, margin: float) -> None:
    axes.axhline(0, color=house.SOFT_INK, lw=1.0, zorder=2)
    for end in (-margin, margin):
        axes.axhline(end, color=_MARGIN, lw=1.1, ls=(0, (4, 2.5)), zorder=2)
    axes.grid(axis="y")
    points = [(s.scale_tokens, s.test.difference, s.test) for s in scope.scales if s.test.n]
    at = [x for x, *_ in points]
    lows, highs = [t.band_low or 0.0 for *_, t in points], [t.band_high or 0.0 for *_, t in points]
    axes.fill_between(at, lows, highs, color=house.SOFT_INK, alpha=0.2, lw=0, zorder=1)
    axes.vlines(at, lows, highs, color=house.SOFT_INK, lw=1.3, alpha=0.7, zorder=2)
    axes.plot(at, [d or 0.0 for _, d, _ in points], color=house.INK, lw=1.5, zorder=3)
    for x, difference, test in points:
        significant = beyond_zero(test.band_low, test.band_high) != 0
        house.draw_markers(
            axes, [x], [difference], house.INK, hollow=not significant, ms=7, mew=1.3, zorder=4
        )
    if not points:
        axes.text(0.5, 0.5, "nothing to compare", transform=axes.transAxes, ha="center")


def _part(axes: Axes, found: Divergence, *, above: bool) -> None:
    """Draw the divergence point as a line through the panel, and its interval as a bar."""
    if found.better is None:
        return
    left, right = axes.get_xlim()
    low, high = found.low_tokens or left, found.high_tokens or right
    ends = axes.get_ylim()
    y = 0.92 * ends[above]
    if found.status == "at_smallest":
        words, x = "diverge at the smallest scale", found.shown_at_tokens or round(left)
        low = left
    else:
        x = found.tokens or found.shown_at_tokens or round(left)
        limits = [tokens(end, "open") for end in (found.low_tokens, found.high_tokens)]
        words = f"diverge at {tokens(two_digits(x))} [{limits[0]} to {limits[1]}]"
    axes.plot([low, high], [y, y], color=_PARTING, lw=4.5, alpha=0.55, solid_capstyle="butt")
    axes.plot([x, x], ends, color=_PARTING, lw=1.5, zorder=3)
    middle = math.sqrt(left * right)
    axes.annotate(
        words,
        (x, y),
        xytext=(5 if x < middle else -5, -7 if above else 7),
        textcoords="offset points",
        ha="left" if x < middle else "right",
        va="top" if above else "bottom",
        color=_PARTING,
        fontsize=10,
        bbox={"boxstyle": "square,pad=0.1", "fc": (1, 1, 1, 0.85), "ec": "none"},
        zorder=6,
    )


@house.styled()
def plot_effects(result: UtilizationResult) -> bytes | None:
    """Return the picture as PNG; None without a measured effect.

    Each row shows a condition's difference from its reference with an interval, by format if the
    result has separate ones. The same input gives the same bytes.
    """
    effects = [effect for effect in result.effects if effect.difference is not None]
    if not effects:
        return None
    tall = 0.36 * len(effects)
    figure = house.blank_page(tall + 2.0)
    axes = house.panel(figure, 4.1, 0.85, 7.1, tall)
    axes.set_ylim(len(effects) - 0.5, -0.5)
    axes.set_yticks(range(len(effects)), _labels(effects))
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.axvline(0, color=house.SOFT_INK, lw=1.0, zorder=1)
    axes.grid(axis="x")
    ends = [abs(end) for e in effects for end in (e.ci_low, e.ci_high, e.difference) if end]
    limit = min(1.0, 1.1 * max([0.2, *ends]))
    axes.set_xlim(-limit, limit)
    axes.set_xlabel("difference in mean score from the reference")
    for row, item in enumerate(effects):
        if row and (item.factor, item.level) != (effects[row - 1].factor, effects[row - 1].level):
            axes.axhline(row - 0.5, color=house.FAINT, lw=0.9, zorder=0)
        place = result.formats.index(item.format) if item.format in result.formats else None
        style = None if place is None else house.look(place)
        colour, marker = (house.INK, "o") if style is None else (style.colour, style.marker)
        sure = item.p_holm is not None and item.p_holm <= 1 - result.confidence
        limits = item.ci_low, item.ci_high
        at = row, item.difference or 0.0
        house.draw_difference(axes, at, limits, colour, sure=sure, across=True, marker=marker)
    title = f"What else changes the score: {house.shortened(result.model, 50)}"
    house.write(figure, 0.3, tall + 1.6, title, fontsize=14, fontweight="bold")
    note = (
        f"{result.confidence:.0%} intervals of single differences, over documents; "
        f"filled: p <= {1 - result.confidence:.2g} after Holm over all rows."
    )
    house.write(figure, 0.3, tall + 1.2, note, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=64)


def _labels(effects: Sequence[Effect]) -> list[str]:
    """Return the row labels: a condition on its first row, only the format on the others."""
    labels: list[str] = []
    before = None
    for e in effects:
        reference = e.reference.replace("other benchmarks", "others")  # room for a format's name
        label = f"{e.factor}: {e.level} vs. {reference}"
        name = None if e.format is None else format_name(e.format)
        if (e.factor, e.level) == before and name is not None:
            labels.append(name)
        else:
            labels.append(label if name is None else f"{label} ({name})")
        before = e.factor, e.level
    return labels
