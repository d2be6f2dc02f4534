"""A run in words, step by step, and which runs a report describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.visibility.axes import AXES
from contextcliff_dagster.extensions.visibility.behaviour import Behaviour, behaviour_of
from contextcliff_dagster.extensions.visibility.report.names import joined, score_words
from contextcliff_dagster.extensions.visibility.report.step_words import (
    RecordedRun,
    recorded_run,
    start_sentence,
    step_sentence,
)
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.reporting.wording.number_format import count, score

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.extensions.visibility.tasks.task import Task

MOSTLY = 0.5
"""Share of steps from which on a run is described by them."""
SMALL_MOVES, LARGE_MOVES = 0.05, 0.3
"""Churn below which a run moves little, and from which on it jumps."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A run in words: ``why`` it was chosen, its start and steps, how it searched, its regret."""

    model: str
    why: str
    run: RecordedRun
    steps: Sequence[str]
    summary: Sequence[str]


def trajectories_of(records: pd.DataFrame) -> list[Trajectory]:
    """Return two runs of each model: of the combination that shows most, median and worst regret.

    That combination has the most axes shown, then the longest history, then the first signature.
    Only whole runs count; of an even number the better of the middle two is the median. Models
    without a whole run have none.
    """
    found = []
    for model, rows in records.groupby("model", sort=False):
        shown = _shows_most(rows)
        whole = {
            key: made
            for key, of_run in shown.groupby("run")
            if (made := recorded_run(_rows(of_run))).is_whole and made.regret is not None
        }
        ranked = sorted(whole.values(), key=lambda one: (one.regret, one.key))
        if not ranked:
            continue
        median, worst = ranked[(len(ranked) - 1) // 2], ranked[-1]
        of = f"of {count(len(ranked), 'run')} that {'shows' if len(ranked) == 1 else 'show'} most"
        why = f"Median regret {of}" if len(ranked) > 1 else "The run"
        found.append(trajectory_of(str(model), median, why))
        if worst is not median:
            found.append(trajectory_of(str(model), worst, f"Most regret {of}"))
    return found


def trajectory_of(model: str, run: RecordedRun, why: str) -> Trajectory:
    """Return a run as sentences: its start, each step, how it searched, what it would report."""
    task = task_named(run.benchmark)
    start, *steps = run.steps
    searched = behaviour_of(task.space, [one.step for one in run.steps])
    return Trajectory(
        model=model,
        why=why,
        run=run,
        steps=[
            start_sentence(start, task),
            *(step_sentence(run.steps[: k + 1], one, task) for k, one in enumerate(steps)),
        ],
        summary=[_way(searched), _outcome(run, task)],
    )


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.itertuples(index=False)]


def _shows_most(rows: pd.DataFrame) -> pd.DataFrame:
    columns = [f"axis_{name}" for name in AXES]
    combinations = _rows(rows[columns].drop_duplicates())

    def rank(levels: Mapping[str, Any]) -> tuple[int, int, str]:
        shown = sum(value == "shown" for value in levels.values()) + (levels["axis_history"] > 0)
        return -shown, -int(levels["axis_history"]), str([levels[name] for name in columns])

    most = min(combinations, key=rank)
    return rows[(rows[columns] == [most[name] for name in columns]).all(axis=1)]


def _way(found: Behaviour) -> str:
    """How it searched, the most telling first."""
    if not found.model_steps or found.churn is None:
        return "No reply set a parameter, so nothing was searched."
    unused = ""
    if left := found.steps - found.model_steps:
        unused = f" {count(left, 'step')} of {found.steps:,} came to nothing."
    return f"{_style(found)}: {_counts(found)}.{unused}{_bounds(found)}"


def _style(found: Behaviour) -> str:
    moved = [name for name, churn in found.churn_by_parameter.items() if churn > 0]
    if (found.stagnation or 0.0) >= MOSTLY:
        return "It mostly stayed where it was"
    if (found.oscillation or 0.0) >= MOSTLY:
        return "It mostly went back to configurations that it had left"
    if len(moved) == 1 < len(found.churn_by_parameter):
        return f"It changed {moved[0]} alone"
    if (found.churn or 0.0) < SMALL_MOVES:
        return "It moved in small steps"
    return "It jumped" if (found.churn or 0.0) >= LARGE_MOVES else "Its moves were of medium size"


def _counts(found: Behaviour) -> str:
    n = found.model_steps
    shares = (found.novelty, found.stagnation, found.oscillation)
    new, same, back = (round((share or 0.0) * n) for share in shares)
    parts = [f"{new:,} of {count(n, 'step')} of the model {'is' if new == 1 else 'are'} new"]
    if same:
        parts.append(f"{same:,} {'repeats' if same == 1 else 'repeat'} the one before")
    if back:
        parts.append(f"{back:,} {'goes' if back == 1 else 'go'} back to an earlier one")
    moved = f"the mean move is {score(found.churn)} of a parameter's range"
    return f"{joined(parts)}; {moved}"


def _bounds(found: Behaviour) -> str:
    if not found.clamped_changes:
        return ""
    return f" {100 * found.clamped_changes:.0f}% of the changes that it asked for met a bound."


def _outcome(run: RecordedRun, task: Task) -> str:
    start, last = run.steps[0], run.steps[-1]
    missing = run.planned_steps - (len(run.steps) - 1)
    short = f" {count(missing, 'step')} of the run {'has' if missing == 1 else 'have'} no answer."
    return (
        f"It would report {task.score.name} {score_words(last.test, task.score)} on the test rows: "
        f"regret {score(last.regret)}, from {score(start.regret)} at the start."
        f"{short if missing else ''}"
    )
