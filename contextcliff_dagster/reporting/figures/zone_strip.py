"""The strip above the curves: per model its name, its verdict, its zones and its safe cap.

One row per model, so that names, zones and caps of six models are next to each other without one
hiding another; the row's line and marker are the key to the panels below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording.number_format import located, score, tokens
from contextcliff_dagster.reporting.wording.sentences import VERDICT_PHRASE, labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from contextcliff_dagster.contracts.results import Cliffs

_BAR_LOW, _BAR_HIGH = 0.10, 0.54
_BAR_MIDDLE = (_BAR_LOW + _BAR_HIGH) / 2
_NAME_AT = 0.78
_KEY, _NAME_FROM = 26 / 818, 34 / 818
"""Shares of the width: the key's line ends, and the name begins."""


def draw_zone_strip(axes: Axes, results: Sequence[Cliffs], limits: tuple[float, float]) -> None:
    """Rows from top to bottom in the order of ``results``; ``limits``: the x range in tokens."""
    axes.set_ylim(-len(results) + 0.0, 0)
    axes.set_axis_off()
    for row, (name, result) in enumerate(zip(labels(results), results, strict=True)):
        base, style = -row - 1.0, house.look(row)
        _name_line(axes, style, house.drawable(name), _verdict_text(result), base + _NAME_AT)
        names = _zone_bar(axes, result, limits, base)
        cap = result.safe_cap_tokens or 0
        if cap > 0:
            _cap_mark(axes, cap, style.colour, limits, base, names)


def _name_line(axes: Axes, style: house.Look, name: str, verdict: str, y: float) -> None:
    width = axes.get_window_extent().width
    place = axes.get_yaxis_transform()
    axes.plot(
        [0, _KEY / 2, _KEY],
        [y, y, y],
        transform=place,
        color=style.colour,
        lw=2.4,
        ls=style.dash,
        marker=style.marker,
        markevery=[1],
        ms=8,
        mec="white",
        clip_on=False,
    )
    right: dict[str, Any] = {
        "ha": "right",
        "va": "center",
        "fontsize": 10.5,
        "color": house.SOFT_INK,
    }
    end = axes.text(1.0, y, verdict, transform=place, **right)
    room = width - end.get_window_extent().width - _NAME_FROM * width - 14
    left: dict[str, Any] = {"va": "center", "fontsize": 12, "fontweight": "bold"}
    label = axes.text(_NAME_FROM, y, name, transform=place, color=style.colour, **left)
    most = len(name)
    while most > 8 and label.get_window_extent().width > room:
        most = min(most - 1, max(8, int(most * room / label.get_window_extent().width)))
        label.set_text(house.shortened(name, most))


def _verdict_text(result: Cliffs) -> str:
    text, cliff = VERDICT_PHRASE[result.verdict], result.cliff
    if cliff is not None:
        at = located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
        dip = result.verdict is Verdict.DIP
        text += (
            f": falls at {tokens(cliff.location_tokens)} tokens"
            if dip
            else f": midpoint of the drop at {at} tokens"
        )
    if result.safe_cap_tokens is None:
        text += "; no safe cap supported"
    return house.drawable(text)


def _zone_bar(axes: Axes, result: Cliffs, limits: tuple[float, float], base: float) -> list[Text]:
    """Draw the zones; the names that fit into them."""
    from matplotlib.patches import Rectangle

    def bar(low: float, high: float, **look: Any) -> None:
        corner, height = (low, base + _BAR_LOW), _BAR_HIGH - _BAR_LOW
        axes.add_patch(Rectangle(corner, high - low, height, **look))

    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 10}
    if not result.zones:
        place = axes.get_yaxis_transform()
        bar(0, 1, transform=place, fc="none", ec=house.SOFT_INK, ls=(0, (2, 2)), lw=0.8)
        words = "no zones: not supported by the data"
        y = base + _BAR_MIDDLE
        return [axes.text(0.5, y, words, transform=place, color=house.SOFT_INK, **middle)]
    texts = []
    for zone in result.zones:
        low, high = max(zone.from_tokens, limits[0]), min(zone.to_tokens, limits[1])
        if high <= low:
            continue
        bar(low, high, fc=house.ZONE_FILL[zone.name], ec="white", lw=1.2, zorder=1)
        text = axes.text((low * high) ** 0.5, base + _BAR_MIDDLE, "", zorder=3, **middle)
        if zone.name == "transition":
            bar(low, high, fc="none", ec="#B58A1E", hatch="////", lw=0, zorder=1.1)
            fill = house.ZONE_FILL[zone.name]
            text.set_bbox({"boxstyle": "square,pad=0.15", "fc": fill, "ec": "none"})
        wide = axes.transData.transform([[low, 0], [high, 0]])[:, 0]
        name = zone.name.replace("_", " ")
        full = name if zone.mean is None else f"{name}, mean {score(zone.mean)}"
        for words in (full, name, ""):
            text.set_text(words)
            if text.get_window_extent().width + 14 < wide[1] - wide[0]:
                break
        if words:
            texts.append(text)
    return texts


def _cap_mark(
    axes: Axes,
    cap: int,
    colour: str,
    limits: tuple[float, float],
    base: float,
    names: Sequence[Text],
) -> None:
    """A line at the cap, with its length on the side that is free; ``names``: of the zones."""
    x = min(max(cap, limits[0]), limits[1])
    ends = [base + _BAR_LOW - 0.06, base + _BAR_HIGH + 0.04]
    line: dict[str, Any] = {"lw": 4, "solid_capstyle": "butt", "zorder": 4, "clip_on": False}
    axes.plot([x, x], ends, color=colour, **line)
    bold: dict[str, Any] = {"va": "center", "fontsize": 10.5, "fontweight": "bold", "zorder": 6}
    label = axes.text(x, base + _BAR_MIDDLE, f"safe cap {tokens(cap)}", color=colour, **bold)
    edge, here = axes.get_window_extent(), axes.transData.transform((x, 0))[0]
    width, pad = label.get_window_extent().width, 8
    boxes = [text.get_window_extent() for text in names]
    # Its pixels where it ends left of the line, and where it begins right of it.
    spots = [(here - pad - width, here - pad), (here + pad, here + pad + width)]
    inside = [spot for spot in spots if spot[0] > edge.x0 and spot[1] < edge.x1]
    free = [
        (left, right)
        for left, right in inside
        if not any(box.x0 - 14 < right and left < box.x1 + 14 for box in boxes)
    ]
    left, right = (free or inside or spots)[0]
    on_the_left = right < here
    if not free:
        # A zone's name gives way to the number people came for: it moves aside, or goes.
        for text, box in zip(names, boxes, strict=True):
            if box.x0 - 14 < right and left < box.x1 + 14:
                shift = left - 14 - box.x1
                text.set_visible(on_the_left and box.x0 + shift > edge.x0 + 8)
                text.set_x(house.shifted(axes, x, (box.x0 + box.x1) / 2 + shift - here))
    label.set_horizontalalignment("right" if on_the_left else "left")
    label.set_x(house.shifted(axes, x, -pad if on_the_left else pad))
    label.set_bbox({"boxstyle": "square,pad=0.12", "fc": (1, 1, 1, 0.72), "ec": "none"})
