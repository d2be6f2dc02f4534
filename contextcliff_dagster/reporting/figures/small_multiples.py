"""Many models at a glance: one small panel each on the same axes, in a picture of bounded size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording.number_format import tokens
from contextcliff_dagster.reporting.wording.sentences import labels, measured_range, score_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from contextcliff_dagster.contracts.results import Cliffs

MOST_PANELS = 96
"""Of more models the first are drawn: further panels would be too small to read."""
_LEFT, _GAP, _HEAD, _FOOT, _NAME = 0.62, 0.22, 0.78, 0.62, 0.44
_TALL = 0.98


@house.styled()
def plot_small_multiples(cliffs: Sequence[Cliffs]) -> bytes:
    """PNG bytes, 1,840 pixels wide and at most 4,000 tall: a panel for each of the models.

    Every panel has the same axes: score 0..1 over log length. It shows the bins with their
    intervals, the fitted curve with its band, and the safe cap as a line. In the order given.
    """
    shown = cliffs[:MOST_PANELS]
    columns = 4 if len(shown) <= 24 else 5 if len(shown) <= 60 else 6
    rows = max(1, math.ceil(len(shown) / columns))
    pitch = _NAME + _TALL
    height = _HEAD + rows * pitch + _FOOT
    figure = house.blank_page(height)
    wide = (house.WIDTH - _LEFT - 0.3 - (columns - 1) * _GAP) / columns
    ranges = [found for result in shown if (found := measured_range(result))]
    limits = house.with_air(
        *house.token_limits([float(max(end, 1)) for ends in ranges for end in ends])
    )
    for place, (name, result) in enumerate(zip(labels(cliffs), shown, strict=False)):
        row, column = divmod(place, columns)
        left = _LEFT + column * (wide + _GAP)
        bottom = height - _HEAD - (row + 1) * pitch + 0.06
        axes = house.panel(figure, left, bottom, wide, _TALL)
        below = place + columns >= len(shown)
        house.token_axis(axes, limits, named=below, most=4)
        axes.set_ylim(-0.04, 1.06)
        axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"] if column == 0 else [""] * 3)
        axes.tick_params(length=2, labelsize=8.5)
        axes.grid(axis="y")
        _draw(axes, result, limits)
        top = bottom + _TALL
        house.write(figure, left, top + 0.25, house.shortened(name, int(wide * 12.5)), fontsize=9.5)
        cap = result.safe_cap_tokens
        words = "no safe cap" if cap is None else f"safe cap {tokens(cap)}"
        house.write(figure, left, top + 0.1, words, fontsize=8.5, color=house.SOFT_INK)
    some = f"the first {len(shown)} of {len(cliffs)}" if len(shown) < len(cliffs) else len(cliffs)
    kinds = {score_name(result) for result in cliffs}
    measure = kinds.pop() if len(kinds) == 1 else "score"
    house.write(figure, 0.37, height - 0.27, f"{some} models", fontsize=13, fontweight="bold")
    words = "bins with 95% intervals, fitted curve with its band, line: safe cap"
    if len({result.confidence for result in cliffs}) > 1 or (
        cliffs and cliffs[0].confidence != 0.95
    ):
        words = words.replace("95% ", "")
    house.write(
        figure, 0.37, height - 0.52, f"Mean {measure} over length: {words}", color=house.SOFT_INK
    )
    house.write(figure, 0.37, 0.2, "Tokens of the document (log scale)", fontsize=10)
    return house.png_bytes(figure, 64)


def _draw(axes: Axes, result: Cliffs, limits: tuple[float, float]) -> None:
    colour, curve = house.look(0).colour, result.curve
    for zone in result.zones:
        low, high = max(zone.from_tokens, limits[0]), min(zone.to_tokens, limits[1])
        if high > low:
            axes.axvspan(low, high, color=house.ZONE_SHADE[zone.name], lw=0, zorder=0)
    if len(curve) > 1:
        house.draw_band(axes, curve, colour, 0.16)
        axes.plot([p.tokens for p in curve], [p.mean for p in curve], color=colour, lw=1.3)
    bins = [b for b in result.bins if b.median_tokens and b.mean is not None]
    known = [b for b in bins if b.ci_low is not None and b.ci_high is not None]
    axes.vlines(
        [b.median_tokens or 0 for b in known],
        [b.ci_low or 0.0 for b in known],
        [b.ci_high or 0.0 for b in known],
        color=colour,
        lw=0.9,
        zorder=2,
    )
    house.draw_markers(
        axes, [b.median_tokens for b in bins], [b.mean for b in bins], colour, ms=3.6, mew=0.5
    )
    if result.safe_cap_tokens is not None:
        axes.axvline(result.safe_cap_tokens, color=house.INK, lw=1.3, zorder=3)
