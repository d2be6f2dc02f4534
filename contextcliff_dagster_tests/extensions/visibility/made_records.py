"""Records of tuning runs without training: a smooth score, and replies of a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from contextcliff_dagster.extensions.visibility.baselines import Trial, reported_scores
from contextcliff_dagster.extensions.visibility.behaviour import Step
from contextcliff_dagster.extensions.visibility.section import (
    AXES,
    PlannedRun,
    VisibilitySection,
    runs_of,
)
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Evaluation, Task, clamp

Script = Callable[[PlannedRun, int, Sequence[Step]], object]
"""Run, number of the step, steps so far -> the proposal; None for a reply that cannot be read."""


def wanderer(run: PlannedRun, number: int, steps: Sequence[Step]) -> object:
    """Go anywhere; nearer to the middle where bounds are shown; sometimes repeat or say nothing."""
    rng = np.random.default_rng([run.seed, number, len(run.key), run.axes.history])
    kind, space = rng.random(), task_named(run.benchmark).space
    if kind < 0.08:
        return None
    if kind < 0.25:
        return dict(steps[int(rng.integers(len(steps)))].config)
    spread = 0.2 if run.axes.bounds == "shown" else 0.6
    places = np.clip(0.5 + spread * rng.normal(size=len(space.names)), 0, 1)
    proposal = dict(space.at(places))
    if kind > 0.9:
        proposal[space.names[0]] = 1e9
    return proposal


def records_of_runs(
    section: VisibilitySection, script: Script = wanderer, model: str = "tuner"
) -> pd.DataFrame:
    """The columns of `tables.VISIBILITY_RECORDS` that an analysis reads."""
    rows = [row for run in runs_of(section) for row in rows_of_run(run, section.steps, script)]
    return pd.DataFrame(rows).assign(model=model)


def rows_of_run(run: PlannedRun, steps: int, script: Script) -> Iterator[dict[str, Any]]:
    """The rows of one run."""
    task = task_named(run.benchmark)
    made = [Step(dict(task.space.start), "start")]
    trials = [Trial(made[0].config, _scores(task, made[0], run.seed))]
    start = trials[0].evaluation
    for number in range(1, steps + 1):
        made.append(_step(task, script(run, number, made), made[-1]))
        trials.append(Trial(made[-1].config, _scores(task, made[-1], run.seed)))
        one, scores = made[-1], trials[-1].evaluation
        higher = task.score.higher_is_better
        reported = float(reported_scores(trials, higher_is_better=higher)[-1])
        yield {
            "run": run.key,
            "benchmark": run.benchmark,
            "seed": run.seed,
            **{f"axis_{name}": getattr(run.axes, name) for name in AXES},
            "step": number,
            "steps": steps,
            "chosen_by": one.source,
            "unparsable": one.unparsable,
            "proposed": None if one.proposed is None else json.dumps(one.proposed),
            "events": json.dumps([asdict(event) for event in one.events]),
            "base_config": json.dumps(one.base),
            "config": json.dumps(one.config),
            "validation": scores.validation,
            "test": scores.test,
            "reported": reported,
            "regret": _regret(task, reported),
            "score": 1 - _regret(task, reported),
            "failure": None if one.source == "model" else "schema_violation",
            "start_config": json.dumps(made[0].config),
            "start_validation": start.validation,
            "start_test": start.test,
            "start_regret": _regret(task, start.test),
        }


def _step(task: Task, proposal: object, before: Step) -> Step:
    fitted = clamp(task.space, proposal)
    known = isinstance(proposal, dict) and set(proposal) & set(task.space.names)
    if not known:
        return Step(before.config, "fallback", proposal, proposal is None, (), before.config)
    config = fitted.onto(before.config)
    return Step(config, "model", proposal, False, fitted.events, before.config)


def _scores(task: Task, step: Step, seed: int) -> Evaluation:
    """Best in the middle of the space; the splits differ a little."""
    away = float(np.mean(np.abs(task.space.positions(step.config) - 0.5)) * 2)
    sign = 1.0 if task.score.higher_is_better else -1.0
    height = 0.9 - 0.4 * away
    noise = np.random.default_rng([seed, int(1e6 * away)]).normal(0, 0.01, 2)
    validation, test = (float(sign * (height + e) + (1 - sign) / 2) for e in noise)
    return Evaluation(validation, test)


def _regret(task: Task, score: float) -> float:
    best, worst = (0.9, 0.5) if task.score.higher_is_better else (0.1, 0.5)
    return (best - score) / (best - worst)
