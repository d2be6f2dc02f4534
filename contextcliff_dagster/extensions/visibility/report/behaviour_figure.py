"""Picture of the effect of each axis on search behaviour: a grid of comparisons and measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.visibility.report.names import (
    BEHAVIOUR,
    behaviour_rows,
    effect_name,
    is_significant,
)
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import difference, score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from contextcliff_dagster.extensions.visibility.results import (
        AxisEffect,
        Cell,
        VisibilityResult,
    )

_PITCH, _HEAD, _FOOT = 0.4, 1.45, 0.75
_LEFT, _WIDE = 3.75, 7.45
_UP, _DOWN = (0.851, 0.451, 0.051), (0.043, 0.325, 0.580)
_FULL = 0.4
"""Difference from which a cell is fully coloured."""


@house.styled()
def plot_behaviour(result: VisibilityResult) -> bytes | None:
    """Return the picture as PNG bytes; None if no effect on behaviour was measured.

    Rows are comparisons and columns are measures; the first row shows means over all combinations.
    Differences significant after Holm are coloured and bold. The same input gives the same bytes.
    """
    rows = behaviour_rows(result)
    if not rows:
        return None
    tall = _PITCH * (len(rows) + 1)
    height = _HEAD + tall + _FOOT
    figure = house.blank_page(height)
    axes = house.panel(figure, _LEFT, _FOOT, _WIDE, tall)
    _grid(axes, len(rows) + 1)
    y = _FOOT + tall - 0.5 * _PITCH
    house.write(figure, 0.3, y, "mean over combinations", fontsize=10.5, fontweight="bold")
    for column, mean in enumerate(mean_behaviour(result.cells)):
        axes.text(column + 0.5, 0.5, score(mean, "–"), ha="center", va="center", color=house.INK)
    for row, effects in enumerate(rows, start=1):
        name = effect_name(next(iter(effects.values())))
        house.write(figure, 0.3, y - row * _PITCH, house.shortened(name, 46), fontsize=10)
        for column, outcome in enumerate(BEHAVIOUR):
            _cell(axes, row, column, effects.get(outcome), result.confidence)
    title = f"How the model searches: {house.shortened(result.model, 50)}"
    house.write(figure, 0.3, height - 0.3, title, fontsize=14, fontweight="bold")
    above = "Effect of each comparison on each measure; measures are shares from 0 to 1."
    house.write(figure, 0.3, height - 0.64, above, fontsize=10.5, color=house.SOFT_INK)
    note = (
        "Coloured and bold: significant after Holm over all of these; orange higher, blue lower. "
        "Fallback steps count only in the last two columns."
    )
    house.write(figure, 0.3, 0.3, note, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=64)


def mean_behaviour(cells: Sequence[Cell]) -> list[float | None]:
    """Return the mean of each measure over the combinations that have it."""
    means: list[float | None] = []
    for outcome in BEHAVIOUR:
        values = [mean for cell in cells if (mean := cell.means.get(outcome)) is not None]
        means.append(sum(values) / len(values) if values else None)
    return means


def _grid(axes: Axes, rows: int) -> None:
    axes.set_xlim(0, len(BEHAVIOUR))
    axes.set_ylim(rows, 0)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.set_xticks(
        [place + 0.5 for place in range(len(BEHAVIOUR))],
        [_HEADS.get(outcome, outcome) for outcome in BEHAVIOUR],
        fontsize=10,
    )
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for row in range(1, rows):
        axes.axhline(row, color=house.FAINT, lw=0.9 if row > 1 else 1.6, zorder=0)


_HEADS = {
    "clamped_changes": "clamped\nchanges",
    "unparsable_share": "unparsable\nsteps",
    "fallback_share": "fallback\nsteps",
}


def _cell(axes: Axes, row: int, column: int, effect: AxisEffect | None, confidence: float) -> None:
    from matplotlib.patches import Rectangle

    if effect is None or effect.difference is None:
        axes.text(column + 0.5, row + 0.5, "–", ha="center", va="center", color=house.SOFT_INK)
        return
    sure = is_significant(effect, confidence)
    if sure:
        shade = 0.18 + 0.42 * min(1.0, abs(effect.difference) / _FULL)
        colour = _UP if effect.difference > 0 else _DOWN
        place = (column + 0.04, row + 0.08)
        axes.add_patch(Rectangle(place, 0.92, 0.84, fc=(*colour, shade), ec="none"))
    axes.text(
        column + 0.5,
        row + 0.5,
        difference(effect.difference),
        ha="center",
        va="center",
        color=house.INK if sure else house.SOFT_INK,
        fontweight="bold" if sure else "normal",
    )
