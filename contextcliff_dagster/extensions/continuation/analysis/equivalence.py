"""Which declines are excluded: one-sided upper limits, size by size.

"No decline of more than d at any size" holds where the upper limit of every size is at most d; as
all of them must hold, none needs an adjustment (intersection-union: Berger 1982, Technometrics 24,
295-300).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.proportions import (
    design_effect,
    newcombe_limits,
    score_correlation,
    wilson_limits,
)

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats


def score_upper(n: Floats, s: Floats, base: float, confidence: float) -> float | None:
    """The mean decline that is exceeded with a chance of 1 - ``confidence`` at most.

    Student's limit over clusters. The variance holds half a cluster more that lost all its score,
    so that clusters that agree are not certain, and a rare loss of everything is not ruled out by
    its absence alone.

    Args:
        n, s: passages and summed declines of each cluster (C).
        base: mean score at the smallest size.

    Returns:
        None with fewer than two clusters.

    >>> round(score_upper(np.ones(20), np.zeros(20), 0.5, 0.95), 3)
    0.031
    """
    from scipy.special import stdtrit

    there = n > 0
    n, s = n[there], s[there]
    count = len(n)
    if count < 2:
        return None
    mean = float(s.sum() / n.sum())
    variance = float(((s - mean * n) ** 2).sum()) / float(n.sum()) ** 2 * count / (count - 1)
    variance += 0.5 * base**2 / count**2
    limit = mean + float(stdtrit(count - 1, confidence)) * math.sqrt(variance)
    return min(limit, 1.0)


def intact_upper(first: Floats, other: Floats, confidence: float) -> float | None:
    """The same for the share without collapse, by `intact_limits`.

    >>> whole = np.ones((20, 5))
    >>> round(intact_upper(whole, whole, 0.95), 3)
    0.046
    """
    limits = intact_limits(first, other, NormalDist().inv_cdf(confidence))
    return None if limits is None else float(limits[1])


def intact_limits(first: Floats, other: Floats, z: float) -> tuple[float, float] | None:
    """Limits of a difference of shares that have a width where none collapsed.

    Newcombe's, over the design effect of rounds of one passage. That both sizes have the same
    passages is not used, which is cautious.

    Args:
        first, other: 1 or 0 by passage and round, at the smallest size and at another (P, R); NaN
            where there is none. Passages that lack either are left out.
        z: normal quantile of either end.
    """
    paired = (~np.isnan(first)).any(axis=1) & (~np.isnan(other)).any(axis=1)
    if not paired.any():
        return None
    one, two = _effective_shares([first[paired], other[paired]])
    return newcombe_limits(one, two, z)


def share_limits(outcomes: Floats, z: float) -> tuple[float, float] | tuple[None, None]:
    """Wilson's limits of the share without collapse (P, R), over the same design effect."""
    if np.isnan(outcomes).all():
        return None, None
    low, high = wilson_limits(*_effective_shares([outcomes])[0], z)
    return max(low, 0.0), min(high, 1.0)


def _effective_shares(sides: list[Floats]) -> list[tuple[float, float]]:
    """Share and effective number of outcomes of each side; one correlation for all."""
    known = [~np.isnan(side) for side in sides]
    cell = np.concatenate([np.nonzero(one)[0] + i * len(one) for i, one in enumerate(known)])
    outcome = np.concatenate([side[one] for side, one in zip(sides, known, strict=True)])
    stratum = np.repeat(np.arange(len(sides)), [int(one.sum()) for one in known])
    correlation = score_correlation(cell, outcome, stratum)[0]
    return [
        (float(side[one].mean()), one.sum() / design_effect(one.sum(axis=1), correlation))
        for side, one in zip(sides, known, strict=True)
    ]
