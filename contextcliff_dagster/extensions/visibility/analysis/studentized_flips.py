"""Labels flipped within pairs that lie in clusters: a test of the mean difference.

If the labels of a pair mean nothing, its difference is as likely to have the other sign, and the
test is exact (Fisher 1935, The Design of Experiments). Pairs of one cluster may share an effect of
their own, though, that is none on average; flipping pairs would then count one cluster many times.
So the statistic is the mean over its standard error between clusters, which such effects widen,
too: the test stays exact in the first case and holds its level in the second one with many clusters
(Janssen 1997, Statistics and Probability Letters 36, 9-21; Chung and Romano 2013, Annals of
Statistics 41, 484-507).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.extensions.visibility.analysis.cluster_means import AGREE, strata_of

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

MOST_EXACT = 14
"""Pairs that differ up to which all flips are gone through."""
_AT_ONCE = 4_000_000


def studentized_flips(
    change: Floats, cluster: Ints, stratum: Ints, draws: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """Two-sided p-value of no mean difference, and whether it is over all flips.

    Else it is over ``draws`` drawn ones, (1 + reached) / (1 + drawn). Pairs without a difference
    count in the mean and are not flipped; without any other p is 1.

    Args:
        change: difference of each pair (P), each cluster counting alike.
        cluster: of each pair, 0 to C - 1, none empty; two or more.
        stratum: of each cluster (C), as in `cluster_means`.

    >>> change, cluster = np.array([0.1, 0.2, 0.3, 0.1]), np.array([0, 0, 1, 1])
    >>> studentized_flips(change, cluster, np.zeros(2, int), 99, np.random.default_rng(0))
    (0.125, True)
    """
    moved = change != 0.0
    if not moved.any():
        return 1.0, True
    clusters = int(cluster.max()) + 1
    weights = np.zeros((int(moved.sum()), clusters))
    weights[np.arange(len(weights)), cluster[moved]] = 1.0
    weights *= change[moved][:, None] / np.bincount(cluster, minlength=clusters)[None, :]
    weights /= np.abs(change).max()
    masks = strata_of(stratum)
    observed = _statistic(weights.sum(axis=0)[None, :], masks)[0]
    exact = len(weights) <= MOST_EXACT
    total = 2 ** len(weights) if exact else draws
    reached = 0
    at_once = max(1, _AT_ONCE // len(weights))
    for first in range(0, total, at_once):
        rows = min(at_once, total - first)
        if exact:
            number = np.arange(first, first + rows)[:, None]
            up = (number >> np.arange(len(weights))[None, :]) & 1
        else:
            up = rng.integers(0, 2, size=(rows, len(weights)), dtype=np.int8)
        drawn = _statistic((2.0 * up - 1.0) @ weights, masks)
        reached += int((drawn >= observed * (1.0 - 1e-6)).sum())
    return (reached / total, True) if exact else ((1.0 + reached) / (1.0 + total), False)


def _statistic(means: Floats, masks: list[np.ndarray]) -> Floats:
    """|mean| over its standard error, of the means of clusters (B, C)."""
    clusters = means.shape[1]
    variance = np.zeros(len(means))
    for mask in masks:
        variance += mask.sum() * np.var(means[:, mask], axis=1, ddof=1)
    # Clusters that agree have no spread: the larger mean is the more extreme one.
    error = np.sqrt(variance) / clusters + AGREE
    mean = np.abs(means.mean(axis=1))
    mean[mean < AGREE] = 0.0  # the sum of fractions that cancel is rarely 0
    return np.asarray(mean / error)
