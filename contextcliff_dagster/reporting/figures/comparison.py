"""Pictures of two measurements' shifted cliff, and of a model's caps under each KV policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import level, score, tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from contextcliff_dagster.analysis.kv_family import KvFamily, KvMember
    from contextcliff_dagster.analysis.statistics.intervals import Crossing
    from contextcliff_dagster.contracts.results import Cliffs, Comparison
    from contextcliff_dagster.contracts.results.comparison import DifferingBin

_LEFT, _ROW, _HEAD, _FOOT, _CELL = 1.9, 0.82, 0.95, 1.05, 2.6
_NARROW = 1.7


@house.styled()
def plot_kv_caps(family: KvFamily) -> bytes:
    """Return the picture as PNG bytes: rows are policies, columns are budgets.

    A cell shows the cap and, below it, the length at which the tolerance is lost, with its
    interval. Same input, same bytes.
    """
    rows = list(dict.fromkeys(member.kv.policy for member in family.members))
    budgets = sorted({member.kv.budget for member in family.members}, reverse=True)
    width = min(_CELL, (house.WIDTH - _LEFT - 0.3) / len(budgets))
    tall = _ROW * len(rows)
    figure = house.blank_page(_HEAD + tall + _FOOT)
    title = f"Safe cap of {house.shortened(family.base, 40)} by KV policy and budget"
    house.write(figure, 0.2, _FOOT + tall + _HEAD - 0.3, title, fontsize=14, fontweight="bold")
    axes = house.panel(figure, _LEFT, _FOOT, width * len(budgets), tall)
    _frame(axes, rows, [f"{budget:.0%} of the cache" for budget in budgets])
    caps = [member.cap_tokens or 0 for member in family.members]
    points = 9.5 if width >= _NARROW else 7.8
    empty = {(x, y) for x in range(len(budgets)) for y in range(len(rows))}
    for member in family.members:
        place = budgets.index(member.kv.budget), rows.index(member.kv.policy)
        _cell(axes, place, member, max([*caps, 1]), points)
        empty.discard(place)
    for x, y in sorted(empty):
        axes.text(x + 0.5, y + 0.5, "–", ha="center", va="center", color=house.SOFT_INK)
    lost = f"{level(family.tolerance)} of the whole cache's baseline"
    note = (
        f"Large: safe cap, tokens of the document. Up to there, less than {lost} is lost.\n"
        f"Small: the policy's own baseline; where {lost} is lost, with its "
        f"{level(family.confidence)} interval\n"
        f"(> : beyond the longest document, {tokens(family.longest_tokens)}). "
        "Darker: a larger cap."
    )
    if "random" in rows:
        note += " random: the control, which keeps randomly chosen entries."
    house.write(figure, 0.2, 0.46, note, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=64)


def _frame(axes: Axes, rows: list[str], columns: list[str]) -> None:
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.set_xticks([x + 0.5 for x in range(len(columns))], columns)
    axes.set_yticks([y + 0.5 for y in range(len(rows))], rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=10 if len(columns) <= 4 else 8.5)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _cell(axes: Axes, place: tuple[int, int], member: KvMember, most: int, points: float) -> None:
    from matplotlib.colors import to_hex
    from matplotlib.patches import Rectangle

    x, y = place
    cap = member.cap_tokens
    share = (cap / most) ** 0.5 if cap else 0.0
    light, dark = (0.91, 0.95, 0.98), (0.07, 0.38, 0.60)
    red, green, blue = (a + share * (b - a) for a, b in zip(light, dark, strict=True))
    fill = to_hex((red, green, blue))
    axes.add_patch(
        Rectangle(
            (x + 0.02, y + 0.03),
            0.96,
            0.94,
            facecolor=fill if cap else "white",
            edgecolor=house.FAINT,
            hatch=None if cap else "///",
        )
    )
    ink = "white" if cap and share > 0.55 else house.INK
    small = member.baseline is not None and f"baseline {score(member.baseline)}"
    below = loss_words(member.loss, member.shortest_tokens)
    if member.verdict == "floor":
        below = "at the floor"
    box = None if cap else {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    large = tokens(cap) if cap else "no cap"
    for text, height, size, weight in (
        (large, 0.3, 14, "bold"),
        (small or "", 0.6, points, "normal"),
        (below, 0.82, points, "normal"),
    ):
        axes.text(
            x + 0.5,
            y + height,
            text,
            ha="center",
            va="center",
            fontsize=size,
            fontweight=weight,
            color=ink,
            bbox=box,
        )


def loss_words(loss: Crossing, shortest: int) -> str:
    """Return ``lost at 1.5k [1.2k, >]``, ``lost at 1.2k or later`` or ``lost from the start``."""
    if loss.tokens is None:
        return "not lost" if loss.low is None else f"lost at {house.token_label(loss.low)} or later"
    if loss.tokens <= shortest:
        return "lost from the start"
    low, high = (">" if end is None else house.token_label(end) for end in (loss.low, loss.high))
    return f"lost at {house.token_label(loss.tokens)} [{low}, {high}]"


@house.styled()
def plot_shift(comparison: Comparison, cliffs: Sequence[Cliffs | None]) -> bytes:
    """Return the picture as PNG bytes, 1,840 x 1,216 pixels.

    ``comparison``: as in `schemas/comparison.schema.json`. ``cliffs``: the results of A and B with
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
    """Draw both curves in the first panel, their difference in the second; return the legend.

    Sets the limits, ticks and labels of both panels.
    """
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
    label = "safe cap of both" if caps.a_tokens == caps.b_tokens else "safe cap"
    _side(above, 0, [(_middle(b), b.mean_a) for b in bins], caps.a_tokens, cliffs[0], label)
    label = "" if label.endswith("both") else label
    _side(above, 1, [(_middle(b), b.mean_b) for b in bins], caps.b_tokens, cliffs[1], label)
    _shift(above, comparison)
    _difference(below, comparison)
    sides = (("A", comparison.a), ("B", comparison.b))
    return house.line_handles(
        f"{letter}: {house.shortened(side.name, 46)} (n = {side.n:,})" for letter, side in sides
    )


def _middle(bin: DifferingBin) -> float:
    return float((max(bin.edge_low, 1) * bin.edge_high) ** 0.5)


def _side(
    axes: Axes,
    place: int,
    means: Sequence[tuple[float, float | None]],
    cap: int | None,
    cliffs: Cliffs | None,
    label: str,
) -> None:
    """Draw the fitted curve, bins and cap of A (``place`` 0) or B (1); ``label``: of the cap."""
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
            f"{label} {tokens(cap)}" if label else "",
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
    """Draw an arrow from the length at which A's loss reaches the tolerance to B's, if known."""
    shift = comparison.loss_shift
    start, end = shift.a_tokens, shift.b_tokens
    if start is None or end is None or not shift.is_bounded or abs(end / start - 1) < 0.04:
        return
    arrow = {"arrowstyle": "-|>", "color": house.INK, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (end, 1.075), xytext=(start, 1.075), arrowprops=arrow, zorder=6)
    axes.annotate(
        f"{comparison.tolerance:.0%} drop x {shift.ratio:.2f}",
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
    heights = [end for p in curve for end in (p.ci_low, p.ci_high)]
    for bin in comparison.bins:
        if bin.difference is None:
            continue
        sure = bin.p_value is not None and bin.p_value <= 1.0 - comparison.confidence
        heights.append(bin.difference)
        x, y = _middle(bin), bin.difference
        style: dict[str, Any] = {"mec": house.INK, "ms": 6.5, "mew": 1.2, "zorder": 4}
        house.draw_markers(axes, x, y, house.INK, hollow=not sure, clip_on=False, **style)
    air = 0.06 * max(0.3, max(heights) - min(heights))
    axes.set_ylim(min(-0.15, min(heights) - air), max(0.15, max(heights) + air))
