"""The effect of each axis on each outcome, over pairs of runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.extensions.visibility.analysis.cluster_means import ClusterMeans
from contextcliff_dagster.extensions.visibility.analysis.contrasts import Comparison, pairs_of
from contextcliff_dagster.extensions.visibility.analysis.studentized_flips import studentized_flips
from contextcliff_dagster.extensions.visibility.results import (
    OUTCOMES,
    AxisEffect,
    BenchmarkEffect,
    EffectVerdict,
    OutcomeName,
)

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.extensions.visibility.analysis.runs import Runs

FLIPS = 4_999
ROOM = 2.0
"""Margins of regret that the reference must leave, or the absence of a benefit says little."""
PERFORMANCE: tuple[OutcomeName, ...] = ("regret", "area")
SHARES = {"regret": 0.5, "area": 0.25, "behaviour": 0.25}
"""Of the error rate: what the regret's effects, those of the area and those of behaviour have."""


@dataclass(frozen=True, eq=False)
class Changes:
    """One outcome of pairs of runs that both have it.

    ``level`` and ``reference`` are its values (P); ``cluster`` numbers the benchmark-seed of each
    pair densely, ``stratum`` is the benchmark of each benchmark-seed (C).
    """

    level: Floats
    reference: Floats
    cluster: Ints
    stratum: Ints

    @property
    def change(self) -> Floats:
        """The level less the reference (P); rounding is no difference."""
        change = self.level - self.reference
        return np.where(np.abs(change) < 1e-12, 0.0, change)

    def means(self, of: Floats) -> ClusterMeans:
        """Means of what each pair has (P), by benchmark-seed."""
        n = np.bincount(self.cluster, minlength=len(self.stratum))
        sums = np.bincount(self.cluster, weights=of, minlength=len(self.stratum))
        return ClusterMeans(sums / n, self.stratum)

    def run_sd(self) -> float:
        """SD between runs of one benchmark and level, pooled; 0 where each is alone."""
        benchmark = self.stratum[self.cluster]
        squares, degrees = 0.0, 0
        for values in (self.level, self.reference):
            for name in np.unique(benchmark):
                same = values[benchmark == name]
                squares += float(((same - same.mean()) ** 2).sum())
                degrees += len(same) - 1
        spread = math.sqrt(squares / degrees) if degrees else 0.0
        return spread if spread > 1e-12 else 0.0


def changes_of(runs: Runs, comparison: Comparison, outcome: OutcomeName) -> Changes | None:
    """Return the pairs that both have the outcome; None without any."""
    level, reference = pairs_of(runs, comparison)
    values = runs.outcome(outcome)
    both = ~np.isnan(values[level]) & ~np.isnan(values[reference])
    if not both.any():
        return None
    clusters, cluster = np.unique(runs.cluster[level[both]], return_inverse=True)
    return Changes(
        values[level[both]],
        values[reference[both]],
        cluster,
        runs.benchmark_of_cluster[clusters],
    )


def effects_of(
    runs: Runs,
    comparisons: Sequence[Comparison],
    benchmarks: Sequence[str],
    margin: float,
    settings: AnalysisSettings,
) -> list[AxisEffect]:
    """Return every comparison's effect on every outcome, regret first.

    Holm's adjustment is over all effects, so that a result has one error rate: half of it for the
    regret, a quarter each for the area and all behaviour. A start is outside, and so is a test that
    cannot become significant whatever the labels (Tarone 1990, Biometrics 46, 515-522).

    Args:
        benchmarks: in the order of ``by_benchmark``.
        margin: benefit of regret and area that matters.
    """
    alpha = 1.0 - settings.confidence
    made = [
        _effect(runs, one, outcome, benchmarks, settings, OUTCOMES.index(outcome), place)
        for outcome in OUTCOMES
        for place, one in enumerate(comparisons)
    ]
    members = [
        one.axis != "start" and least <= alpha and one.p_value is not None for one, least in made
    ]
    families = [_family(one.outcome) for one, _ in made]
    sizes = Counter(family for family, member in zip(families, members, strict=True) if member)
    weights = [SHARES[family] / max(sizes[family], 1) for family in families]
    p_values = [one.p_value if m else None for (one, _), m in zip(made, members, strict=True)]
    effects = []
    for (one, _), p_holm in zip(made, holm(p_values, weights), strict=True):
        adjusted = replace(one, p_holm=p_holm)
        effects.append(replace(adjusted, verdict=_verdict(adjusted, margin, alpha)))
    return effects


def _family(outcome: OutcomeName) -> str:
    return outcome if outcome in PERFORMANCE else "behaviour"


def _effect(
    runs: Runs,
    comparison: Comparison,
    outcome: OutcomeName,
    benchmarks: Sequence[str],
    settings: AnalysisSettings,
    *key: int,
) -> tuple[AxisEffect, float]:
    """The effect, and the least p-value that its pairs can have."""
    empty = AxisEffect(
        axis=comparison.axis,
        level=comparison.level,
        reference=comparison.reference,
        contrast=comparison.contrast,
        outcome=outcome,
        n_pairs=0,
        n_clusters=0,
        mean=None,
        mean_reference=None,
        difference=None,
        ci_low=None,
        ci_high=None,
        p_value=None,
        p_exact=False,
        p_holm=None,
        standardised=None,
        excluded=None,
        verdict="undecided",
        by_benchmark=[],
    )
    changes = changes_of(runs, comparison, outcome)
    if changes is None:
        return empty, 1.0
    means = changes.means(changes.change)
    low, high = means.interval(settings.confidence)
    p_value, exact = None, False
    if len(means.values) > 1:
        rng = np.random.default_rng((settings.seed, 31, *key))
        p_value, exact = studentized_flips(
            changes.change, changes.cluster, changes.stratum, FLIPS, rng
        )
    spread = changes.run_sd()
    at_reference = changes.means(changes.reference).mean
    excluded = None
    if outcome in PERFORMANCE:
        benefit = ClusterMeans(-means.values, means.stratum)
        excluded = benefit.upper(settings.confidence, at_reference)
    effect = replace(
        empty,
        n_pairs=len(changes.level),
        n_clusters=len(means.values),
        mean=changes.means(changes.level).mean,
        mean_reference=at_reference,
        difference=means.mean,
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        p_exact=exact,
        standardised=means.mean / spread if spread else None,
        excluded=excluded,
        by_benchmark=_by_benchmark(runs, changes, benchmarks, settings),
    )
    return effect, 2.0 ** (1 - int(np.count_nonzero(changes.change)))


def _by_benchmark(
    runs: Runs, changes: Changes, benchmarks: Sequence[str], settings: AnalysisSettings
) -> list[BenchmarkEffect]:
    names = list(dict.fromkeys(runs.benchmark.tolist()))
    whole = changes.means(changes.change)
    made = []
    for name in benchmarks:
        inside = whole.stratum == (names.index(name) if name in names else -1)
        if not inside.any():
            continue
        means = ClusterMeans(whole.values[inside], whole.stratum[inside])
        low, high = means.interval(settings.confidence)
        made.append(
            BenchmarkEffect(
                benchmark=name,
                n_pairs=int(inside[changes.cluster].sum()),
                n_clusters=int(inside.sum()),
                difference=means.mean,
                ci_low=low,
                ci_high=high,
            )
        )
    return made


def _verdict(effect: AxisEffect, margin: float, alpha: float) -> EffectVerdict:
    """The first that applies: significant; a benefit of the margin excluded; undecided."""
    significant = effect.p_holm is not None and effect.p_holm <= alpha and effect.difference
    performance = effect.outcome in PERFORMANCE
    if significant and effect.difference is not None:
        if performance:
            return "better" if effect.difference < 0.0 else "worse"
        return "lower" if effect.difference < 0.0 else "higher"
    roomy = effect.mean_reference is not None and effect.mean_reference >= ROOM * margin
    if performance and roomy and effect.excluded is not None and effect.excluded < margin:
        return "no_benefit"
    return "undecided"
