"""Power and error rates of the analysis of `visibility`.

Part of benchmarks/visibility.py. "controls": grids of scripted agents on tabulated landscapes
(`--benchmarks` x `--seeds` x 8 combinations of bounds, history and direction, 10 steps, low starts;
real prompts and replies, no model): of `--grids` grids of the agent that uses what it sees, how
many show each effect on the regret with the right sign, after Holm, and with the wrong one; of
`--empty-grids` grids of the one that ignores everything, how many show any effect, by family.

"dependence": the same tests where axes have effects of their own on each seed, 0 on average: share
of simulated studies with p at most .05, of our test and of flips of the plain mean.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from contextcliff_dagster.analysis.contrast import sign_flip_p_value, studentized_flips
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.extensions.visibility.analysis.effects import comparisons_of, effects_of
from contextcliff_dagster.extensions.visibility.analysis.model import runs_of_records
from contextcliff_dagster.extensions.visibility.controls import (
    ignores_everything,
    uses_what_it_sees,
)
from contextcliff_dagster.extensions.visibility.kept_landscapes import read_landscape
from contextcliff_dagster.extensions.visibility.landscape import POINTS, SPLITS, fingerprint
from contextcliff_dagster.extensions.visibility.section import VisibilitySection
from contextcliff_dagster.extensions.visibility.tasks.catalogue import load_data, task_named
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.tabulated_runs import Tabulated

AgentName = Literal["uses", "ignores"]
_AGENTS = {"uses": uses_what_it_sees, "ignores": ignores_everything}
_AXES = ("bounds", "direction", "history")
_SETTINGS = AnalysisSettings()


def section_of(benchmarks: tuple[str, ...], seeds: int, grid: int) -> VisibilitySection:
    """Return the study section of one grid, with the given seeds."""
    return VisibilitySection.model_validate(
        {
            "benchmarks": benchmarks,
            "task": "hidden",
            "metric": "hidden",
            "bounds": ("hidden", "shown"),
            "direction": ("hidden", "shown"),
            "history": (0, 10),
            "start": "low",
            "seeds": seeds,
            "first_seed": grid * seeds,
            "steps": 10,
        }
    )


def verdicts(
    name: AgentName, benchmarks: tuple[str, ...], seeds: int, grid: int
) -> list[tuple[str, str, str]]:
    """Return axis, outcome and verdict of each significant effect of one grid."""
    section = section_of(benchmarks, seeds, grid)
    records = _tabulated(benchmarks).records(_AGENTS[name], section, grid)
    effects = effects_of(
        runs_of_records(records, section),
        comparisons_of(section.levels),
        benchmarks,
        section.margin,
        _SETTINGS,
    )
    significant = ("better", "worse", "higher", "lower")
    return [(one.axis, one.outcome, one.verdict) for one in effects if one.verdict in significant]


def show_controls(pool: ProcessPoolExecutor, given: Any) -> None:
    """Print how many grids show each effect, and how many show a false effect."""
    benchmarks = tuple(given.benchmarks)
    runs = 8 * given.seeds * len(benchmarks)
    print(f"{', '.join(benchmarks)}; {given.seeds} seeds, 8 combinations: {runs} runs of 10 steps")
    began = time.perf_counter()
    call = partial(verdicts, "uses", benchmarks, given.seeds)
    grids = list(pool.map(call, range(given.grids), chunksize=4))
    print(f"\nuses what it sees: {given.grids} grids, {time.perf_counter() - began:.0f} s")
    for axis in _AXES:
        of_axis = [[v for a, o, v in grid if (a, o) == (axis, "regret")] for grid in grids]
        right, wrong = (sum(sign in one for one in of_axis) for sign in ("better", "worse"))
        print(f"{axis:10} better in {right:4}, worse in {wrong:4}", flush=True)
    began = time.perf_counter()
    call = partial(verdicts, "ignores", benchmarks, given.seeds)
    further = range(given.grids, given.grids + given.empty_grids)
    grids = list(pool.map(call, further, chunksize=4))
    seconds = time.perf_counter() - began
    print(f"\nignores everything: {given.empty_grids} grids, {seconds:.0f} s")
    families: Counter[str] = Counter()
    for grid in grids:
        names = {o if o in ("regret", "area") else "behaviour" for _, o, _ in grid}
        families.update([*names, "any of the three"] if names else [])
    for family in ("regret", "area", "behaviour", "any of the three"):
        print(f"any effect, {family:16} in {families[family]:4}", flush=True)


@cache
def _tabulated(benchmarks: tuple[str, ...]) -> Tabulated:
    """Return the landscapes stored by `landscapes`.

    Raises:
        SystemExit: one has not been tabulated.
    """
    store, landscapes = Store.default(), {}
    for name in benchmarks:
        task = task_named(name)
        made_of = fingerprint(task, load_data(task, store), POINTS, range(SPLITS), 0)
        landscape = read_landscape(store, name, made_of)
        if landscape is None:
            raise SystemExit(f"No landscape of {name}; run `landscapes --only {name}` first.")
        landscapes[name] = landscape
    return Tabulated(landscapes)


def show_dependence(pool: ProcessPoolExecutor, given: Any) -> None:
    """Print error rates under seed effects that are 0 on average."""
    print(f"share of {given.studies} studies with p <= .05; SD of pairs 1, 8 pairs a seed\n")
    print("benchmarks x seeds   SD of the seeds' effects   ours   flips of the plain mean")
    designs = [(b, s, sd) for b, s in ((1, 3), (1, 6), (3, 3), (3, 12)) for sd in (0.0, 0.5, 1.0)]
    call = partial(_error_rates, given.studies)
    for (benchmarks, seeds, sd), (ours, plain) in zip(
        designs, pool.map(call, designs), strict=True
    ):
        print(f"{benchmarks:10} x {seeds:<6} {sd:26.1f} {ours:6.3f} {plain:25.3f}", flush=True)


def _error_rates(studies: int, design: tuple[int, int, float]) -> tuple[float, float]:
    benchmarks, seeds, sd = design
    clusters = benchmarks * seeds
    cluster, stratum = np.repeat(np.arange(clusters), 8), np.arange(clusters) // seeds
    rng = np.random.default_rng((clusters, int(10 * sd)))
    reached = np.zeros(2)
    for _ in range(studies):
        change = rng.normal(size=8 * clusters) + sd * rng.normal(size=clusters)[cluster]
        reached[0] += studentized_flips(change, cluster, stratum, 499, rng)[0] <= 0.05
        reached[1] += sign_flip_p_value(change, 499, rng)[0] <= 0.05
    ours, plain = (reached / studies).tolist()
    return ours, plain
