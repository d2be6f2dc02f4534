"""Search landscapes of the `visibility` tasks, and baselines from searches without a model.

    python benchmarks/visibility.py landscapes [--points 128] [--jobs 2] [--only digits wine]
    python benchmarks/visibility.py baselines [--budget 10] [--runs 20] [--jobs 2] [--only digits]
    python benchmarks/visibility.py controls|dependence      (visibility_controls.py)

"landscapes": for each task whose data need no preparation, Sobol configurations on 20 splits: mean
scores of the worst and the best, the spread between the two (chosen on other splits than it is
measured on) with its standard error, how many configurations each start has to choose from, and
whether the landscape counts. Landscapes are kept in the store.

"baselines": of those that count, from low starts, mean normalised regret of what a search would
report after its budget, and mean area under its curve of regret, each with a standard error over
runs. A run sees the validation scores of one split; regret is by means over splits. Scores are the
tabulated ones of the nearest configuration.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import get_args

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from visibility_controls import show_controls, show_dependence

from contextcliff_dagster.extensions.visibility.baselines import (
    HillClimb,
    RandomSearch,
    Search,
    SobolSearch,
    TPESearch,
    area_under_curve,
    regret_curve,
    run_search,
)
from contextcliff_dagster.extensions.visibility.kept_landscapes import (
    accept,
    read_landscape,
    write_landscape,
)
from contextcliff_dagster.extensions.visibility.landscape import (
    POINTS,
    SPLITS,
    Landscape,
    Stratum,
    fingerprint,
    members,
    start_of,
    tabulate,
)
from contextcliff_dagster.extensions.visibility.tasks.catalogue import (
    BUNDLED,
    load_data,
    task_named,
)
from contextcliff_dagster.extensions.visibility.tasks.task import Space
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.landscapes import objective_of

SEARCHES: dict[str, Callable[[Space, int, bool], Search]] = {
    "random": lambda space, seed, up: RandomSearch(space, seed),
    "sobol": lambda space, seed, up: SobolSearch(space, seed),
    "tpe": lambda space, seed, up: TPESearch(space, seed, higher_is_better=up),
    "hill climb": lambda space, seed, up: HillClimb(space, seed, higher_is_better=up),
}


def landscape_for(name: str, points: int) -> tuple[Landscape, float]:
    """Return a task's landscape, stored or computed, and the CPU seconds taken."""
    store, task, began = Store.default(), task_named(name), time.process_time()
    data = load_data(task, store)
    kept = read_landscape(store, name, fingerprint(task, data, points, range(SPLITS), 0))
    landscape = kept or tabulate(task, data, points=points)
    if kept is None:
        write_landscape(store, landscape)
    return landscape, time.process_time() - began


def baseline(name: str, points: int, budget: int, runs: int) -> list[str]:
    """Return one task's lines of the table."""
    task, (landscape, _) = task_named(name), landscape_for(name, points)
    up, lines = landscape.higher_is_better, []
    # What a configuration is worth is known here, so the luck of one test split need not count.
    test = np.repeat(landscape.means[:, None], len(landscape.splits), axis=1)
    landscape = replace(landscape, test=test)
    for search, make in SEARCHES.items():
        last, areas = [], []
        for seed in range(runs):
            start = start_of(landscape, "low", seed).config
            objective = objective_of(landscape, task.space, seed % SPLITS)
            trials = run_search(make(task.space, seed, up), objective, start, budget)
            curve = regret_curve(trials, landscape.best, landscape.worst, higher_is_better=up)
            last.append(curve[-1])
            areas.append(area_under_curve(curve))
        lines.append(f"{name:14} {search:11} {_mean(last)} {_mean(areas)}")
    return lines


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):7.3f} {np.std(values, ddof=1) / len(values) ** 0.5:7.3f}"


def show_landscapes(pool: ProcessPoolExecutor, names: Sequence[str], points: int) -> list[str]:
    """Print the table; return the names of landscapes that count and have every start."""
    print(f"{points} configurations, {SPLITS} splits\n")
    strata: tuple[Stratum, ...] = get_args(Stratum)
    print(
        "task           score        worst     best  spread  s.e.  low/neutral/high  counts   CPU s"
    )
    counting = []
    made = pool.map(landscape_for, names, [points] * len(names))
    for name, (landscape, seconds) in zip(names, made, strict=True):
        judged = accept(landscape)
        of_strata = "/".join(str(len(members(landscape, one))) for one in strata)
        print(
            f"{name:14} {task_named(name).score.name:9}"
            f" {landscape.worst:8.3f} {landscape.best:8.3f} {judged.spread:7.3f}"
            f" {judged.standard_error:5.3f}  {of_strata:>16}"
            f"  {'yes' if judged.counts else 'no':6} {seconds:7.1f}",
            flush=True,
        )
        for reason in judged.refused:
            print(f"{'':14} {reason}")
        if judged.counts and all(len(members(landscape, one)) for one in strata):
            counting.append(name)
    return counting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("landscapes", "baselines", "controls", "dependence"))
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--budget", type=int, default=10, help="steps after the start")
    parser.add_argument("--runs", type=int, default=20, help="of each search on each task")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[task.name for task in BUNDLED])
    controls = parser.add_argument_group("controls")
    controls.add_argument("--benchmarks", nargs="+", default=["toy", "digits", "friedman"])
    controls.add_argument("--seeds", type=int, default=12)
    controls.add_argument("--grids", type=int, default=200, help="of the agent that uses")
    controls.add_argument("--empty-grids", type=int, default=1000, help="of the one that ignores")
    controls.add_argument("--studies", type=int, default=2000, help="simulated ones")
    given = parser.parse_args()
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        if given.part == "controls":
            show_controls(pool, given)
            return
        if given.part == "dependence":
            show_dependence(pool, given)
            return
        names = show_landscapes(pool, given.only, given.points)
        if given.part == "baselines":
            print(
                f"\n{given.budget} steps, {given.runs} runs\n"
                "task           search       regret    s.e.    area    s.e."
            )
            some = (
                [given.points] * len(names),
                [given.budget] * len(names),
                [given.runs] * len(names),
            )
            for lines in pool.map(baseline, names, *some):
                print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
