"""The shifted cliff: two measurements' scores over length, and their difference below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording.number_format import tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from contextcliff_dagster.contracts.results import Cliffs, Comparison
    from contextcliff_dagster.contracts.results.comparison import DifferingBin


@house.styled()
def plot_shift(comparison: Comparison, cliffs: Sequence[Cliffs | None]) -> bytes:
    """The picture as PNG bytes, 1,840 x 1,216 pixels.

    ``comparison``: of `schemas/comparison.schema.json`; ``cliffs``: the results of A and B with
    their fitted curves, or None. Same input, same bytes.
    """
    figure = house.blank_page(7.6)
    above = figure.add_axes((0.08, 0.42, 0.89, 0.45))
    below = figure.add_axes((0.08, 0.14, 0.89, 0.23), sharex=above)
    legend = draw_shift((above, below), comparison, cliffs)
    figure.legend(handles=legend, loc="upper left", bbox_to_anchor=(0.072, 0.955), ncol=2)
    how = "paired by example" if comparison.paired else "unpaired: different documents"
    figure.text(0.08, 0.965, f"Shift of the cliff, {how}", fontsize=14, fontweight="bold")
    note = (
        f"Arrow: where the score has dropped by {comparison.tolerance:.0%} of its baseline. Below: "
        f"moving mean with a {comparison.confidence:.0%} band for all lengths at once;\n"
        "dots: bins, filled where the difference is significant among all bins together."
    )
    figure.text(0.08, 0.025, note, fontsize=10, color=house.SOFT_INK, va="bottom")
    return house.png_bytes(figure)


def draw_shift(
    panels: tuple[Axes, Axes], comparison: Comparison, cliffs: Sequence[Cliffs | None]
) -> list[Line2D]:
    """Both curves in the first of ``panels``, their difference in the second; the legend's entries.

    Sets the limits, ticks and labels of both.
    """
    from matplotlib.lines import Line2D

    above, below = panels
    edges = [max(edge, 1) for bin in comparison.bins for edge in (bin.edge_low, bin.edge_high)]
    for axes in panels:
        house.token_axis(axes, house.with_air(*house.token_limits(edges)))
        axes.grid(axis="y")
    above.tick_params(axis="x", labelbottom=False)
    above.set_ylim(-0.02, 1.16)
    above.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    above.set_ylabel("mean score")
    below.set_ylabel("B minus A")
    below.set_xlabel("document length, tokens (log scale)")
    bins, caps = comparison.bins, comparison.caps
    _side(above, 0, [(_middle(b), b.mean_a) for b in bins], caps.a_tokens, cliffs[0])
    _side(above, 1, [(_middle(b), b.mean_b) for b in bins], caps.b_tokens, cliffs[1])
    _shift(above, comparison)
    _difference(below, comparison)
    return [
        Line2D([], [], color=style.colour, ls=style.dash, marker=style.marker, label=label)
        for style, label in (
            (
                house.look(0),
                f"A: {house.shortened(comparison.a.name, 46)} (n = {comparison.a.n:,})",
            ),
            (
                house.look(1),
                f"B: {house.shortened(comparison.b.name, 46)} (n = {comparison.b.n:,})",
            ),
        )
    ]


def _middle(bin: DifferingBin) -> float:
    return float((max(bin.edge_low, 1) * bin.edge_high) ** 0.5)


def _side(
    axes: Axes,
    place: int,
    means: Sequence[tuple[float, float | None]],
    cap: int | None,
    cliffs: Cliffs | None,
) -> None:
    """The fitted curve, bins and cap of A (``place`` 0) or B (1)."""
    style = house.look(place)
    points = [(x * (1.075, 1.015)[place], mean) for x, mean in means if mean is not None]
    curve = cliffs.curve if cliffs else ()
    if curve:
        x, y = [p.tokens for p in curve], [p.mean for p in curve]
        axes.plot(x, y, color=style.colour, lw=2.2, ls=style.dash, zorder=3)
        house.draw_band(axes, curve, style.colour, 0.13)
    if points:
        xs, ys = zip(*points, strict=True)
        line: dict[str, Any] = {"ls": "none" if curve else style.dash, "marker": style.marker}
        line |= {"color": style.colour, "ms": 7, "mew": 0.9, "zorder": 4, "clip_on": False}
        house.draw_markers(axes, xs, ys, style.colour, **line)
    if cap is not None:
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
    """An arrow from where A has lost the tolerance to where B has, if that is known at all."""
    shift = comparison.loss_shift
    start, end = shift.a_tokens, shift.b_tokens
    if start is None or end is None or not shift.is_bounded or abs(end / start - 1) < 0.04:
        return
    arrow = {"arrowstyle": "-|>", "color": house.INK, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (end, 1.075), xytext=(start, 1.075), arrowprops=arrow, zorder=6)
    axes.annotate(
        f"x {shift.ratio:.2f}",
        ((start * end) ** 0.5, 1.075),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        annotation_clip=False,
        zorder=6,
    )


def _difference(axes: Axes, comparison: Comparison) -> None:
    curve = comparison.curve
    axes.axhline(0, color=house.SOFT_INK, lw=1.0, zorder=2)
    house.draw_band(axes, curve, house.SOFT_INK, 0.2)
    axes.plot(
        [p.tokens for p in curve], [p.difference for p in curve], color=house.INK, lw=1.8, zorder=3
    )
    seen = [end for p in curve for end in (p.ci_low, p.ci_high)]
    for bin in comparison.bins:
        if bin.difference is None:
            continue
        sure = bin.p_value is not None and bin.p_value <= 1.0 - comparison.confidence
        seen.append(bin.difference)
        marks: dict[str, Any] = {
            "mfc": house.INK if sure else "white",
            "mec": house.INK,
            "zorder": 4,
        }
        x, y = _middle(bin), bin.difference
        house.draw_markers(axes, x, y, house.INK, ms=6.5, mew=1.2, clip_on=False, **marks)
    air = 0.06 * max(0.3, max(seen) - min(seen))
    axes.set_ylim(min(-0.15, min(seen) - air), max(0.15, max(seen) + air))
