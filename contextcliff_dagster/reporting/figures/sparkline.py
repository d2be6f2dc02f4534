"""A small picture of one model's curve for the Dagster UI: curve, bins, zones and the safe cap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures.style import (
    INK,
    SOFT_INK,
    ZONE_SHADE,
    house_style,
    look,
    png_bytes,
)
from contextcliff_dagster.reporting.wording.number_format import tokens

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

_DPI, _WIDTH, _HEIGHT = 100, 6.4, 1.28
_COLOURS = 32


def sparkline(cliffs: Cliffs) -> bytes:
    """PNG bytes of at most 10 KB, 640 x 128 pixels: score (0 to 1) against log length of a model.

    Labels name the shortest and longest measured length and the safe cap; what the result lacks is
    left out.
    """
    from matplotlib.figure import Figure

    with house_style():
        figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, facecolor="white")
        axes = figure.add_axes((0.012, 0.2, 0.976, 0.76))
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_ylim(-0.08, 1.12)
        axes.set_yticks([])
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        bins = [b for b in cliffs.bins if b.median_tokens and b.mean is not None]
        seen = [v for b in bins for v in (b.min_tokens, b.median_tokens, b.max_tokens) if v]
        low, high = (min(seen), max(seen)) if seen else (1.0, 10.0)
        if high <= low * 1.01:
            low, high = low / 1.5, high * 1.5
        axes.set_xlim(low / 1.03, high * 1.03)
        axes.set_xticks([])
        colour = look(0).colour
        for zone in cliffs.zones:
            start, stop = max(zone.from_tokens, low / 1.03), min(zone.to_tokens, high * 1.03)
            if stop > start:
                axes.axvspan(start, stop, color=ZONE_SHADE[zone.name], lw=0)
        curve = cliffs.curve
        if len(curve) > 1:
            at = [p.tokens for p in curve]
            lower, upper = [p.ci_low for p in curve], [p.ci_high for p in curve]
            axes.fill_between(at, lower, upper, color=colour, alpha=0.14, lw=0)
            axes.plot(at, [p.mean for p in curve], color=colour, lw=2)
        axes.plot(
            [b.median_tokens or 0 for b in bins],
            [b.mean or 0.0 for b in bins],
            ls="none",
            marker="o",
            ms=4.5,
            mfc=colour,
            mec="white",
            mew=0.7,
        )
        if seen:
            for x, text, side in (
                (0.012, tokens(low), "left"),
                (0.988, f"{tokens(high)} tokens", "right"),
            ):
                figure.text(x, 0.09, text, ha=side, va="center", fontsize=8.5, color=SOFT_INK)
        cap = cliffs.safe_cap_tokens
        if cap is not None:
            axes.axvline(cap, color=INK, lw=1.6)
            inside = min(max(cap, low), high)  # a cap beyond the data is named at the edge
            place = axes.transAxes.inverted().transform(axes.transData.transform((inside, 0)))[0]
            x = 0.012 + 0.976 * place
            figure.text(
                min(max(x, 0.16), 0.8),
                0.09,
                f"safe cap {tokens(cap)}",
                ha="center",
                va="center",
                fontsize=8.5,
                fontweight="bold",
                color=INK,
            )
        else:
            figure.text(
                0.5,
                0.09,
                "no safe cap supported",
                ha="center",
                va="center",
                fontsize=8.5,
                color=INK,
            )
        return png_bytes(figure, _COLOURS)
