"""The safe cap of a model under each KV policy and budget, as a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording.number_format import level, score, tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from contextcliff_dagster.analysis.kv_family import KvFamily, KvMember, LossAt

_LEFT, _ROW, _HEAD, _FOOT, _CELL = 1.9, 0.82, 0.95, 1.05, 2.6
_NARROW = 1.7


@house.styled()
def plot_kv_caps(family: KvFamily) -> bytes:
    """Return the picture as PNG bytes: rows are policies, columns budgets.

    A cell has the cap, and below it the length that the cap stays below, with its interval. Same
    input, same bytes.
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
        note += " random: the control, which keeps entries by lot."
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


def loss_words(loss: LossAt, shortest: int) -> str:
    """Return ``lost at 1.5k [1.2k, >]``, ``lost at 1.2k or later`` or ``lost from the start``."""
    if loss.tokens is None:
        return "not lost" if loss.low is None else f"lost at {house.token_label(loss.low)} or later"
    if loss.tokens <= shortest:
        return "lost from the start"
    low, high = (">" if end is None else house.token_label(end) for end in (loss.low, loss.high))
    return f"lost at {house.token_label(loss.tokens)} [{low}, {high}]"
