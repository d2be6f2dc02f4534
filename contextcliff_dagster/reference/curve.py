"""From counts of right answers to a curve: intervals, the plateau, and where it is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.reference.card import CardPoint

PLATEAU_SHARE = 0.8
"""The plateau is the mean over the lengths below this share of the training length."""

_Z95 = 1.959963984540054


def wilson_interval(correct: int, n: int, z: float = _Z95) -> tuple[float, float]:
    """Wilson's score interval of a binomial share (95% by default)."""
    share = correct / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def non_increasing(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Isotonic (non-increasing) least-squares fit by pooling adjacent violators."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while blocks and blocks[-1][0] < mean:
            before, before_total, before_count = blocks.pop()
            mean = (mean * total + before * before_total) / (total + before_total)
            total, count = total + before_total, count + before_count
        blocks.append((mean, total, count))
    return np.repeat([block[0] for block in blocks], [block[2] for block in blocks])


def plateau(points: Sequence[CardPoint], training_length: int) -> float:
    """Mean exact match over the lengths below `PLATEAU_SHARE` of the training length."""
    low = [p.exact_match for p in points if p.length_tokens < PLATEAU_SHARE * training_length]
    return float(np.mean(low))


def length_at_loss(points: Sequence[CardPoint], plateau: float, loss: float) -> float:
    """Document tokens at which the curve has lost the share `loss` of its plateau.

    The curve is made non-increasing and interpolated linearly in log length. NaN where it never
    falls so far.
    """
    length = np.log([p.length_tokens for p in points])
    fitted = non_increasing(
        np.array([p.exact_match for p in points]), np.array([float(p.n) for p in points])
    )
    below = np.flatnonzero(fitted <= (1 - loss) * plateau)
    if below.size == 0 or below[0] == 0:
        return math.nan
    right = int(below[0])
    drop = fitted[right - 1] - fitted[right]
    share = (fitted[right - 1] - (1 - loss) * plateau) / drop
    return float(np.exp(length[right - 1] + share * (length[right] - length[right - 1])))
