"""A small picture of one model's curve for the Dagster UI: curve, bins, zones and the safe cap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.figures.style import (
    INK,
    SOFT_INK,
    ZONE_SHADE,
    draw_band,
    draw_markers,
    house_style,
    look,
    png_bytes,
)
from contextcliff_dagster.reporting.wording.number_format import tokens

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

_LEFT, _WIDE = 0.012, 0.976
_COLOURS = 32


@house_style()
def sparkline(cliffs: Cliffs) -> bytes:
    """PNG bytes of at most 10 KB, 640 x 128 pixels: score (0 to 1) against log length of a model.

    Labels name the shortest and longest measured length and the safe cap; what the result lacks is
    left out.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 1.28), dpi=100, facecolor="white")
    axes = figure.add_axes((_LEFT, 0.2, _WIDE, 0.76))
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_ylim(-0.08, 1.12)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    bins = [b for b in cliffs.bins if b.median_tokens and b.mean is not None]
    seen = [v for b in bins for v in (b.min_tokens, b.median_tokens, b.max_tokens) if v]
    low, high = (min(seen), max(seen)) if seen else (1.0, 10.0)
    if high <= low * 1.01:
        low, high = low / 1.5, high * 1.5
    axes.set_xlim(low / 1.03, high * 1.03)
    axes.set_xticks([])
    for zone in cliffs.zones:
        start, stop = max(zone.from_tokens, low / 1.03), min(zone.to_tokens, high * 1.03)
        if stop > start:
            axes.axvspan(start, stop, color=ZONE_SHADE[zone.name], lw=0)
    colour, curve = look(0).colour, cliffs.curve
    if len(curve) > 1:
        draw_band(axes, curve, colour, 0.14)
        axes.plot([p.tokens for p in curve], [p.mean for p in curve], color=colour, lw=2)
    medians, means = [b.median_tokens for b in bins], [b.mean for b in bins]
    draw_markers(axes, medians, means, colour, ms=4.5, mew=0.7)

    def label(x: float, text: str, side: str, **look: Any) -> None:
        figure.text(x, 0.09, text, ha=side, va="center", fontsize=8.5, **look)

    if seen:
        label(_LEFT, tokens(low), "left", color=SOFT_INK)
        label(_LEFT + _WIDE, f"{tokens(high)} tokens", "right", color=SOFT_INK)
    cap = cliffs.safe_cap_tokens
    if cap is None:
        label(0.5, "no safe cap supported", "center")
    else:
        axes.axvline(cap, color=INK, lw=1.6)
        inside = min(max(cap, low), high)  # a cap beyond the data is named at the edge
        place = axes.transAxes.inverted().transform(axes.transData.transform((inside, 0)))[0]
        x = min(max(_LEFT + _WIDE * place, 0.16), 0.8)
        label(x, f"safe cap {tokens(cap)}", "center", fontweight="bold")
    return png_bytes(figure, _COLOURS)
