"""From counts of right answers to a curve: intervals, the plateau, and where it is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from contextcliff_dagster.reference.card import CardPoint

PLATEAU_SHARE = 0.8
"""The plateau is the mean over the lengths below this share of the training length."""


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """Wilson's 95% score interval of a binomial share."""
    from scipy.stats import binomtest

    low, high = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    return float(low), float(high)


def plateau(points: Sequence[CardPoint], training_length: int) -> float:
    """Mean exact match over the lengths below `PLATEAU_SHARE` of the training length."""
    low = [p.exact_match for p in points if p.length_tokens < PLATEAU_SHARE * training_length]
    return float(np.mean(low))


def length_at_loss(points: Sequence[CardPoint], plateau: float, loss: float) -> float:
    """Document tokens at which the curve has lost the share `loss` of its plateau.

    The curve is made non-increasing and interpolated linearly in log length. NaN where it never
    falls so far.
    """
    from scipy.optimize import isotonic_regression

    length = np.log([p.length_tokens for p in points])
    shares, n = [p.exact_match for p in points], [p.n for p in points]
    fitted = isotonic_regression(shares, weights=n, increasing=False).x
    below = np.flatnonzero(fitted <= (1 - loss) * plateau)
    if below.size == 0 or below[0] == 0:
        return math.nan
    right = int(below[0])
    drop = fitted[right - 1] - fitted[right]
    share = (fitted[right - 1] - (1 - loss) * plateau) / drop
    return float(np.exp(length[right - 1] + share * (length[right] - length[right - 1])))
