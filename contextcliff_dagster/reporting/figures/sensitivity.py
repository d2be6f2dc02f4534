"""The picture of sensitivity: the safe cap and the half drop under every other choice, by model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures.style import (
    DPI,
    FAINT,
    INK,
    SOFT_INK,
    drawable,
    house_style,
    look,
    png_bytes,
    shortened,
    token_axis,
    token_label,
    token_limits,
    token_ticks,
    with_air,
)
from contextcliff_dagster.reporting.wording.number_format import level, tokens
from contextcliff_dagster.reporting.wording.sentences import (
    VERDICT_PHRASE,
    labels,
    measured_range,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.cliffs import SensitivityRow

_WIDTH, _LEFT, _RIGHT = 11.5, 3.35, 2.35
_HEAD, _TITLE, _ROW, _FOOT = 0.62, 0.46, 0.27, 0.90
_NAME, _WORDS = 40, 34


def plot_sensitivity(cliffs: Sequence[Cliffs]) -> bytes | None:
    """The picture as PNG bytes, a panel per model; ``None`` where no result varied anything.

    ``cliffs``: results of the contract. Same input, same bytes.
    """
    shown = [
        (name, result)
        for name, result in zip(labels(cliffs), cliffs, strict=True)
        if result.sensitivity
    ]
    if not shown:
        return None
    with house_style():
        return png_bytes(_figure(shown))


def _figure(shown: Sequence[tuple[str, Cliffs]]) -> Figure:
    from matplotlib.figure import Figure

    rows = [len(result.sensitivity) for _, result in shown]
    height = _HEAD + _FOOT + sum(_TITLE + _ROW * (n + 0.6) for n in rows)
    figure = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor="white")
    figure.text(
        0.18 / _WIDTH,
        1 - 0.34 / height,
        "Safe cap and midpoint of the drop, one choice changed at a time",
        fontsize=14,
        fontweight="bold",
        va="center",
    )
    limits = _limits([result for _, result in shown])
    top = height - _HEAD
    for row, (name, result) in enumerate(shown):
        tall = _ROW * (rows[row] + 0.6)
        box = (
            _LEFT / _WIDTH,
            (top - _TITLE - tall) / height,
            (_WIDTH - _LEFT - _RIGHT) / _WIDTH,
            tall / height,
        )
        _panel(figure.add_axes(box), name, result, row, limits, last=row == len(shown) - 1)
        top -= _TITLE + tall
    figure.text(
        0.18 / _WIDTH,
        0.16 / height,
        "Filled: safe cap. Hollow: midpoint of the drop. Line: the cap as reported. "
        "No row is a better answer than the first.",
        fontsize=9.5,
        color=SOFT_INK,
        va="center",
    )
    return figure


def _limits(results: Sequence[Cliffs]) -> tuple[float, float]:
    seen = [
        v
        for r in results
        for row in r.sensitivity
        for v in (row.safe_cap_tokens, row.location_tokens)
        if v
    ]
    seen += [v for r in results for v in measured_range(r) or () if v]
    return with_air(*token_limits(seen))


def _panel(
    axes: Axes,
    name: str,
    result: Cliffs,
    row: int,
    limits: tuple[float, float],
    *,
    last: bool,
) -> None:
    rows, style = result.sensitivity, look(row)
    token_axis(axes, limits, without=("top", "right", "left"))
    axes.set_ylim(len(rows) - 0.2, -0.8)
    ticks = token_ticks(*limits)
    axes.set_xticks(ticks, [token_label(t) if last else "" for t in ticks])
    axes.set_yticks([])
    axes.grid(axis="x", color=FAINT, lw=0.7)
    title = shortened(name, _NAME)
    sure = f"tolerance {level(result.tolerance)}, confidence {level(result.confidence)}"
    axes.set_title(f"{title}: {sure}", loc="left", fontsize=11, fontweight="bold", pad=6)
    if last:
        axes.set_xlabel("tokens of the document")
    if (cap := rows[0].safe_cap_tokens) is not None:
        axes.axvline(cap, color=style.colour, lw=1.2, alpha=0.6, zorder=1)
    before = None
    for place, item in enumerate(rows):
        factor = item.factor
        if factor != before and before is not None:
            axes.axhline(place - 0.5, color=FAINT, lw=0.9, zorder=0, clip_on=False)
        if factor != before:
            _beside(axes, place, -0.54, factor, weight="bold")
        _beside(axes, place, -0.36, shortened(item.value, _WORDS))
        _marks(axes, place, item, style.colour)
        before = factor


def _marks(axes: Axes, place: int, item: SensitivityRow, colour: str) -> None:
    """Cap, half drop and verdict of one row; the choice of the result in ink."""
    shade = INK if item.reported else colour
    cap, half = item.safe_cap_tokens, item.location_tokens
    if half is not None:
        axes.plot(half, place, marker="o", ms=6, mfc="white", mec=shade, mew=1.3, ls="none")
    if cap is not None:
        axes.plot(cap, place, marker="o", ms=6.5, mfc=shade, mec="white", mew=0.6, ls="none")
    said = f"{tokens(cap)}, " if cap is not None else "no cap, "
    _beside(axes, place, 1.02, said + drawable(VERDICT_PHRASE[item.verdict]), shade=shade)


def _beside(
    axes: Axes, place: int, at: float, text: str, *, weight: str = "normal", shade: str = INK
) -> None:
    axes.text(
        at,
        place,
        text,
        transform=axes.get_yaxis_transform(),
        ha="left",
        va="center",
        fontsize=9.5,
        fontweight=weight,
        color=shade,
    )
