"""The effects of the other conditions as a dot plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.utilization.analysis.wording import format_name
from contextcliff_dagster.reporting.figures import house

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contextcliff_dagster.extensions.utilization.results import Effect, UtilizationResult


@house.styled()
def plot_effects(result: UtilizationResult) -> bytes | None:
    """The picture as PNG bytes; None without an effect that was measured.

    One row per condition: its difference from the reference with its interval, by format where the
    result has them apart. Same input, same bytes.
    """
    effects = [one for one in result.effects if one.difference is not None]
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
    ends = [abs(end) for one in effects for end in (one.ci_low, one.ci_high, one.difference) if end]
    most = min(1.0, 1.1 * max([0.2, *ends]))
    axes.set_xlim(-most, most)
    axes.set_xlabel("difference of the mean score from the reference")
    for row, one in enumerate(effects):
        if row and (one.factor, one.level) != (effects[row - 1].factor, effects[row - 1].level):
            axes.axhline(row - 0.5, color=house.FAINT, lw=0.9, zorder=0)
        place = result.formats.index(one.format) if one.format in result.formats else None
        style = None if place is None else house.look(place)
        colour, marker = (house.INK, "o") if style is None else (style.colour, style.marker)
        if one.ci_low is not None and one.ci_high is not None:
            axes.plot([one.ci_low, one.ci_high], [row, row], color=colour, lw=1.6, zorder=2)
        sure = one.p_holm is not None and one.p_holm <= 1 - result.confidence
        marks: dict[str, Any] = {"marker": marker, "ms": 7.5, "mew": 1.3 if not sure else 0.8}
        house.draw_markers(
            axes, [one.difference], [row], colour, hollow=not sure, zorder=3, **marks
        )
    title = f"What else changes the score: {house.shortened(result.model, 50)}"
    house.write(figure, 0.3, tall + 1.6, title, fontsize=14, fontweight="bold")
    note = (
        f"{result.confidence:.0%} intervals of single differences, over documents; "
        f"filled: p <= {1 - result.confidence:.2g} after Holm over all rows."
    )
    house.write(figure, 0.3, tall + 1.2, note, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=64)


def _labels(effects: Sequence[Effect]) -> list[str]:
    """The condition where it begins, below it the formats alone."""
    labels: list[str] = []
    before = None
    for one in effects:
        reference = one.reference.replace("other benchmarks", "others")  # room for a format's name
        named = f"{one.factor}: {one.level} vs. {reference}"
        name = None if one.format is None else format_name(one.format)
        if (one.factor, one.level) == before and name is not None:
            labels.append(name)
        else:
            labels.append(named if name is None else f"{named} ({name})")
        before = one.factor, one.level
    return labels
