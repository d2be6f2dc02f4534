"""The report's picture: score and spread against natural length, one or more models on one axis.

Top to bottom: a headline; one strip per model with its name, verdict, zones and safe cap; the score
with single answers, bin means, intervals and the fitted curve; the standard deviation per bin. Each
strip has its own row, so names, zones and caps of six models do not overlap; the row's line and
marker are the key to the panels below.

It is drawn with matplotlib's object interface (no pyplot, no global figure), which is safe in a
server.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.figures.captions import axis_words, captions, single_axis_words
from contextcliff_dagster.reporting.figures.house import draw_band, draw_markers, look, shifted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from numpy.typing import NDArray

    from contextcliff_dagster.contracts.results import Cliffs

_BAR_LOW, _BAR_HIGH = 0.10, 0.54
_BAR_MIDDLE = (_BAR_LOW + _BAR_HIGH) / 2
_NAME_AT = 0.78
_KEY, _NAME_FROM = 26 / 818, 34 / 818
"""End of the key's line and start of the name, as shares of the width."""


def draw_zone_strip(axes: Axes, results: Sequence[Cliffs], limits: tuple[float, float]) -> None:
    """Draw one row per result, top to bottom; ``limits``: the x range in tokens."""
    axes.set_ylim(-len(results) + 0.0, 0)
    axes.set_axis_off()
    for row, (name, result) in enumerate(zip(wording.labels(results), results, strict=True)):
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
    text, cliff = wording.VERDICT_PHRASE[result.verdict], result.cliff
    if cliff is not None:
        at = wording.located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
        place = f"midpoint of the drop at {at}"
        if result.verdict is Verdict.DIP:
            place = f"falls at {wording.tokens(cliff.location_tokens)}"
        text += f": {place} tokens"
    if result.safe_cap_tokens is None:
        text += "; no safe cap supported"
    return house.drawable(text)


def _zone_bar(axes: Axes, result: Cliffs, limits: tuple[float, float], base: float) -> list[Text]:
    """Draw the zones and return the texts of the names that fit into them."""
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
        full = name if zone.mean is None else f"{name}, mean {wording.score(zone.mean)}"
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
    """Draw a line at the cap, labelled on the free side; ``names``: texts of the zones' names."""
    x = min(max(cap, limits[0]), limits[1])
    ends = [base + _BAR_LOW - 0.06, base + _BAR_HIGH + 0.04]
    line: dict[str, Any] = {"lw": 4, "solid_capstyle": "butt", "zorder": 4, "clip_on": False}
    axes.plot([x, x], ends, color=colour, **line)
    bold: dict[str, Any] = {"va": "center", "fontsize": 10.5, "fontweight": "bold", "zorder": 6}
    label = axes.text(
        x, base + _BAR_MIDDLE, f"safe cap {wording.tokens(cap)}", color=colour, **bold
    )
    edge, here = axes.get_window_extent(), axes.transData.transform((x, 0))[0]
    width, pad = label.get_window_extent().width, 8
    boxes = [text.get_window_extent() for text in names]
    # Pixel spans of the label, placed left and right of the line.
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
        # The cap matters more than a zone's name, which moves aside or is hidden.
        for text, box in zip(names, boxes, strict=True):
            if box.x0 - 14 < right and left < box.x1 + 14:
                shift = left - 14 - box.x1
                text.set_visible(on_the_left and box.x0 + shift > edge.x0 + 8)
                text.set_x(house.shifted(axes, x, (box.x0 + box.x1) / 2 + shift - here))
    label.set_horizontalalignment("right" if on_the_left else "left")
    label.set_x(house.shifted(axes, x, -pad if on_the_left else pad))
    label.set_bbox({"boxstyle": "square,pad=0.12", "fc": (1, 1, 1, 0.72), "ec": "none"})


_LANE_GAP, _DODGE_PIXELS = 0.035, 7.0
_MANY = 350
"""Maximum number of dots in a lane; beyond it, a density is drawn, as dots would overlap."""


def lane_height(models: int) -> float:
    """Return the height of one model's lane of dots, in score units."""
    return 0.05 if models == 1 else 0.036 if models <= 3 else 0.026


def score_limits(models: int) -> tuple[float, float]:
    """Return the y range: 0..1, plus one lane per model on either side for exact 0 and 1."""
    rim = _LANE_GAP + models * lane_height(models) + 0.02
    return -rim, 1 + rim


def draw_answers(
    axes: Axes, row: int, models: int, lengths: NDArray[np.float64], scores: NDArray[np.float64]
) -> None:
    """Draw every scored answer of one model.

    Exact zeros and ones, which would overlap on two lines, are spread over a lane below 0 or above
    1 (as a density beyond ``_MANY``); other scores are drawn at their own height.
    """
    colour = look(row).colour
    height = lane_height(models)
    dots: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 3.4, "mfc": colour, "mec": "none"}
    lanes = {1.0: 1 + _LANE_GAP + row * height, 0.0: -_LANE_GAP - (row + 1) * height}
    for value, bottom in lanes.items():
        x = lengths[scores == value]
        if len(x) > _MANY:
            _density_lane(axes, colour, x, bottom, height)
        elif len(x):
            jitter = np.random.default_rng(zlib.crc32(f"{row}/{value}".encode())).random(len(x))
            y = bottom + height * (0.14 + 0.72 * jitter)
            axes.plot(x, y, **dots, alpha=0.45, zorder=2)
    between = (scores != 0.0) & (scores != 1.0)
    x, y = lengths[between], scores[between]
    if len(x) > 4 * _MANY:
        _density_cells(axes, colour, x, y)
    elif len(x):
        axes.plot(x, y, **dots, alpha=0.28, zorder=2)


def _log_cells(
    axes: Axes, x: NDArray[np.float64], columns: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    edges = np.geomspace(*axes.get_xlim(), columns + 1)
    return edges, np.clip(np.searchsorted(edges, x, side="right") - 1, 0, columns - 1)


def _density_lane(
    axes: Axes, colour: str, x: NDArray[np.float64], bottom: float, height: float
) -> None:
    """Draw bars whose height is the count; the fullest column fills the lane."""
    edges, column = _log_cells(axes, x, 120)
    counts = np.bincount(column, minlength=120)
    tall, wide = 0.9 * height * counts / counts.max(), np.diff(edges) * 0.9
    bars: dict[str, Any] = {"align": "edge", "color": colour, "alpha": 0.55, "lw": 0, "zorder": 2}
    axes.bar(edges[:-1], tall, wide, bottom, **bars)


def _density_cells(axes: Axes, colour: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    """Draw squares on a grid, with an area proportional to the count."""
    edges, column = _log_cells(axes, x, 90)
    cell = np.clip((y * 40).astype(int), 0, 39) * 90 + column
    counts = np.bincount(cell, minlength=3600)
    full = np.flatnonzero(counts)
    centre = np.sqrt(edges[:-1] * edges[1:])[full % 90]
    area = 34 * counts[full] / counts.max()
    squares: dict[str, Any] = {"marker": "s", "c": colour, "alpha": 0.3, "lw": 0, "zorder": 2}
    axes.scatter(centre, (full // 90 + 0.5) / 40, area, **squares)


def draw_curve(axes: Axes, row: int, models: int, result: Cliffs) -> None:
    """Draw the fitted curve and, if it has one, its band."""
    points = result.curve
    if len(points) < 2:
        return
    style = look(row)
    x, y = [point.tokens for point in points], [point.mean for point in points]
    draw_band(axes, points, style.colour, 0.14 if models <= 3 else 0.08)
    axes.plot(x, y, color="white", lw=4.4, zorder=2.4, alpha=0.8)
    axes.plot(x, y, color=style.colour, lw=2.3, ls=style.dash, zorder=2.5)


def draw_bins(axes: Axes, row: int, models: int, result: Cliffs) -> bool:
    """Draw bin means; return whether any mean lacks an interval (drawn as a hollow marker).

    A cross marks the mean with each missing answer scored 0.
    """
    style = look(row)
    bar: dict[str, Any] = {
        "alpha": 0.95 if models <= 3 else 0.55,
        "marker": "_",
        "ms": 6,
        "mew": 1.4,
        "lw": 1.7,
        "solid_capstyle": "butt",
        "zorder": 3,
    }
    marks: dict[str, Any] = {"marker": style.marker, "ms": 8, "zorder": 4, "clip_on": False}
    any_hollow = False
    for item in result.bins:
        place, mean = item.median_tokens, item.mean
        if place and item.delivered_mean is not None:
            x, y = dodge(axes, place, row, models), item.delivered_mean
            axes.plot(x, y, "x", color=style.colour, ms=7, mew=1.8, zorder=4)
        if not place or mean is None:
            continue
        x = dodge(axes, place, row, models)
        ends = [end for end in (item.ci_low, item.ci_high) if end is not None]
        hollow = len(ends) < 2
        if not hollow:
            axes.plot([x, x], ends, color=style.colour, **bar)
        draw_markers(axes, x, mean, style.colour, hollow=hollow, mew=1.8 if hollow else 1, **marks)
        any_hollow |= hollow
    return any_hollow


def dodge(axes: Axes, x: float, row: int, models: int) -> float:
    """Return ``x`` moved by some pixels, so that models on the same bins do not overlap."""
    return shifted(
        axes, x, (row - (models - 1) / 2) * min(_DODGE_PIXELS, 24 / max(models, 1)) * 160 / 100
    )


def records_of(result: Cliffs, records: pd.DataFrame, results: int) -> pd.DataFrame | None:
    """Return the rows of ``result``; None if there are several results and no model column."""
    for column in ("study", "model", "campaign"):
        if column in records.columns and (value := getattr(result, column)) is not None:
            records = records[records[column] == value]
        elif column == "model" and results > 1:
            return None
    return records


def answers_of(
    records: pd.DataFrame | None, results: Sequence[Cliffs], row: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lengths and scores of one result's scored records; empty arrays if there are none."""
    rows = None if records is None else records_of(results[row], records, len(results))
    if rows is None or not {"length_tokens", "score"} <= set(rows.columns):
        return np.empty(0), np.empty(0)
    x = rows["length_tokens"].to_numpy(dtype=float, na_value=np.nan)
    y = rows["score"].to_numpy(dtype=float, na_value=np.nan)
    keep = np.isfinite(x) & np.isfinite(y) & (x > 0)
    return x[keep], y[keep]


def free_height(
    axes: Axes, results: Sequence[Cliffs], low: float, high: float, need: float
) -> float | None:
    """Return the lowest score at which a label between two lengths overlaps nothing drawn.

    ``need``: height of the label in score units. None if no place in 0..1 is free."""
    spans: list[tuple[float, float]] = []
    for row, result in enumerate(results):
        near = [p for p in result.curve if low / 1.06 <= p.tokens <= high * 1.06]
        spans += [_reach(p.mean, p.ci_low, p.ci_high) for p in near]
        for b in result.bins:
            if b.median_tokens and b.mean is not None:
                x = dodge(axes, b.median_tokens, row, len(results))
                if low / 1.02 <= x <= high * 1.02:
                    spans.append(_reach(b.mean, b.ci_low, b.ci_high))
    start = 0.02
    for bottom, top in sorted(spans):
        if start + need <= bottom:
            break
        start = max(start, top)
    return start if start + need <= 1.0 else None


def _reach(mean: float, low: float | None, high: float | None) -> tuple[float, float]:
    """Return the height range of a mark (its interval, or else its mean), with a margin."""
    ends = [mean, *(end for end in (low, high) if end is not None)]
    return min(ends) - 0.03, max(ends) + 0.03


_LEFT, _RIGHT = 0.92, 0.36
_HEAD, _ROW, _SCORE, _SPREAD, _GAP, _FOOT = 0.98, 0.62, 3.75, 1.15, 0.16, 1.30
_WINDOW_REACH = 0.22
"""Largest fraction by which the log axis may widen to draw the window to scale."""
ASPECT = 0.6
"""Height of a figure with the score panel alone, as a share of its width."""
_FULL, _CROWDED = 6.2, 1.4
"""Least width of axes in inches for marks of full size, and for each model's single answers."""
_NAME: dict[str, Any] = {"fontsize": "medium", "zorder": 5}
"""Text style of a line's name."""


@house.styled()
def plot_report(cliffs: Sequence[Cliffs], records: pd.DataFrame | None = None) -> bytes:
    """Return the picture as PNG bytes, 1,840 pixels wide; the height grows with the models.

    ``cliffs``: one contract result per model (lengths in document tokens, scores 0..1).
    ``records``: EVAL_RECORDS of any of these models for the single answers, or None. Data that a
    result lacks are left out of the picture. Same input, same bytes.
    """
    rows = max(len(cliffs), 1)
    figure = house.blank_page(_HEAD + rows * _ROW + _SCORE + _GAP + _SPREAD + _FOOT + 0.08)
    answers = [answers_of(records, cliffs, row) for row in range(len(cliffs))]
    limits = _limits(cliffs, [x for x, _ in answers])
    bottoms = (_FOOT, _FOOT + _SPREAD + _GAP, _FOOT + _SPREAD + _GAP + _SCORE + 0.08)
    spread, main, strip = (
        house.panel(figure, _LEFT, bottom, house.WIDTH - _LEFT - _RIGHT, tall)
        for bottom, tall in zip(bottoms, (_SPREAD, _SCORE, rows * _ROW), strict=True)
    )
    for axes in (spread, main, strip):
        house.token_axis(axes, limits)
    _spread_panel(spread, cliffs)
    hollow = _draw_panel((main, spread), cliffs, answers, limits)
    draw_zone_strip(strip, cliffs, limits)
    axis_words(main, spread, cliffs, limits)
    captions(figure, cliffs, has_answers=any(len(x) for x, _ in answers), hollow=hollow)
    return house.png_bytes(figure)


def draw_scores(axes: Axes, cliffs: Sequence[Cliffs], records: pd.DataFrame | None = None) -> None:
    """Draw only the score panel in the caller's ``axes``: answers, bins, curves, caps, a title.

    Sets the axes' limits, ticks and labels; the arguments are those of `plot_report`. Marks and
    texts are smaller in narrow axes, which leave out single answers of several models.
    """
    from matplotlib import rc_context, rcParams

    before, width = len(axes.lines), axes.get_window_extent().width / axes.figure.dpi
    points = min(float(rcParams["font.size"]), 5.5 + 0.8 * width)
    answers = [answers_of(records, cliffs, row) for row in range(len(cliffs))]
    limits = _limits(cliffs, [x for x, _ in answers])
    with rc_context({"font.size": points, "text.parse_math": False}):
        house.token_axis(axes, limits, most=max(2, min(9, int(width / 0.42))))
        axes.tick_params(labelsize=points)
        shown = answers if width >= _CROWDED * len(cliffs) else []
        _draw_panel((axes,), cliffs, shown, limits)
        single_axis_words(axes, cliffs, limits)
    _shrink(axes, min(1.0, max(0.45, width / _FULL)), before)


def _draw_panel(
    panels: Sequence[Axes], cliffs: Sequence[Cliffs], answers: Any, limits: tuple[float, float]
) -> bool:
    """Draw the score panel, the first of ``panels``, and across all zones, caps and windows.

    ``answers``: as of `answers_of`, by result; empty for none. Returns what `draw_bins` returns.
    """
    main, rows, hollow = panels[0], max(len(cliffs), 1), False
    main.set_ylim(*(score_limits(rows) if answers else (-0.03, 1.03)))
    main.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    main.grid(axis="y", zorder=0, color=house.FAINT, lw=0.7)
    for row, result in enumerate(cliffs):
        if answers:
            draw_answers(main, row, rows, *answers[row])
        draw_curve(main, row, rows, result)
        hollow |= draw_bins(main, row, rows, result)
    _shade_zones(panels, cliffs, limits)
    _cap_lines(panels, cliffs, limits)
    _window_marks(panels, cliffs, limits)
    return hollow


def _shrink(axes: Axes, size: float, first: int = 0) -> None:
    """Scale the lines and marks on ``axes``, except those before ``first``."""
    for line in axes.lines[first:]:
        line.set_linewidth(size * line.get_linewidth())
        line.set_markersize(size * line.get_markersize())
        line.set_markeredgewidth(size * line.get_markeredgewidth())


def plot_scores(
    cliffs: Sequence[Cliffs],
    records: pd.DataFrame | None,
    kind: str,
    width: float,
    dpi: float = 300,
    colours: int | None = None,
) -> bytes:
    """Return the score panel alone, ``width`` inches wide; else as `house.figure_bytes`."""
    with house.styled():
        figure = house.blank_page(width * ASPECT, width, dpi, layout="constrained")
        draw_scores(figure.add_subplot(), cliffs, records)
        return house.figure_bytes(figure, kind, colours)


def _shade_zones(
    panels: Sequence[Axes], results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    """Shade the zones behind the scores, if there is only one model."""
    for zone in results[0].zones if len(results) == 1 else ():
        low, high = max(zone.from_tokens, limits[0]), min(zone.to_tokens, limits[1])
        if high > low:
            for axes in panels:
                axes.axvspan(low, high, color=house.ZONE_SHADE[zone.name], lw=0, zorder=0)


def _limits(results: Sequence[Cliffs], lengths: Sequence[Any]) -> tuple[float, float]:
    """Return the x range: all scored lengths, a nearby window, and a small margin.

    Bins without a score (documents that overflow the window) are left out, to save space.
    """
    values = [float(v) for x in lengths if len(x) for v in (x.min(), x.max())]
    for result in results:
        scored = [b for b in result.bins if b.n != 0 or b.mean is not None]
        values += [v for b in scored for v in (b.min_tokens, b.median_tokens, b.max_tokens) if v]
        values += [p.tokens for p in result.curve]
        values.append(result.safe_cap_tokens or 0.0)
    low, high = house.token_limits([v for v in values if v > 0])
    for window in _windows(results):
        if high < window <= high * (high / low) ** _WINDOW_REACH:
            high = window
    return house.with_air(low, high)


def _windows(results: Sequence[Cliffs]) -> list[float]:
    return sorted({w for r in results if (w := r.window_tokens) and w > 0})


def _spread_panel(axes: Axes, results: Sequence[Cliffs]) -> None:
    axes.set_ylim(0, 0.56)
    axes.set_yticks([0, 0.25, 0.5])
    axes.grid(axis="y")
    for row, result in enumerate(results):
        style = house.look(row)
        points = [
            (dodge(axes, place, row, len(results)), sd)
            for b in result.bins
            if (place := b.median_tokens) and (sd := b.sd) is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=style.colour, lw=1.6, ls=style.dash, zorder=2, clip_on=False)
            marks: dict[str, Any] = {"marker": style.marker, "ms": 6, "mew": 0.8, "zorder": 3}
            house.draw_markers(axes, x, y, style.colour, **marks, clip_on=False)


def _cap_lines(
    panels: Sequence[Axes], results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    main = panels[0]
    placed: list[float] = []
    for row, result in enumerate(results):
        cap = result.safe_cap_tokens
        if cap is None or not limits[0] <= cap <= limits[1]:
            continue
        style = house.look(row)
        for axes in panels:
            axes.axvline(cap, color=style.colour, lw=1.5, ls=style.dash, zorder=1.8, alpha=0.9)
        at = main.transData.transform((cap, 0))[0]
        if any(abs(at - position) < 34 * main.figure.dpi / house.DPI for position in placed):
            continue  # the strip above, or the legend, names it
        words = f"safe cap {wording.tokens(cap)}"
        if _left_of(main, results, cap, words, color=style.colour, fontweight="bold"):
            placed.append(at)


def _left_of(main: Axes, results: Sequence[Cliffs], x: float, words: str, **style: Any) -> bool:
    """Write ``words`` upright, left of a line at ``x``; return whether there is room for them."""
    at = house.shifted(main, x, -5)
    label = main.text(at, 0, words, rotation=90, ha="right", va="bottom", **_NAME, **style)
    extent, frame = label.get_window_extent(), main.get_window_extent()
    low, high = main.get_ylim()
    need = extent.height / frame.height * (high - low)
    left = house.shifted(main, x, -8 - extent.width * house.DPI / main.figure.dpi)
    room = free_height(main, results, left, x, need)
    if room is None or extent.x0 < frame.x0:
        label.remove()
        return False
    label.set_y(room)
    return True


def _window_marks(
    panels: Sequence[Axes], results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    main, windows = panels[0], _windows(results)
    far = [w for w in windows if w > limits[1]]
    y, end = (0.02, "bottom") if far else (0.98, "top")
    for window in windows:
        if limits[0] <= window <= limits[1]:
            for axes in panels:
                axes.axvline(window, color=house.INK, lw=2.2, zorder=1.8)
            words, x = f"window {wording.tokens(window)}", house.shifted(main, window, 7)
            if house.shifted(main, window, 34) < limits[1]:
                main.text(x, y, words, rotation=90, va=end, **_NAME)
            else:
                _left_of(main, results, window, words)
    for place, window in enumerate(far):
        main.annotate(
            f"window {wording.tokens(window)}",
            xy=(1.022, 0.80 - 0.075 * place),
            xytext=(0.985, 0.80 - 0.075 * place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            ha="right",
            va="center",
            annotation_clip=False,
            zorder=6,
            arrowprops={
                "arrowstyle": "-|>",
                "color": house.INK,
                "lw": 1.6,
                "shrinkA": 2,
                "shrinkB": 0,
                "mutation_scale": 14,
            },
            bbox={"boxstyle": "square,pad=0.2", "fc": (1, 1, 1, 0.85), "ec": "none"},
        )


MOST_PANELS = 96
"""Maximum number of models drawn; with more, the panels would be too small to read."""
_MARGIN, _BETWEEN, _ABOVE, _BELOW, _NAMED = 0.62, 0.22, 0.78, 0.62, 0.44
_TALL = 0.98


@house.styled()
def plot_small_multiples(cliffs: Sequence[Cliffs]) -> bytes:
    """Return PNG bytes, 1,840 pixels wide and at most 4,000 tall: one panel per model, in order.

    All panels have the same axes: score 0..1 over log length. A panel shows the bins with their
    intervals, the fitted curve with its band, and the safe cap as a line.
    """
    shown = cliffs[:MOST_PANELS]
    columns = 4 if len(shown) <= 24 else 5 if len(shown) <= 60 else 6
    rows = max(1, math.ceil(len(shown) / columns))
    pitch = _NAMED + _TALL
    height = _ABOVE + rows * pitch + _BELOW
    figure = house.blank_page(height)
    wide = (house.WIDTH - _MARGIN - 0.3 - (columns - 1) * _BETWEEN) / columns
    ends = [end for result in shown for end in wording.measured_range(result) or ()]
    limits = house.with_air(*house.token_limits([max(end, 1) for end in ends]))
    for place, (name, result) in enumerate(zip(wording.labels(cliffs), shown, strict=False)):
        row, column = divmod(place, columns)
        left = _MARGIN + column * (wide + _BETWEEN)
        bottom = height - _ABOVE - (row + 1) * pitch + 0.06
        axes = house.panel(figure, left, bottom, wide, _TALL)
        below = place + columns >= len(shown)
        house.token_axis(axes, limits, named=below, most=4)
        axes.set_ylim(-0.04, 1.06)
        axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"] if column == 0 else [""] * 3)
        axes.tick_params(length=2, labelsize=8.5)
        axes.grid(axis="y")
        _shade_zones((axes,), [result], limits)
        draw_curve(axes, 0, 1, result)
        draw_bins(axes, 0, 1, result)
        if result.safe_cap_tokens is not None:
            axes.axvline(result.safe_cap_tokens, color=house.INK, lw=2.8, zorder=3)
        _shrink(axes, 0.45)
        top = bottom + _TALL
        house.write(figure, left, top + 0.25, house.shortened(name, int(wide * 12.5)), fontsize=9.5)
        cap = result.safe_cap_tokens
        words = "no safe cap" if cap is None else f"safe cap {wording.tokens(cap)}"
        house.write(figure, left, top + 0.1, words, fontsize=8.5, color=house.SOFT_INK)
    number = f"the first {len(shown)} of {len(cliffs)}" if len(shown) < len(cliffs) else len(cliffs)
    kinds = {wording.score_name(result) for result in cliffs}
    measure = kinds.pop() if len(kinds) == 1 else "score"
    house.write(figure, 0.37, height - 0.27, f"{number} models", fontsize=13, fontweight="bold")
    levels = {f"{wording.level(result.confidence)} " for result in cliffs}
    of = levels.pop() if len(levels) == 1 else ""
    words = f"Mean {measure} over length: bins with {of}intervals, fitted curve with its band, "
    house.write(figure, 0.37, height - 0.52, f"{words}line: safe cap", color=house.SOFT_INK)
    house.write(figure, 0.37, 0.2, f"{wording.length_axis(cliffs)} (log scale)", fontsize=10)
    return house.png_bytes(figure, 64)
