"""Searches without a model on the splits, starts and budget of the runs of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from contextcliff_dagster.extensions.visibility.baselines.search import (
    HillClimb,
    RandomSearch,
    Search,
    SobolSearch,
    regret_curve,
    run_search,
)
from contextcliff_dagster.extensions.visibility.baselines.tpe import TPESearch
from contextcliff_dagster.step_progress import report_step

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.axes import PlannedRun
    from contextcliff_dagster.extensions.visibility.runs.tuning import Bench, Benches
    from contextcliff_dagster.extensions.visibility.tasks.parameters import Config, Floats
    from contextcliff_dagster.extensions.visibility.tasks.task import Evaluation, Task

Begun: TypeAlias = tuple[str, int]
"""Benchmark and seed: what runs have in common that a search can have, too."""

SEARCHES: Mapping[str, Callable[[Task, int], Search]] = {
    "random": lambda task, seed: RandomSearch(task.space, seed),
    "sobol": lambda task, seed: SobolSearch(task.space, seed),
    "tpe": lambda task, seed: TPESearch(
        task.space, seed, higher_is_better=task.score.higher_is_better
    ),
    "hill_climb": lambda task, seed: HillClimb(
        task.space, seed, higher_is_better=task.score.higher_is_better
    ),
}


def search_curves(
    runs: Mapping[str, PlannedRun], benches: Benches, steps: int
) -> dict[str, dict[Begun, Floats]]:
    """Return the curve of normalised regret, start first, of each search: by benchmark and seed.

    Of several starts it is the mean over these. Trainings are remembered: a second call trains
    nothing.

    Raises:
        StudyError: optuna is not installed.
        DataError, StoreError: see `runs.trainings.Trainings.evaluation`.
    """
    begun = {(run.benchmark, run.seed, run.axes.start): run for run in runs.values()}
    curves: dict[str, dict[Begun, list[Floats]]] = {name: {} for name in SEARCHES}
    for done, run in enumerate(begun.values()):
        report_step("searches without a model", done, len(begun))
        bench = benches[run.benchmark]
        for name, make in SEARCHES.items():
            curve = _curve(bench, run, make(bench.task, run.seed), steps)
            curves[name].setdefault((run.benchmark, run.seed), []).append(curve)
    report_step("searches without a model", len(begun), len(begun))
    return {
        name: {key: np.mean(of, axis=0) for key, of in by_key.items()}
        for name, by_key in curves.items()
    }


def _curve(bench: Bench, run: PlannedRun, search: Search, steps: int) -> Floats:
    assert bench.landscape is not None
    start = bench.begin(run)[0].step.config

    def objective(config: Config) -> Evaluation:
        return bench.trainings.evaluation(config, run.seed)

    return regret_curve(
        run_search(search, objective, start, steps),
        bench.landscape.best,
        bench.landscape.worst,
        higher_is_better=bench.task.score.higher_is_better,
    )
