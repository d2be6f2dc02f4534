"""Single runs by step: validation scores, and where each parameter lies within its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.reporting.figures import house

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from contextcliff_dagster.extensions.visibility.report.recorded_run import RecordedRun
    from contextcliff_dagster.extensions.visibility.report.trajectory import Trajectory
    from contextcliff_dagster.extensions.visibility.tasks.task import Task

_LEFT, _WIDE, _GAP = 0.85, 4.75, 0.65
_TALL, _ROW, _HEAD, _FOOT = 2.1, 3.2, 1.3, 1.15
_NOT_THE_MODELS = "#B3261E"
_MOST_MARKS = 40
"""Steps up to which each one has a mark; a fallback always has one."""


@house.styled()
def plot_trajectories(told: Sequence[Trajectory]) -> bytes | None:
    """The picture as PNG bytes, a row each run; None without a run. Same input, same bytes."""
    if not told:
        return None
    height = _HEAD + _ROW * len(told) - (_ROW - _TALL) + _FOOT
    figure = house.blank_page(height)
    for row, one in enumerate(told):
        bottom = height - _HEAD - row * _ROW - _TALL
        task = task_named(one.run.benchmark)
        scores = house.panel(figure, _LEFT, bottom, _WIDE, _TALL)
        places = house.panel(figure, _LEFT + _WIDE + _GAP, bottom, _WIDE, _TALL)
        title = f"{one.why}: {house.shortened(one.run.key, 70)}"
        house.write(figure, 0.3, bottom + _TALL + 0.56, title, fontsize=11, fontweight="bold")
        _scores(scores, one.run, task)
        _places(places, one.run, task)
        for axes in (scores, places):
            _frame(axes, one.run, named=row == len(told) - 1)
    title = f"Runs step by step: {house.shortened(told[0].model, 50)}"
    house.write(figure, 0.3, height - 0.3, title, fontsize=14, fontweight="bold")
    notes = (
        "Left: dashed, the best so far. Red crosses: fallbacks, which the model did not choose.",
        "Right: each parameter between its bounds, on its own scale.",
    )
    for line, text in enumerate(notes):
        house.write(figure, 0.3, 0.44 - 0.22 * line, text, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=128)


def _frame(axes: Axes, run: RecordedRun, *, named: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(-0.03 * run.planned_steps - 0.05, run.planned_steps * 1.03 + 0.05)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.grid(axis="y")
    if named:
        axes.set_xlabel("step (0: start)")


def _scores(axes: Axes, run: RecordedRun, task: Task) -> None:
    axes.set_ylabel(house.shortened(task.score.name, 26))
    direction = "higher" if task.score.higher_is_better else "lower"
    axes.set_title(f"validation score, {direction} is better", fontsize=10, fontweight="normal")
    known = [one for one in run.steps if one.validation is not None]
    at, scores = [one.number for one in known], [one.validation or 0.0 for one in known]
    axes.plot(at, scores, color=house.look(0).colour, lw=1.2, zorder=2)
    best, so_far = None, []
    for score in scores:
        better = max if task.score.higher_is_better else min
        best = score if best is None else better(best, score)
        so_far.append(best)
    axes.step(at, so_far, where="post", color=house.SOFT_INK, lw=1.1, ls=(0, (4, 2)), zorder=1)
    chosen = [one for one in known if one.step.source != "fallback"]
    if len(run.steps) <= _MOST_MARKS:
        x, y = [one.number for one in chosen], [one.validation for one in chosen]
        house.draw_markers(axes, x, y, house.look(0).colour, ms=6, mew=0.8, zorder=4)
    lost = [one for one in known if one.step.source == "fallback"]
    axes.plot(
        [one.number for one in lost],
        [one.validation or 0.0 for one in lost],
        ls="none",
        marker="x",
        color=_NOT_THE_MODELS,
        ms=7,
        mew=1.8,
        zorder=5,
    )


def _places(axes: Axes, run: RecordedRun, task: Task) -> None:
    axes.set_ylim(-0.06, 1.06)
    axes.set_yticks([0, 0.5, 1], ["lower", "middle", "upper"])
    at = [one.number for one in run.steps]
    rows = [task.space.positions(one.step.config) for one in run.steps]
    for number, name in enumerate(task.space.names):
        style = house.look(number)
        places = [float(row[number]) for row in rows]
        marks: dict[str, Any] = {"color": style.colour, "ls": style.dash, "lw": 1.5, "zorder": 3}
        axes.plot(at, places, label=house.shortened(name, 22), **marks)
        if len(at) <= _MOST_MARKS:
            house.draw_markers(axes, at, places, style.colour, marker=style.marker, ms=5, mew=0.7)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.01, 1.0),
        ncol=3,
        fontsize=9.5,
        handlelength=2.4,
        borderpad=0.1,
        columnspacing=1.2,
    )
