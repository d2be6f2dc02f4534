"""Where the variance of an effect comes from, and the seeds that show one of .2 SD."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.extensions.visibility.analysis.effects import SHARES, Changes, changes_of
from contextcliff_dagster.extensions.visibility.results import Plan

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.extensions.visibility.analysis.contrasts import Comparison
    from contextcliff_dagster.extensions.visibility.analysis.runs import Runs

EFFECT, POWER = 0.2, 0.8
MOST_SEEDS = 10_000


@dataclass(frozen=True, slots=True)
class Components:
    """SDs of the difference of a pair: between benchmark-seeds, and between pairs of one."""

    seed: float
    pair: float | None
    pairs: float
    """Mean pairs of a benchmark-seed."""

    @property
    def variance(self) -> float:
        """Of the mean difference of one benchmark-seed."""
        return self.seed**2 + (self.pair or 0.0) ** 2 / self.pairs


def components_of(changes: Changes) -> Components | None:
    """Return the components by the analysis of variance; None with fewer than two clusters.

    With single pairs the two are one, and ``pair`` is None.
    """
    change, clusters = changes.change, len(changes.stratum)
    if clusters < 2:
        return None
    means = changes.means(change)
    pairs = len(change) / clusters
    of_mean = means.standard_error**2 * clusters
    degrees = len(change) - clusters
    if not degrees:
        return Components(math.sqrt(of_mean), None, pairs)
    within = float(((change - means.values[changes.cluster]) ** 2).sum()) / degrees
    return Components(math.sqrt(max(of_mean - within / pairs, 0.0)), math.sqrt(within), pairs)


def plan_of(
    runs: Runs, comparisons: Sequence[Comparison], settings: AnalysisSettings
) -> list[Plan]:
    """Return the seeds that each tested effect on the regret needs; none where nothing varies."""
    tested = [one for one in comparisons if not one.is_start]
    level = SHARES["regret"] * (1.0 - settings.confidence) / max(len(tested), 1)
    made = []
    for one in tested:
        changes = changes_of(runs, one, "regret")
        components = components_of(changes) if changes else None
        if changes is None or components is None or not changes.run_sd():
            continue
        spread = changes.run_sd()
        benchmarks = len(np.unique(changes.stratum))
        made.append(
            Plan(
                axis=one.axis,
                level=one.level,
                reference=one.reference,
                effect=EFFECT,
                power=POWER,
                significance=level,
                run_sd=spread,
                seed_sd=components.seed,
                pair_sd=components.pair,
                pairs_per_seed=components.pairs,
                seeds=-(-len(changes.stratum) // benchmarks),
                seeds_needed=seeds_needed(components, EFFECT * spread, benchmarks, level),
            )
        )
    return made


def seeds_needed(
    components: Components, effect: float, benchmarks: int, level: float
) -> int | None:
    """Return the seeds a benchmark that show ``effect`` with power .8, tested two-sided.

    By the noncentral t distribution with benchmarks x (seeds - 1) degrees of freedom, to which the
    power of studentised flips is close. None where more than 10,000 are needed.
    """
    from scipy.special import nctdtr, stdtrit

    variance = max(components.variance, 1e-12)

    def enough(seeds: int) -> bool:
        degrees = float(benchmarks * (seeds - 1))
        critical = stdtrit(degrees, 1.0 - 0.5 * level)
        # Beyond a shift of 37 the distribution function is not computed, and the power is 1.
        shift = min(effect * math.sqrt(benchmarks * seeds / variance), 37.0)
        return 1.0 - float(nctdtr(degrees, shift, critical)) >= POWER

    if not enough(MOST_SEEDS):
        return None
    return 2 + bisect_left(range(2, MOST_SEEDS), True, key=enough)
