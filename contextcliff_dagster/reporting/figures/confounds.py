"""The picture about the questions: small panels, each with the score against one thing it may be.

The curve at an equal mix beside the one as measured, the place and the distance of the evidence,
levels side by side, and the controls; a block of panels per model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

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
from contextcliff_dagster.reporting.wording.confound_terms import (
    CATEGORY_WORDS,
    control_words,
    shown_mix,
)
from contextcliff_dagster.reporting.wording.number_format import tokens
from contextcliff_dagster.reporting.wording.sentences import labels, score_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.fields import BinMean, BinResult
    from contextcliff_dagster.contracts.results.questions import EvidenceCurve, EvidenceGroup

_WIDTH, _LEFT, _RIGHT, _APART = 11.5, 0.62, 0.25, 0.52
_HEAD, _NAME, _TITLE, _TALL, _FOOT = 0.58, 0.34, 0.56, 1.95, 0.62
_MOST_COLUMNS, _LETTERS = 3, 60


Points = Sequence[tuple[float, float, float | None, float | None]]


class Series(NamedTuple):
    """Points of one line: x, mean, interval; ``label`` stands in the panel's legend."""

    label: str
    points: Points
    colour: str
    marker: str = "o"
    hollow: bool = False


class Panel(NamedTuple):
    """One small picture: its title, its lines, and what its x axis is."""

    title: str
    series: list[Series]
    axis: str
    log: bool = True
    marks: tuple[tuple[float, str], ...] = ()


def plot_questions(cliffs: Sequence[Cliffs]) -> bytes | None:
    """The picture as PNG bytes; ``None`` where no result says anything of its questions.

    ``cliffs``: results of the contract. Same input, same bytes.
    """
    shown = [
        (name, result, panels)
        for row, (name, result) in enumerate(zip(labels(cliffs), cliffs, strict=True))
        if (panels := _panels(result, look(row).colour))
    ]
    if not shown:
        return None
    with house_style():
        return png_bytes(_figure(shown))


def _panels(result: Cliffs, colour: str) -> list[Panel]:
    makers: tuple[Callable[[Cliffs, str], Panel | None], ...] = (
        _of_mix,
        _of_controls,
        _of_position,
        _of_distance,
        _of_levels,
    )
    return [panel for make in makers if (panel := make(result, colour)) is not None]


def _of_mix(result: Cliffs, colour: str) -> Panel | None:
    row = shown_mix(result)
    if row is None:
        return None
    at = _medians(result)
    equal, raw = [], []
    for item in row.bins:
        x, mean = at.get(item.bin), item.standardised
        if x is None:
            continue
        if mean is not None:
            equal.append((x, mean, item.ci_low, item.ci_high))
        if (measured := item.mean) is not None:
            raw.append((x, measured, None, None))
    series = [
        Series("as measured", raw, SOFT_INK, "D", hollow=True),
        Series("at an equal mix", equal, colour),
    ]
    title = f"At an equal mix of {CATEGORY_WORDS[row.category]}"
    return Panel(title, series, "tokens of the document")


def _of_controls(result: Cliffs, colour: str) -> Panel | None:
    controls = result.controls
    if not controls:
        return None
    at = _medians(result)
    series = [Series("document", _points(result.bins, at), colour)]
    for place, control in enumerate(controls):
        shown, marker = control_words(control.name), ("s", "^")[place % 2]
        points = _points(control.bins, at)
        series.append(Series(shown, points, (SOFT_INK, INK)[place % 2], marker, True))
    return Panel("Controls: the same questions", series, "tokens of the document")


def _of_position(result: Cliffs, colour: str) -> Panel | None:
    groups = _with_means(result.by_position)
    if len(groups) < 2:
        return None
    series = _evidence(groups, colour, lambda low, high: 50.0 * (low + high))
    return Panel("Evidence position", series, "position in the text, %", log=False)


def _of_distance(result: Cliffs, colour: str) -> Panel | None:
    groups = _with_means(result.by_distance)
    if len(groups) < 2:
        return None
    series = _evidence(groups, colour, lambda low, high: (max(low, 1.0) * max(high, 1.0)) ** 0.5)
    return Panel("Distance between two pieces", series, "tokens between them")


def _with_means(curve: EvidenceCurve | None) -> list[EvidenceGroup]:
    return [] if curve is None else [g for g in curve.groups if g.mean is not None]


def _evidence(
    groups: Sequence[EvidenceGroup], colour: str, middle: Callable[[float, float], float]
) -> list[Series]:
    raw, equal = [], []
    for group in groups:
        x = middle(group.low, group.high)
        mean, same = group.mean, group.at_equal_length
        if mean is not None:
            raw.append((x, mean, None, None))
        if same is not None:
            equal.append((x, same, group.at_equal_length_low, group.at_equal_length_high))
    return [
        Series("as measured", raw, SOFT_INK, "D", hollow=True),
        Series("at equal length", equal, colour),
    ]


def _of_levels(result: Cliffs, colour: str) -> Panel | None:
    levels = result.levels
    if not levels:
        return None
    at, shades = _medians(result), (colour, INK, SOFT_INK, FAINT)
    series, marks = [], []
    for place, level in enumerate(levels):
        shade, name = shades[place % 4], shortened(level.name, 12)
        if (cap := level.safe_cap_tokens) is not None:
            marks.append((cap, shade))
        label = f"{name} (cap {tokens(cap)})" if cap is not None else f"{name} (no cap)"
        points = _points(level.bins, at)
        series.append(Series(label, points, shade, ("o", "s", "^", "D")[place % 4], place > 0))
    return Panel("Each level on its own", series, "tokens of the document", marks=tuple(marks))


def _medians(result: Cliffs) -> dict[str, float]:
    return {b.bin: b.median_tokens for b in result.bins if b.median_tokens}


def _points(bins: Sequence[BinMean | BinResult], at: Mapping[str, float]) -> Points:
    return [
        (at[b.bin], b.mean, b.ci_low, b.ci_high) for b in bins if b.bin in at and b.mean is not None
    ]


def _figure(shown: Sequence[tuple[str, Cliffs, list[Panel]]]) -> Figure:
    from matplotlib.figure import Figure

    most = max(len(panels) for _, _, panels in shown)
    columns = min(max(most, 2), _MOST_COLUMNS)  # two panels fill the width, one alone its half
    rows = [-(-len(panels) // columns) for _, _, panels in shown]
    block = _TITLE + _TALL + _FOOT
    height = _HEAD + sum(_NAME + block * count for count in rows)
    figure = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor="white")
    heading = "Is it length? The score against other properties of the questions"
    at = 0.18 / _WIDTH
    figure.text(at, 1 - 0.32 / height, heading, fontsize=14, fontweight="bold", va="center")
    wide = (_WIDTH - _LEFT - _RIGHT - (columns - 1) * _APART) / columns
    top = height - _HEAD
    for (name, result, panels), count in zip(shown, rows, strict=True):
        title = f"{shortened(name, _LETTERS)}: {drawable(score_name(result))}"
        figure.text(at, (top - 0.14) / height, title, fontsize=11.5, fontweight="bold", va="center")
        top -= _NAME
        for place, panel in enumerate(panels):
            row, column = divmod(place, columns)
            left = _LEFT + column * (wide + _APART)
            bottom = top - row * block - _TITLE - _TALL
            box = (left / _WIDTH, bottom / height, wide / _WIDTH, _TALL / height)
            _draw(figure.add_axes(box), panel, first=column == 0)
        top -= block * count
    return figure


def _draw(axes: Axes, panel: Panel, *, first: bool) -> None:
    xs = [x for series in panel.series for x, *_ in series.points]
    if panel.log:
        limits = with_air(*token_limits([x for x in xs if x > 0]))
        token_axis(axes, limits)
        ticks = token_ticks(*limits, most=5)
        axes.set_xticks(ticks, [token_label(t) for t in ticks])
    else:
        axes.set_xlim(0, 100)
        axes.set_xticks([0, 20, 40, 60, 80, 100])
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", ".5", "", "1"] if first else [""] * 5)
    axes.tick_params(labelsize=9)
    axes.grid(axis="y", color=FAINT, lw=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel(panel.axis, fontsize=9.5)
    axes.set_title(panel.title, loc="left", fontsize=10.5, fontweight="bold", pad=21)
    for cap, shade in panel.marks:
        axes.axvline(cap, color=shade, lw=1.1, ls=(0, (4, 2)), zorder=1)
    for place, series in enumerate(panel.series):
        _line(axes, series, place, len(panel.series), log=panel.log)
    _legend(axes, panel)


def _line(axes: Axes, series: Series, place: int, count: int, *, log: bool) -> None:
    if not series.points:
        return
    import numpy as np

    shift = 0.018 * (place - 0.5 * (count - 1))  # of the axis: intervals would hide each other
    low, high = axes.get_xlim()
    x = np.array([point[0] for point in series.points])
    x = x * (high / low) ** shift if log else x + shift * (high - low)
    y = np.array([point[1] for point in series.points])
    for at, (_, _, least, most) in zip(x, series.points, strict=True):
        if least is not None and most is not None:
            axes.plot([at, at], [least, most], color=series.colour, lw=1.1, alpha=0.75, zorder=2)
    axes.plot(
        x,
        y,
        color=series.colour,
        lw=1.2,
        marker=series.marker,
        ms=5,
        mfc="white" if series.hollow else series.colour,
        mec=series.colour,
        mew=1.1,
        zorder=3,
        clip_on=False,
    )


def _legend(axes: Axes, panel: Panel) -> None:
    """The lines' names above the panel, side by side."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=series.colour,
            lw=1.2,
            marker=series.marker,
            ms=5,
            mfc="white" if series.hollow else series.colour,
            mec=series.colour,
        )
        for series in panel.series
        if series.points
    ]
    names = [series.label for series in panel.series if series.points]
    axes.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.985),
        ncols=len(names),
        frameon=False,
        fontsize=8.5,
        handlelength=1.5,
        handletextpad=0.35,
        columnspacing=0.9,
        borderpad=0.1,
    )
