"""Intervals over texts or passages: whole clusters are resampled, with all their rounds.

The levels are texts, passages, rounds. Only the highest level that has enough units is drawn with
replacement, and what lies below comes with it: the spread of cluster means holds that of all levels
below already, and drawing rounds and passages again would count it twice (Davison and Hinkley 1997,
Bootstrap Methods and their Application, section 3.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.comparison.difference_tests import difference_interval
from contextcliff_dagster.analysis.statistics.length_at_loss import resample_weights

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints

LEAST_CLUSTERS = 2


class ClusterBootstrap:
    """Resamples of clusters, the same ones for every size and endpoint.

    Args:
        clusters: of each passage (P).
        key: names the random stream, together with the seed of ``settings``.
    """

    def __init__(self, clusters: Ints, settings: AnalysisSettings, *key: int) -> None:
        _, self._cluster = np.unique(clusters, return_inverse=True)
        self._confidence = settings.confidence
        rng = np.random.default_rng((settings.seed, 19, *key))
        self._weights = resample_weights(int(self._cluster.max()) + 1, settings.resamples, rng)

    def interval(self, values: Floats) -> tuple[float, float] | tuple[None, None]:
        """Interval of the mean of what passages have (P, NaN: nothing), within -1..1.

        Percentiles, widened by Student's t where clusters are few; nulls with fewer than two.
        """
        n, s = self.sums(values)
        there = n > 0
        if there.sum() < LEAST_CLUSTERS:
            return None, None
        weights = self._weights[there]
        nothing, these = np.array([n[there], 0.0 * s[there]]), np.array([n[there], s[there]])
        low, high = difference_interval(nothing, these, (weights, weights), self._confidence)
        mean = float(s.sum() / n.sum())
        return min(low, mean), max(high, mean)

    def sums(self, values: Floats) -> tuple[Floats, Floats]:
        """Passages with a value, and the sum of their values, by cluster (C)."""
        known = ~np.isnan(values)
        count = self._weights.shape[0]
        n = np.bincount(self._cluster[known], minlength=count).astype(np.float64)
        s = np.bincount(self._cluster[known], weights=values[known], minlength=count)
        return n, s.astype(np.float64)
