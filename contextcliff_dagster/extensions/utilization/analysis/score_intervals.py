"""Score intervals of a share and of a difference, for questions that share documents.

Counts are divided by the design effect 1 + (m - 1) rho of m questions a document (Rao and Scott
1992, Biometrics 48, 577-585), rho pooled over all scales. A score interval has a width where all
outcomes agree, which a bootstrap or Student's t has not; and an interval of one scale lies inside
that scale's simultaneous band, as both are limits of one statistic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.proportions import (
    design_effect,
    newcombe_limits,
    score_correlation,
    shrunk_correlation,
    wilson_limits,
)

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.extensions.utilization.analysis.matching import Matched, Side

_HALVINGS = 50


@dataclass(frozen=True, slots=True)
class Likeness:
    """Correlation of two questions on one document; ``assumed`` where it was not estimated.

    ``difference`` is that of their differences, ``a`` and ``b`` that of either side's scores.
    """

    difference: float
    a: float
    b: float
    assumed: bool


def likeness_of(matched: Matched) -> Likeness:
    """The correlations of ``matched``, pooled over its strata."""
    sides = matched.a, matched.b
    a, b = (score_correlation(side.document, side.score, side.stratum) for side in sides)
    if matched.paired:
        change = matched.a.score - matched.b.score
        differ = float(np.abs(change).sum())
        pooled = shrunk_correlation(matched.a.document, change, matched.a.stratum, differ)
    else:
        pooled = max(a[0], b[0]), a[1] or b[1]
    return Likeness(pooled[0], a[0], b[0], assumed=pooled[1])


def mean_limits(score: Floats, n: Ints, correlation: float, z: float) -> tuple[float, float]:
    """Limits of a mean score: Wilson's (1927), of the effective number of questions.

    Args:
        score: of each question (N), at least one.
        n: questions of each document (D).

    >>> low, high = mean_limits(np.ones(40), np.full(10, 4), 0.2, 1.96)
    >>> round(low, 2), round(high, 2)
    (0.87, 1.0)
    """
    low, high = wilson_limits(float(score.mean()), len(score) / design_effect(n, correlation), z)
    return max(low, 0.0), min(high, 1.0)


def difference_limits(matched: Matched, likeness: Likeness, z: float) -> tuple[float, float]:
    """The differences that are less than ``z`` standard errors away: lower and upper limit.

    Those of an observed difference lie around it. (-1, 1) without an answer. Paired by Tango's
    score statistic (1998, Statistics in Medicine 17, 891-908), unpaired by Newcombe's
    square-and-add of Wilson intervals (1998, Statistics in Medicine 17, 873-890).
    """
    if not len(matched.a.score) or not len(matched.b.score):
        return -1.0, 1.0
    if not matched.paired:
        of_a, of_b = _effective(matched, likeness)
        return newcombe_limits(of_a, of_b, z)
    only_a, only_b, n = _discordant(matched, likeness)
    observed = (only_a - only_b) / n

    def limit(end: float) -> float:
        inside, outside = observed, end
        for _ in range(_HALVINGS):
            middle = 0.5 * (inside + outside)
            if abs(tango_z(only_a, only_b, n, middle)) < z:
                inside = middle
            else:
                outside = middle
        return outside

    return limit(-1.0), limit(1.0)


def tango_z(only_a: float, only_b: float, n: float, difference: float) -> float:
    """Tango's statistic of ``n`` pairs, ``only_a`` and ``only_b`` of which one side got right.

    >>> round(tango_z(0.0, 0.0, 40.0, 0.1), 3)
    -2.108
    """
    linear = -only_a - only_b + (2.0 * n - only_a + only_b) * difference
    root = math.sqrt(max(linear**2 + 8.0 * n * only_b * difference * (1.0 - difference), 0.0))
    of_b = (root - linear) / (4.0 * n)
    variance = n * (2.0 * of_b + difference * (1.0 - difference))
    excess = only_a - only_b - n * difference
    return 0.0 if abs(excess) < 1e-9 else excess / math.sqrt(max(variance, 1e-12))


def _discordant(matched: Matched, likeness: Likeness) -> tuple[float, float, float]:
    """Pairs right on one side alone, a and b, and all pairs, over the design effect."""
    change = matched.a.score - matched.b.score
    worth = design_effect(np.bincount(matched.a.document), likeness.difference)
    only_a, only_b = float(change.clip(0).sum()), float((-change).clip(0).sum())
    return only_a / worth, only_b / worth, len(change) / worth


def _effective(matched: Matched, likeness: Likeness) -> list[tuple[float, float]]:
    """Share right and effective number of questions of either side."""
    sides: list[tuple[Side, float]] = [(matched.a, likeness.a), (matched.b, likeness.b)]
    return [
        (
            float(side.score.mean()),
            len(side.score) / design_effect(np.bincount(side.document), correlation),
        )
        for side, correlation in sides
    ]
