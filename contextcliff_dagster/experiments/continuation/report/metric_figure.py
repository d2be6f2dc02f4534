"""Every metric over context size as small panels: the plain picture of the interactive one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.continuation.report.metric_chart import (
    author_figures,
    points_of,
)
from contextcliff_dagster.experiments.continuation.report.metric_names import metric_name
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording.number_format import level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from contextcliff_dagster.experiments.continuation.results import ContinuationResult
    from contextcliff_dagster.reporting.html.metric_chart import Point

_COLUMNS = 4
_LEFT, _GAP, _HEAD, _FOOT = 0.55, 0.5, 1.0, 0.75
_TALL, _NAME = 1.05, 0.6
_AUTHOR = "#2E8B57"


@house.styled()
def plot_metrics(result: ContinuationResult) -> bytes | None:
    """PNG bytes: a panel for each metric that any arm has; None without any but score and share.

    Bars are intervals; dashed with a band of one SD: the authors. Same input, same bytes.
    """
    points = [points_of(arm, result) for arm in result.arms]
    shown = [
        key
        for key in ("score", "intact", *(one.name for one in result.metrics))
        if any(point.mean is not None for arm in points for point in arm.get(key, ()))
    ]
    if not set(shown) - {"score", "intact"}:
        return None
    pitch = _TALL + _NAME
    height = _HEAD + math.ceil(len(shown) / _COLUMNS) * pitch + _FOOT
    figure = house.blank_page(height)
    wide = (house.WIDTH - _LEFT - 0.3 - (_COLUMNS - 1) * _GAP) / _COLUMNS
    limits = house.with_air(*house.token_limits([float(size) for size in result.sizes]))
    authors = author_figures(result)
    for place, key in enumerate(shown):
        row, column = divmod(place, _COLUMNS)
        left, bottom = _LEFT + column * (wide + _GAP), height - _HEAD - (row + 1) * pitch + 0.12
        axes = house.panel(figure, left, bottom, wide, _TALL)
        house.token_axis(axes, limits, named=place + _COLUMNS >= len(shown), most=4)
        axes.tick_params(length=2, labelsize=8.5)
        axes.locator_params(axis="y", nbins=4)
        axes.grid(axis="y")
        if key in authors:
            mean, band = authors[key]
            axes.axhline(mean, color=_AUTHOR, ls="--", lw=1.1, zorder=1)
            if band:
                axes.axhspan(*band, color=_AUTHOR, alpha=0.1, lw=0, zorder=0)
        for number, arm in enumerate(points):
            _draw(axes, result.sizes, arm.get(key, ()), number)
        house.write(
            figure, left, bottom + _TALL + 0.15, house.shortened(metric_name(key), 34), fontsize=9
        )
    title = f"Metrics of prose over context size: {house.shortened(result.model, 48)}"
    house.write(figure, 0.4, height - 0.3, title, fontsize=13, fontweight="bold")
    figure.legend(
        handles=_legend(result),
        loc="upper left",
        bbox_to_anchor=(0.025, 1 - 0.42 / height),
        ncol=min(len(result.arms), 5),
        fontsize=9.5,
    )
    note = (
        f"Tokens of context (log scale). Means over passages with {level(result.confidence)} "
        "intervals. Dashed: the authors, with a band of one SD between passages."
    )
    house.write(figure, 0.4, 0.25, note, fontsize=9.5, color=house.SOFT_INK)
    return house.png_bytes(figure, 64)


def _draw(axes: Axes, sizes: Sequence[int], points: Sequence[Point], number: int) -> None:
    style = house.look(number)
    found = [(x, one.mean, one) for x, one in zip(sizes, points, strict=False)]
    known = [(x, mean, one) for x, mean, one in found if mean is not None]
    at, means = [x for x, _, _ in known], [mean for _, mean, _ in known]
    axes.plot(at, means, color=style.colour, ls=style.dash, lw=1.2, zorder=3)
    house.draw_markers(axes, at, means, style.colour, marker=style.marker, ms=4, mew=0.5, zorder=4)
    for x, _, one in known:
        if one.interval is not None:
            axes.plot([x, x], one.interval, color=style.colour, lw=0.9, zorder=2)


def _legend(result: ContinuationResult) -> list[Line2D]:
    from matplotlib.lines import Line2D

    styles = [(house.look(number), arm.arm) for number, arm in enumerate(result.arms)]
    return [
        Line2D(
            [],
            [],
            color=style.colour,
            ls=style.dash,
            marker=style.marker,
            label=house.shortened(name, 28),
        )
        for style, name in styles
    ]
