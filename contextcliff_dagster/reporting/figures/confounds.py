"""Picture of the questions: small panels, each with the score against one property.

Each model has a block of panels: the curve at an equal mix next to the measured one, position and
distance of the evidence, levels side by side, and the controls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.contracts.results.metrics import CATEGORY_WORDS
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.figures import house

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.json_form import BinMean, BinResult
    from contextcliff_dagster.contracts.results.questions import EvidenceCurve

_LEFT, _RIGHT, _APART = 0.62, 0.25, 0.52
_HEAD, _NAME, _TITLE, _TALL, _FOOT = 0.58, 0.34, 0.56, 1.95, 0.62
_BLOCK = _TITLE + _TALL + _FOOT
_MOST_COLUMNS, _LETTERS = 3, 60
_LENGTH = "tokens of the document"

Number = float | None


class Series(NamedTuple):
    """One line of a panel. ``points``: x, mean, interval; ``label``: its name in the legend."""

    label: str
    points: Sequence[tuple[float, float, Number, Number]]
    colour: str
    marker: str = "o"
    hollow: bool = False


class Panel(NamedTuple):
    """One small chart: its title, lines, x axis, and vertical marks."""

    title: str
    series: list[Series]
    axis: str = _LENGTH
    log: bool = True
    marks: Sequence[tuple[float, str]] = ()


@house.styled()
def plot_questions(cliffs: Sequence[Cliffs]) -> bytes | None:
    """Return the picture as PNG bytes; None if no result has data on its questions.

    ``cliffs``: contract results. Same input, same bytes.
    """
    models = [
        (f"{house.shortened(name, _LETTERS)}: {house.drawable(wording.score_name(result))}", panels)
        for row, (name, result) in enumerate(zip(wording.labels(cliffs), cliffs, strict=True))
        if (panels := _panels(result, house.look(row).colour))
    ]
    if not models:
        return None
    most = max(len(panels) for _, panels in models)
    columns = min(max(most, 2), _MOST_COLUMNS)  # two panels fill the width, one alone its half
    rows = [-(-len(panels) // columns) for _, panels in models]
    top = sum(_NAME + _BLOCK * count for count in rows)
    figure = house.blank_page(_HEAD + top)
    heading = "Is it length? The score against other properties of the questions"
    house.write(figure, 0.18, _HEAD + top - 0.32, heading, fontsize=14, fontweight="bold")
    wide = (house.WIDTH - _LEFT - _RIGHT - (columns - 1) * _APART) / columns
    for (title, panels), count in zip(models, rows, strict=True):
        house.write(figure, 0.18, top - 0.14, title, fontsize=11.5, fontweight="bold")
        top -= _NAME
        for place, content in enumerate(panels):
            row, column = divmod(place, columns)
            left, bottom = _LEFT + column * (wide + _APART), top - row * _BLOCK - _TITLE - _TALL
            _draw(house.panel(figure, left, bottom, wide, _TALL), content, first=column == 0)
        top -= _BLOCK * count
    return house.png_bytes(figure)


def _panels(result: Cliffs, colour: str) -> list[Panel]:
    medians = {b.bin: float(b.median_tokens) for b in result.bins if b.median_tokens}
    panels = (
        _mix(result, medians, colour),
        _controls(result, medians, colour),
        _evidence(
            result.by_position,
            colour,
            lambda low, high: 50.0 * (low + high),
            Panel("Evidence position", [], "position in the text, %", log=False),
        ),
        _evidence(
            result.by_distance,
            colour,
            lambda low, high: (max(low, 1.0) * max(high, 1.0)) ** 0.5,
            Panel("Distance between two pieces", [], "tokens between them"),
        ),
        _levels(result, medians, colour),
    )
    return [panel for panel in panels if panel is not None]


def _mix(result: Cliffs, medians: Mapping[str, float], colour: str) -> Panel | None:
    row = wording.shown_mix(result)
    if row is None:
        return None
    means = [
        (medians[b.bin], b.mean, b.standardised, b.ci_low, b.ci_high)
        for b in row.bins
        if b.bin in medians
    ]
    title = f"At an equal mix of {CATEGORY_WORDS[row.category]}"
    return Panel(title, _raw_and_equal(means, "at an equal mix", colour))


def _evidence(
    curve: EvidenceCurve | None,
    colour: str,
    middle: Callable[[float, float], float],
    empty: Panel,
) -> Panel | None:
    """Return ``empty`` filled with group means, each at the ``middle`` of the group's ends."""
    groups = [group for group in curve.groups if group.mean is not None] if curve else []
    if len(groups) < 2:
        return None
    means = []
    for group in groups:
        low, high = group.at_equal_length_low, group.at_equal_length_high
        means.append((middle(group.low, group.high), group.mean, group.at_equal_length, low, high))
    return empty._replace(series=_raw_and_equal(means, "at equal length", colour))


def _raw_and_equal(
    means: Sequence[tuple[float, Number, Number, Number, Number]], label: str, colour: str
) -> list[Series]:
    """Return two lines from (x, measured mean, mean with one property held equal, interval)."""
    raw = [(x, mean, None, None) for x, mean, *_ in means if mean is not None]
    equal = [(x, mean, low, high) for x, _, mean, low, high in means if mean is not None]
    return [Series("as measured", raw, house.SOFT_INK, "D", True), Series(label, equal, colour)]


def _controls(result: Cliffs, medians: Mapping[str, float], colour: str) -> Panel | None:
    if not result.controls:
        return None
    series = [_by_bin("document", result.bins, medians, colour)]
    looks = ((house.SOFT_INK, "s"), (house.INK, "^"))
    for place, control in enumerate(result.controls):
        label = wording.CONTROL_WORDS[control.name]
        series.append(_by_bin(label, control.bins, medians, *looks[place % 2], True))
    return Panel("Controls: the same questions", series)


def _levels(result: Cliffs, medians: Mapping[str, float], colour: str) -> Panel | None:
    if not result.levels:
        return None
    looks = ((colour, "o"), (house.INK, "s"), (house.SOFT_INK, "^"), (house.FAINT, "D"))
    series, marks = [], []
    for place, level in enumerate(result.levels):
        shade, marker = looks[place % 4]
        cap = level.safe_cap_tokens
        if cap is not None:
            marks.append((cap, shade))
        caption = "no cap" if cap is None else f"cap {wording.tokens(cap)}"
        label = f"{house.shortened(level.name, 12)} ({caption})"
        series.append(_by_bin(label, level.bins, medians, shade, marker, place > 0))
    return Panel("Each level on its own", series, marks=marks)


def _by_bin(
    label: str,
    bins: Sequence[BinMean | BinResult],
    medians: Mapping[str, float],
    colour: str,
    marker: str = "o",
    hollow: bool = False,
) -> Series:
    points = [
        (medians[b.bin], b.mean, b.ci_low, b.ci_high)
        for b in bins
        if b.bin in medians and b.mean is not None
    ]
    return Series(label, points, colour, marker, hollow)


def _draw(axes: Axes, content: Panel, *, first: bool) -> None:
    if content.log:
        lengths = [x for series in content.series for x, *_ in series.points if x > 0]
        house.token_axis(axes, house.with_air(*house.token_limits(lengths)), most=5)
    else:
        axes.set_xlim(0, 100)
        axes.set_xticks([0, 20, 40, 60, 80, 100])
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", ".5", "", "1"] if first else [""] * 5)
    axes.tick_params(labelsize=9)
    axes.grid(axis="y")
    axes.set_xlabel(content.axis, fontsize=9.5)
    axes.set_title(content.title, fontsize=10.5, pad=21)
    for cap, shade in content.marks:
        axes.axvline(cap, color=shade, lw=1.1, ls=(0, (4, 2)), zorder=1)
    for place, series in enumerate(content.series):
        if series.points:
            # Shifted by a part of the axis: intervals would hide each other.
            _line(axes, series, 0.018 * (place - 0.5 * (len(content.series) - 1)))
    house.legend_above(axes, 0.985)


def _line(axes: Axes, series: Series, shift: float) -> None:
    low, high = axes.get_xlim()
    log = axes.get_xscale() == "log"
    xs = [x * (high / low) ** shift if log else x + shift * (high - low) for x, *_ in series.points]
    for x, (_, _, bottom, top) in zip(xs, series.points, strict=True):
        if bottom is not None and top is not None:
            axes.plot([x, x], [bottom, top], color=series.colour, lw=1.1, alpha=0.75, zorder=2)
    axes.plot(
        xs,
        [mean for _, mean, *_ in series.points],
        label=series.label,
        color=series.colour,
        lw=1.2,
        marker=series.marker,
        ms=5,
        mfc="white" if series.hollow else series.colour,
        mew=1.1,
        zorder=3,
        clip_on=False,
    )
