"""How much the effect of one axis on the regret depends on another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.experiments.visibility.analysis.contrasts import Comparison, fours_of
from contextcliff_dagster.experiments.visibility.analysis.effects import FLIPS, Changes
from contextcliff_dagster.experiments.visibility.analysis.studentized_flips import studentized_flips
from contextcliff_dagster.experiments.visibility.results import Interaction

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.experiments.visibility.analysis.runs import Runs


def interactions_of(
    runs: Runs, comparisons: Sequence[Comparison], settings: AnalysisSettings
) -> list[Interaction]:
    """Return the difference of differences of each two axes, one comparison an axis."""
    raw = [
        _interaction(runs, one, other, settings, place)
        for place, (one, other) in enumerate(combinations(comparisons, 2))
    ]
    adjusted = holm([one.p_value for one in raw])
    return [replace(one, p_holm=p) for one, p in zip(raw, adjusted, strict=True)]


def _interaction(
    runs: Runs, one: Comparison, other: Comparison, settings: AnalysisSettings, place: int
) -> Interaction:
    both, other_only, one_only, neither = fours_of(runs, one, other)
    regret = runs.outcome("regret")
    clusters, cluster = np.unique(runs.cluster[both], return_inverse=True)
    # Halved, a difference of differences is one of two means again, within -1..1.
    changes = Changes(
        0.5 * (regret[both] - regret[other_only]),
        0.5 * (regret[one_only] - regret[neither]),
        cluster,
        runs.benchmark_of_cluster[clusters],
    )
    difference, low, high, p_value = None, None, None, None
    if len(both):
        means = changes.means(changes.change)
        difference = means.mean
        low, high = means.interval(settings.confidence)
    if len(clusters) > 1:
        rng = np.random.default_rng((settings.seed, 32, place))
        p_value = studentized_flips(changes.change, cluster, changes.stratum, FLIPS, rng)[0]
    return Interaction(
        axis=one.axis,
        level=one.level,
        reference=one.reference,
        other=other.axis,
        other_level=other.level,
        other_reference=other.reference,
        n_fours=len(both),
        n_clusters=len(clusters),
        difference=None if difference is None else 2.0 * difference,
        ci_low=None if low is None else 2.0 * low,
        ci_high=None if high is None else 2.0 * high,
        p_value=p_value,
        p_holm=None,
    )
