"""The strip above the curves: per model its name, its verdict, its zones and its safe cap.

One row per model, so that names, zones and caps of six models stand beside each other without one
hiding another; the row's line and marker are the key to the panels below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.reporting.figures.style import (
    INK,
    SOFT_INK,
    ZONE_FILL,
    drawable,
    look,
    shortened,
)
from contextcliff_dagster.reporting.wording.number_format import score, tokens
from contextcliff_dagster.reporting.wording.sentences import (
    VERDICT_PHRASE,
    labels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.cliffs import Zone

_BAR_LOW, _BAR_HIGH = 0.10, 0.54
_NAME_AT = 0.78


def draw_zone_strip(axes: Axes, results: Sequence[Cliffs], limits: tuple[float, float]) -> None:
    """Rows from top to bottom in the order of ``results``; ``limits``: the x range in tokens."""
    axes.set_ylim(-len(results) + 0.0, 0)
    axes.set_axis_off()
    for row, (name, result) in enumerate(zip(labels(results), results, strict=True)):
        base = -row - 1.0
        _name_line(axes, row, name, result, base + _NAME_AT)
        taken = _zone_bar(axes, result, limits, base)
        _cap_mark(axes, row, result, limits, base, taken)


def _name_line(axes: Axes, row: int, name: str, result: Cliffs, y: float) -> None:
    from matplotlib.lines import Line2D

    style = look(row)
    width = axes.get_window_extent().width
    place = axes.get_yaxis_transform()
    key = Line2D(
        [0, 26 / 818],
        [y, y],
        transform=place,
        color=style.colour,
        lw=2.4,
        ls=style.dash,
        clip_on=False,
    )
    axes.add_line(key)
    axes.plot(
        [13 / 818],
        [y],
        transform=place,
        marker=style.marker,
        ms=8,
        mfc=style.colour,
        mec="white",
        mew=1,
        clip_on=False,
    )
    told = axes.text(
        1.0,
        y,
        _verdict_text(result),
        transform=place,
        ha="right",
        va="center",
        fontsize=10.5,
        color=SOFT_INK,
    )
    room = width - told.get_window_extent().width - 34 / 818 * width - 14
    label = axes.text(
        34 / 818,
        y,
        drawable(name),
        transform=place,
        ha="left",
        va="center",
        fontsize=12,
        fontweight="bold",
        color=style.colour,
    )
    most = len(drawable(name))
    while most > 8 and label.get_window_extent().width > room:
        most = min(most - 1, max(8, int(most * room / label.get_window_extent().width)))
        label.set_text(shortened(name, most))


def _verdict_text(result: Cliffs) -> str:
    verdict, cliff = result.verdict, result.cliff
    text = VERDICT_PHRASE[verdict]
    if cliff is not None:
        place = f"falls at {tokens(cliff.location_tokens)} tokens"
        if verdict is not Verdict.DIP:
            span = f"[{tokens(cliff.ci_low)}–{tokens(cliff.ci_high)}]"
            place = f"midpoint of the drop at {tokens(cliff.location_tokens)} tokens {span}"
        text += f": {place}"
    if result.safe_cap_tokens is None:
        text += "; no safe cap supported"
    return drawable(text)


def _zone_bar(axes: Axes, result: Cliffs, limits: tuple[float, float], base: float) -> list[Text]:
    from matplotlib.patches import Rectangle

    height = _BAR_HIGH - _BAR_LOW
    zones = result.zones
    if not zones:
        frame = Rectangle(
            (0, base + _BAR_LOW),
            1,
            height,
            transform=axes.get_yaxis_transform(),
            fc="none",
            ec=SOFT_INK,
            ls=(0, (2, 2)),
            lw=0.8,
        )
        axes.add_patch(frame)
        middle = base + (_BAR_LOW + _BAR_HIGH) / 2
        return [
            axes.text(
                0.5,
                middle,
                "no zones: not supported by the data",
                transform=axes.get_yaxis_transform(),
                ha="center",
                va="center",
                fontsize=10,
                color=SOFT_INK,
            )
        ]
    texts = []
    for zone in zones:
        low = max(zone.from_tokens, limits[0])
        high = min(zone.to_tokens, limits[1])
        if high <= low:
            continue
        name = zone.name
        axes.add_patch(
            Rectangle(
                (low, base + _BAR_LOW),
                high - low,
                height,
                fc=ZONE_FILL[name],
                ec="white",
                lw=1.2,
                zorder=1,
            )
        )
        if name == "transition":
            hatch = Rectangle(
                (low, base + _BAR_LOW),
                high - low,
                height,
                fc="none",
                ec="#B58A1E",
                hatch="////",
                lw=0,
                zorder=1.1,
            )
            axes.add_patch(hatch)
        texts.append(_zone_label(axes, zone, low, high, base + (_BAR_LOW + _BAR_HIGH) / 2))
    return [t for t in texts if t.get_text()]


def _zone_label(axes: Axes, zone: Zone, low: float, high: float, y: float) -> Text:
    """The zone's name and mean, the name alone, or nothing: whatever fits."""
    name = zone.name
    pixels = axes.transData.transform([[low, 0], [high, 0]])[:, 0]
    text = axes.text(
        (low * high) ** 0.5, y, "", ha="center", va="center", fontsize=10, color=INK, zorder=3
    )
    box = {"boxstyle": "square,pad=0.15", "fc": ZONE_FILL[name], "ec": "none"}
    if name == "transition":
        text.set_bbox(box)
    for words in (f"{name}, mean {score(zone.mean)}", name):
        text.set_text(words if zone.mean is not None or words == name else name)
        if text.get_window_extent().width + 14 < pixels[1] - pixels[0]:
            return text
    text.set_text("")
    return text


def _cap_mark(
    axes: Axes,
    row: int,
    result: Cliffs,
    limits: tuple[float, float],
    base: float,
    taken: Sequence[Text],
) -> None:
    cap = result.safe_cap_tokens
    if cap is None or cap <= 0:
        return
    colour = look(row).colour
    x = min(max(cap, limits[0]), limits[1])
    low, high = base + _BAR_LOW - 0.06, base + _BAR_HIGH + 0.04
    axes.plot(
        [x, x], [low, high], color=colour, lw=4, solid_capstyle="butt", zorder=4, clip_on=False
    )
    words = f"safe cap {tokens(cap)}"
    middle = base + (_BAR_LOW + _BAR_HIGH) / 2
    label = axes.text(
        x,
        middle,
        words,
        ha="right",
        va="center",
        fontsize=10.5,
        fontweight="bold",
        color=colour,
        zorder=6,
    )
    pad = 8
    edge = axes.get_window_extent()
    here = axes.transData.transform((x, middle))[0]
    width = label.get_window_extent().width
    blocked = [t.get_window_extent() for t in taken]

    def free(left: float, right: float) -> bool:
        return (
            left > edge.x0
            and right < edge.x1
            and not any(b.x0 - 14 < right and left < b.x1 + 14 for b in blocked)
        )

    spots: list[tuple[Literal["right", "left"], float, float]] = [
        ("right", here - pad - width, here - pad),
        ("left", here + pad, here + pad + width),
    ]
    side = next((s for s in spots if free(s[1], s[2])), None)
    if side is None:
        # A zone's name gives way to the number people came for: it moves aside, or goes.
        side = next((s for s in spots if s[1] > edge.x0 and s[2] < edge.x1), spots[0])
        for text, box in zip(taken, blocked, strict=True):
            if box.x0 - 14 < side[2] and side[1] < box.x1 + 14:
                shift = side[1] - 14 - box.x1
                middle_x = (box.x0 + box.x1) / 2 + shift
                text.set_visible(side[0] == "right" and box.x0 + shift > edge.x0 + 8)
                text.set_x(axes.transData.inverted().transform((middle_x, 0))[0])
    offset = -pad if side[0] == "right" else pad
    label.set_horizontalalignment(side[0])
    label.set_position((axes.transData.inverted().transform((here + offset, 0))[0], middle))
    label.set_bbox({"boxstyle": "square,pad=0.12", "fc": (1, 1, 1, 0.72), "ec": "none"})
