"""Picture of sensitivity: safe cap and midpoint of the drop under each other setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.figures import house

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from contextcliff_dagster.contracts.results import Cliffs

_LEFT, _RIGHT = 3.35, 2.35
_HEAD, _TITLE, _ROW, _FOOT = 0.62, 0.46, 0.27, 0.90
_NAME, _WORDS = 40, 34


@house.styled()
def plot_sensitivity(cliffs: Sequence[Cliffs]) -> bytes | None:
    """Return the picture as PNG bytes, one panel per model; None if no result has sensitivity.

    ``cliffs``: contract results. Same input, same bytes.
    """
    models = [
        pair for pair in zip(wording.labels(cliffs), cliffs, strict=True) if pair[1].sensitivity
    ]
    if not models:
        return None
    tall = [_ROW * (len(result.sensitivity) + 0.6) for _, result in models]
    top = _FOOT + sum(_TITLE + height for height in tall)
    figure = house.blank_page(top + _HEAD)
    heading = "Safe cap and midpoint of the drop, one choice changed at a time"
    house.write(figure, 0.18, top + _HEAD - 0.34, heading, fontsize=14, fontweight="bold")
    limits = _limits([result for _, result in models])
    for row, (name, result) in enumerate(models):
        bottom = top - _TITLE - tall[row]
        axes = house.panel(figure, _LEFT, bottom, house.WIDTH - _LEFT - _RIGHT, tall[row])
        _draw(axes, name, result, house.look(row).colour, limits, last=row == len(models) - 1)
        top = bottom
    note = (
        "Filled: safe cap. Hollow: midpoint of the drop. Line: the cap as reported. "
        "No row is a better answer than the first."
    )
    house.write(figure, 0.18, 0.16, note, fontsize=9.5, color=house.SOFT_INK)
    return house.png_bytes(figure)


def _limits(results: Sequence[Cliffs]) -> tuple[float, float]:
    rows = [row for result in results for row in result.sensitivity]
    lengths = [v for row in rows for v in (row.safe_cap_tokens, row.location_tokens) if v]
    lengths += [v for result in results for v in wording.measured_range(result) or () if v]
    return house.with_air(*house.token_limits(lengths))


def _draw(
    axes: Axes,
    name: str,
    result: Cliffs,
    colour: str,
    limits: tuple[float, float],
    *,
    last: bool,
) -> None:
    """Draw one model's rows, with the row of the reported settings in the ink colour."""
    rows = result.sensitivity
    house.token_axis(axes, limits, named=last)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(rows) - 0.2, -0.8)
    axes.set_yticks([])
    axes.grid(axis="x")
    tolerance, confidence = wording.level(result.tolerance), wording.level(result.confidence)
    title = f"{house.shortened(name, _NAME)}: tolerance {tolerance}, confidence {confidence}"
    axes.set_title(title, fontsize=11, pad=6)
    if last:
        axes.set_xlabel("tokens of the document")
    if (reported := rows[0].safe_cap_tokens) is not None:
        axes.axvline(reported, color=colour, lw=1.2, alpha=0.6, zorder=1)

    def words(row: int, at: float, text: str, **look: Any) -> None:
        place = axes.get_yaxis_transform()
        axes.text(at, row, text, transform=place, va="center", fontsize=9.5, **look)

    before = None
    for row, item in enumerate(rows):
        if item.factor != before:
            if before is not None:
                axes.axhline(row - 0.5, color=house.FAINT, lw=0.9, zorder=0, clip_on=False)
            words(row, -0.54, item.factor, fontweight="bold")
            before = item.factor
        words(row, -0.36, house.shortened(item.value, _WORDS))
        shade = house.INK if item.reported else colour
        cap, half = item.safe_cap_tokens, item.location_tokens
        if half is not None:
            house.draw_markers(axes, half, row, shade, hollow=True, ms=6, mew=1.3)
        if cap is not None:
            house.draw_markers(axes, cap, row, shade, ms=6.5, mew=0.6)
        caption = "no cap" if cap is None else wording.tokens(cap)
        verdict = house.drawable(wording.VERDICT_PHRASE[item.verdict])
        words(row, 1.02, f"{caption}, {verdict}", color=shade)
