"""The shifted cliff: two measurements' scores over length, and their difference below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures.style import (
    DPI,
    FAINT,
    INK,
    SOFT_INK,
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
from contextcliff_dagster.reporting.wording.number_format import tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from contextcliff_dagster.contracts.results import Cliffs, Comparison
    from contextcliff_dagster.contracts.results.comparison import ComparedSide, DifferingBin

_WIDTH, _HEIGHT = 11.5, 7.6


def plot_shift(
    comparison: Comparison,
    cliffs: Sequence[Cliffs | None] = (None, None),
) -> bytes:
    """The picture as PNG bytes, 1,840 x 1,216 pixels.

    ``comparison``: of `schemas/comparison.schema.json`; ``cliffs``: the results of A and B with
    their fitted curves, or None. Same input, same bytes.
    """
    with house_style():
        return png_bytes(_figure(comparison, cliffs))


def _figure(comparison: Comparison, cliffs: Sequence[Cliffs | None]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=DPI, facecolor="white")
    above = figure.add_axes((0.08, 0.42, 0.89, 0.45))
    below = figure.add_axes((0.08, 0.14, 0.89, 0.23), sharex=above)
    limits = _limits(comparison)
    for axes in (above, below):
        token_axis(axes, limits)
        axes.grid(axis="y", color=FAINT, lw=0.7)
    ticks = token_ticks(*limits)
    below.set_xticks(ticks, [token_label(tick) for tick in ticks])
    above.tick_params(axis="x", labelbottom=False)
    above.set_ylim(-0.02, 1.16)
    above.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    above.set_ylabel("mean score")
    below.set_ylabel("B minus A")
    below.set_xlabel("document length, tokens (log scale)")
    _side(above, 0, [(_middle(b), b.mean_a) for b in comparison.bins], cliffs[0])
    _side(above, 1, [(_middle(b), b.mean_b) for b in comparison.bins], cliffs[1])
    _caps(above, comparison)
    _shift(above, comparison)
    _difference(below, comparison)
    _words(figure, above, comparison)
    return figure


def _limits(comparison: Comparison) -> tuple[float, float]:
    edges = [edge for bin in comparison.bins for edge in (bin.edge_low, bin.edge_high)]
    return with_air(*token_limits([max(edge, 1) for edge in edges]))


def _middle(bin: DifferingBin) -> float:
    return float((max(bin.edge_low, 1) * bin.edge_high) ** 0.5)


def _side(
    axes: Axes, place: int, means: Sequence[tuple[float, float | None]], cliffs: Cliffs | None
) -> None:
    style = look(place)
    points = [(x * (1.075, 1.015)[place], mean) for x, mean in means if mean is not None]
    curve = cliffs.curve if cliffs else ()
    if curve:
        x = [point.tokens for point in curve]
        axes.plot(x, [p.mean for p in curve], color=style.colour, lw=2.2, ls=style.dash, zorder=3)
        axes.fill_between(
            x,
            [p.ci_low for p in curve],
            [p.ci_high for p in curve],
            color=style.colour,
            alpha=0.13,
            lw=0,
            zorder=1,
        )
    if points:
        px, py = zip(*points, strict=True)
        axes.plot(
            px,
            py,
            ls="none" if curve else style.dash,
            color=style.colour,
            marker=style.marker,
            ms=7,
            mec="white",
            mew=0.9,
            zorder=4,
            clip_on=False,
        )


def _caps(axes: Axes, comparison: Comparison) -> None:
    for place, cap in enumerate((comparison.caps.a_tokens, comparison.caps.b_tokens)):
        if cap is None:
            continue
        style = look(place)
        axes.axvline(cap, color=style.colour, lw=1.4, ls=style.dash, alpha=0.85, zorder=2)
        axes.annotate(
            f"safe cap {tokens(cap)}",
            (cap, 0.5 - 0.075 * place),
            xytext=(-5, 0),
            textcoords="offset points",
            ha="right",
            color=style.colour,
            fontsize=10.5,
            fontweight="bold",
            zorder=6,
            bbox={"boxstyle": "square,pad=0.15", "fc": (1, 1, 1, 0.8), "ec": "none"},
        )


def _shift(axes: Axes, comparison: Comparison) -> None:
    """An arrow from where A has lost the tolerance to where B has."""
    shift = comparison.loss_shift
    start, end = shift.a_tokens, shift.b_tokens
    if start is None or end is None or abs(end / start - 1) < 0.04:
        return
    axes.annotate(
        "",
        (end, 1.075),
        xytext=(start, 1.075),
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.8, "shrinkA": 0, "shrinkB": 0},
        zorder=6,
    )
    axes.annotate(
        f"x {shift.ratio:.2f}",
        ((start * end) ** 0.5, 1.075),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=11,
        color=INK,
        annotation_clip=False,
        zorder=6,
    )


def _difference(axes: Axes, comparison: Comparison) -> None:
    curve = comparison.curve
    x = [point.tokens for point in curve]
    lows, highs = [p.ci_low for p in curve], [p.ci_high for p in curve]
    axes.axhline(0, color=SOFT_INK, lw=1.0, zorder=2)
    axes.fill_between(x, lows, highs, color=SOFT_INK, alpha=0.2, lw=0, zorder=1)
    axes.plot(x, [p.difference for p in curve], color=INK, lw=1.8, zorder=3)
    alpha = 1.0 - comparison.confidence
    seen = [*lows, *highs]
    for bin in comparison.bins:
        if bin.difference is None:
            continue
        sure = bin.p_value is not None and bin.p_value <= alpha
        seen += [bin.difference]
        axes.plot(
            [_middle(bin)],
            [bin.difference],
            ls="none",
            marker="o",
            ms=6.5,
            mfc=INK if sure else "white",
            mec=INK,
            mew=1.2,
            zorder=4,
            clip_on=False,
        )
    air = 0.06 * max(0.3, max(seen) - min(seen))
    axes.set_ylim(min(-0.15, min(seen) - air), max(0.15, max(seen) + air))


def _words(figure: Figure, above: Axes, comparison: Comparison) -> None:
    from matplotlib.lines import Line2D

    handles = []
    sides: tuple[tuple[str, ComparedSide], ...] = (("A", comparison.a), ("B", comparison.b))
    for place, (letter, side) in enumerate(sides):
        style = look(place)
        label = f"{letter}: {shortened(side.name, 46)} (n = {side.n:,})"
        handles.append(
            Line2D([], [], color=style.colour, ls=style.dash, marker=style.marker, label=label)
        )
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.072, 0.955), ncol=2, frameon=False
    )
    how = "paired by example" if comparison.paired else "unpaired: different documents"
    figure.text(0.08, 0.965, f"Shift of the cliff, {how}", fontsize=14, fontweight="bold")
    figure.text(
        0.08,
        0.025,
        f"Arrow: where the score has dropped by {comparison.tolerance:.0%} of its baseline. Below: "
        f"moving mean with a {comparison.confidence:.0%} band for all lengths at once;\n"
        "dots: bins, filled where the difference is significant among all bins together.",
        fontsize=10,
        color=SOFT_INK,
        va="bottom",
    )
