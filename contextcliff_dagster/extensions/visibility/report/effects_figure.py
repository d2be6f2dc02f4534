"""Picture of each axis's effect on the regret: differences, intervals, margin, verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.visibility.report.names import (
    GROUPS,
    VERDICT_WORDS,
    effect_name,
    group_of,
    is_significant,
)
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import count, level, with_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contextcliff_dagster.extensions.visibility.results import AxisEffect, VisibilityResult

_PITCH, _HEAD, _FOOT = 0.34, 1.1, 1.2
_LEFT, _WIDE = 3.75, 4.35


@house.styled()
def plot_effects(result: VisibilityResult) -> bytes | None:
    """Return the picture as PNG bytes; None if no effect on regret was measured.

    Rows are comparisons, grouped by what varies: information, content, length or course of the run.
    Filled marks are significant after Holm; a band shows the margin. The same input gives the same
    bytes.
    """
    effects = [e for e in result.effects if e.outcome == "regret" and e.difference is not None]
    if not effects:
        return None
    rows = _rows(effects)
    tall = _PITCH * len(rows)
    height = _HEAD + tall + _FOOT
    figure = house.blank_page(height)
    axes = house.panel(figure, _LEFT, _FOOT, _WIDE, tall)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    ends = [abs(x) for e in effects for x in (e.difference, e.ci_low, e.ci_high) if x is not None]
    limit = min(2.0, 1.08 * max([1.6 * result.margin, *ends]))
    axes.set_xlim(-limit, limit)
    axes.grid(axis="x")
    axes.axvspan(-result.margin, result.margin, color=house.FAINT, alpha=0.55, lw=0, zorder=0)
    axes.axvline(0, color=house.SOFT_INK, lw=1.0, zorder=1)
    axes.set_xlabel("difference in regret")
    axes.text(-limit, 1.0, "◀ less regret", va="bottom", color=house.SOFT_INK, fontsize=10,
              transform=axes.get_xaxis_transform())  # fmt: skip
    axes.text(limit, 1.0, "more regret ▶", va="bottom", ha="right", color=house.SOFT_INK,
              fontsize=10, transform=axes.get_xaxis_transform())  # fmt: skip
    for place, row in enumerate(rows):
        y = _FOOT + tall - (place + 0.5) * _PITCH
        if isinstance(row, str):
            house.write(figure, 0.3, y, row, fontsize=10.5, fontweight="bold")
            continue
        sure = is_significant(row, result.confidence)
        weight = "bold" if sure else "normal"
        house.write(
            figure, 0.5, y, house.shortened(effect_name(row), 46), fontsize=10, fontweight=weight
        )
        words = with_limits(row.difference, row.ci_low, row.ci_high)
        house.write(figure, _LEFT + _WIDE + 0.15, y, words, fontsize=10, fontweight=weight)
        verdict = VERDICT_WORDS[row.verdict]
        house.write(figure, _LEFT + _WIDE + 2.05, y, verdict, fontsize=10, fontweight=weight)
        at = place, row.difference or 0.0
        colour = house.look(0).colour if sure else house.INK
        house.draw_difference(axes, at, (row.ci_low, row.ci_high), colour, sure=sure, across=True)
    title = f"Effect of each axis on the regret: {house.shortened(result.model, 44)}"
    house.write(figure, 0.3, height - 0.3, title, fontsize=14, fontweight="bold")
    n = effects[0]
    above = f"Paired runs differ only in that axis; {count(n.n_clusters, 'benchmark-seed')}."
    house.write(figure, 0.3, height - 0.64, above, fontsize=10.5, color=house.SOFT_INK)
    notes = (
        f"Bars: {level(result.confidence)} intervals of single comparisons. Filled and bold: "
        "significant after Holm over all effects.",
        f"Grey band: the margin of {result.margin:g}. No benefit: a benefit of the margin is "
        "ruled out.",
    )
    for line, text in enumerate(notes):
        house.write(figure, 0.3, 0.44 - 0.22 * line, text, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=64)


def _rows(effects: Sequence[AxisEffect]) -> list[str | AxisEffect]:
    rows: list[str | AxisEffect] = []
    for name in GROUPS:
        group = [effect for effect in effects if group_of(effect) == name]
        rows += [name, *group] if group else []
    return rows
