"""Picture of regret by step: all runs, the levels of each axis, and searches without a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.visibility.report.names import (
    AXIS_NAMES,
    SEARCH_NAMES,
    level_name,
)
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import count, level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from contextcliff_dagster.extensions.visibility.results import (
        Curve,
        SearchComparison,
        VisibilityResult,
    )

_LEFT, _GAP, _FOOT = 0.75, 0.45, 1.15
_TALL, _ROW = 2.3, 3.05
_DASHES = ((0, (1, 1.4)), (0, (4, 1.6)), (0, (6, 1.6, 1.2, 1.6)), (0, (9, 2)))
_MOST_MARKS = 24
"""Largest number of steps at which every step has a mark."""


@house.styled()
def plot_curves(result: VisibilityResult) -> bytes | None:
    """Return the picture as PNG bytes; None if there are no curves.

    The first panel shows all runs; each varying axis has its own panel with one line per level.
    Thin grey lines are searches without a model. The same input gives the same bytes.
    """
    if not result.curves:
        return None
    groups: dict[str | None, list[Curve]] = {}
    for curve in result.curves:
        groups.setdefault(curve.axis, []).append(curve)
    columns = min(3, len(groups)) if len(groups) != 4 else 2
    rows = math.ceil(len(groups) / columns)
    wide = (house.WIDTH - _LEFT - 0.3 - (columns - 1) * _GAP) / columns
    head = 1.15 if result.searches else 0.8
    height = head + rows * _ROW - (_ROW - _TALL) + _FOOT
    figure = house.blank_page(height)
    top = _top(result)
    for place, (axis, curves) in enumerate(groups.items()):
        row, column = divmod(place, columns)
        bottom = height - head - row * _ROW - _TALL
        axes = house.panel(figure, _LEFT + column * (wide + _GAP), bottom, wide, _TALL)
        _frame(axes, result, top)
        axes.tick_params(axis="y", labelleft=column == 0)
        all_name = "the run" if result.n_runs == 1 else "all runs"
        axes.set_title(all_name if axis is None else AXIS_NAMES.get(axis, axis), fontsize=12)
        if column == 0:
            axes.set_ylabel("regret")
        if place + columns >= len(groups):
            axes.set_xlabel("step (0: start)")
        _draw_searches(axes, result.searches)
        for number, curve in enumerate(curves):
            _draw(axes, curve, number)
        if axis is not None:
            axes.legend(
                loc="upper right",
                fontsize=9.5,
                handlelength=2.6,
                borderpad=0.2,
                frameon=True,
                framealpha=0.85,
                edgecolor="none",
            )
    title = f"Regret of the reported configuration: {house.shortened(result.model, 46)}"
    house.write(figure, 0.3, height - 0.3, title, fontsize=14, fontweight="bold")
    if result.searches:
        figure.legend(
            handles=_search_handles(result.searches),
            loc="center left",
            bbox_to_anchor=(0.22 / house.WIDTH, 1 - 0.64 / height),
            ncol=len(result.searches) + 1,
            borderpad=0,
            fontsize=10,
        )
    for line, text in enumerate(_notes(result)):
        house.write(figure, 0.3, 0.44 - 0.22 * line, text, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=128)


def _top(result: VisibilityResult) -> float:
    """Return the axis maximum: above all means, and above intervals that are not far larger."""
    every = [*result.curves, *(search.curve for search in result.searches)]
    points = [p for curve in every for p in curve.points]
    highest = max([0.1, *(p.regret for p in points)])
    ends = max([highest, *(p.ci_high for p in points if p.ci_high is not None)])
    return min(1.06 * ends, 1.7 * highest)


def _frame(axes: Axes, result: VisibilityResult, top: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(-0.03 * result.steps - 0.05, result.steps * 1.03 + 0.05)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.set_ylim(-0.02 * top, top)
    axes.grid(axis="y")


def _draw(axes: Axes, curve: Curve, number: int) -> None:
    style = house.look(number)
    at, means = [p.step for p in curve.points], [p.regret for p in curve.points]
    with_limits = [p for p in curve.points if p.ci_low is not None and p.ci_high is not None]
    axes.fill_between(
        [p.step for p in with_limits],
        [p.ci_low or 0.0 for p in with_limits],
        [p.ci_high or 0.0 for p in with_limits],
        color=style.colour,
        alpha=0.14,
        lw=0,
        zorder=1,
    )
    name = level_name(curve.axis or "", curve.level)
    axes.plot(at, means, color=style.colour, ls=style.dash, lw=1.9, zorder=4, label=name)
    if len(at) <= _MOST_MARKS:
        house.draw_markers(
            axes, at, means, style.colour, marker=style.marker, ms=5, mew=0.7, zorder=5
        )


def _draw_searches(axes: Axes, searches: Sequence[SearchComparison]) -> None:
    for place, search in enumerate(searches):
        at, means = [p.step for p in search.curve.points], [p.regret for p in search.curve.points]
        axes.plot(at, means, color=house.SOFT_INK, ls=_DASHES[place % 4], lw=1.1, zorder=3)


def _search_handles(searches: Sequence[SearchComparison]) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], ls="none", label="Without a model:")]
    for place, search in enumerate(searches):
        name = SEARCH_NAMES.get(search.name, search.name)
        handles.append(
            Line2D([], [], color=house.SOFT_INK, ls=_DASHES[place % 4], lw=1.1, label=name)
        )
    return handles


def _notes(result: VisibilityResult) -> list[str]:
    of = result.curves[0]
    spread = ""
    if any(p.ci_low is not None for curve in result.curves for p in curve.points):
        spread = f" with {level(result.confidence)} intervals"
    n = f"{count(of.n_runs, 'run')} of {count(of.n_clusters, 'benchmark-seed')}"
    means = f"Lines: means over benchmark-seeds{spread}; {n}. "
    searches = "Searches use the same splits, starts and budget." if result.searches else ""
    return [
        f"{means if of.n_runs > 1 else ''}{searches}",
        "0: the best configuration of the landscape, 1: the worst.",
    ]
