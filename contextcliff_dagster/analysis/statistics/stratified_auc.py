"""Area under the ROC curve from pairs within strata, its interval over clusters and its p-value.

AUC = sum over strata of [wins of positives over negatives, ties half] / sum of pairs. A pair never
crosses strata, so what differs between strata alone gives .5.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval
from contextcliff_dagster.analysis.statistics.restricted_permutation import exchanges

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

_NO_SPREAD = 1e-9


def stratified_auc(
    predictor: Floats, positive: Bools, stratum: Ints, cluster: Ints, confidence: float
) -> tuple[float, float, float]:
    """The area and its interval.

    The variance is that of the pairs' linear parts, summed over clusters (DeLong, DeLong and
    Clarke-Pearson 1988, Biometrics 44, 837-845; clusters: Obuchowski 1997, Biometrics 53, 567-578),
    the interval Student's on the logit scale with the clusters of the rarer class less one degrees
    of freedom. It needs no resamples, in which a stratum could lose its only positive.

    Args:
        predictor, positive, stratum, cluster: of the examples (N); each stratum has both classes.
    """
    wins, others = np.zeros(len(predictor)), np.zeros(len(predictor))
    for one in np.unique(stratum):
        mine = np.flatnonzero(stratum == one)
        a, b = mine[positive[mine]], mine[~positive[mine]]
        won = 0.5 + 0.5 * np.sign(predictor[a][:, None] - predictor[b][None, :])
        wins[a], wins[b] = won.sum(axis=1), won.sum(axis=0)
        others[a], others[b] = len(b), len(a)
    pairs = others[positive].sum()
    value = float(wins[positive].sum() / pairs)
    _, own = np.unique(cluster, return_inverse=True)
    parts = np.bincount(own, weights=wins - value * others) / pairs
    count = len(parts)
    rarer = min(len(np.unique(own[positive])), len(np.unique(own[~positive])))
    error = math.sqrt(float(parts @ parts) * count / max(count - 1, 1))
    if error < _NO_SPREAD or not 0.0 < value < 1.0:
        return value, *agreeing_interval(value, rarer, confidence)
    from scipy.special import expit, logit, stdtrit

    half = float(stdtrit(max(rarer - 1, 1), 0.5 + 0.5 * confidence)) * error
    middle, half = float(logit(value)), half / (value * (1.0 - value))
    return value, float(expit(middle - half)), float(expit(middle + half))


def permuted_auc(
    predictor: Floats,
    positive: Bools,
    stratum: Ints,
    cluster: Ints,
    permutations: int,
    rng: np.random.Generator,
) -> float:
    """Two-sided p-value of an area of .5: clusters of one stratum exchange their examples' classes.

    Only clusters with as many examples exchange (`restricted_permutation`).
    """
    rank = np.empty(len(predictor))
    for one in np.unique(stratum):
        mine = np.flatnonzero(stratum == one)
        _, place, size = np.unique(predictor[mine], return_inverse=True, return_counts=True)
        rank[mine] = (np.cumsum(size) - 0.5 * (size - 1))[place]
    drawn = exchanges(cluster, stratum, permutations, rng)
    sums = drawn.sums(rank, positive.astype(np.int64), 2)[:, 1]
    expected = sum(positive[block].sum() * rank[block].mean() for block in drawn.blocks)
    far = np.abs(sums - expected)
    return float(np.mean(far >= far[0] - 1e-9))
