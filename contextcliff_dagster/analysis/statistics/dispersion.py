"""Signals in the spread of scores: bimodality, instability, rolling variance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats

_LEAST_FOR_SHAPE = 8
_LEAST_BETWEEN = 0.05


def bimodality(scores: Floats) -> float | None:
    """Sarle's bimodality coefficient: (g^2 + 1) / (k + 3 (n - 1)^2 / ((n - 2)(n - 3))).

    g and k are the sample skewness and excess kurtosis (SAS, Cluster procedure; Pfister et al.
    2013). A uniform distribution gives 5/9; larger values suggest two modes. ``None`` where it
    would say nothing: fewer than 8 scores, no spread, or fewer than 5% strictly between 0 and 1
    (0/1 scores have two modes by construction).
    """
    n = len(scores)
    if n < _LEAST_FOR_SHAPE or np.mean((scores > 0) & (scores < 1)) < _LEAST_BETWEEN:
        return None
    centred = scores - scores.mean()
    m2 = float(np.mean(centred**2))
    if m2 < 1e-12:
        return None
    g1 = float(np.mean(centred**3)) / m2**1.5
    g2 = float(np.mean(centred**4)) / m2**2 - 3.0
    skewness = g1 * np.sqrt(n * (n - 1)) / (n - 2)
    kurtosis = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * g2 + 6)
    return float((skewness**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3))))


def instability(replicate_sd: Floats) -> float | None:
    """Mean over examples of the SD between their replicates; ``None`` without replicates.

    Args:
        replicate_sd: sample SD of each example's replicates, NaN for a single one.

    >>> instability(np.array([0.25, 0.75, np.nan]))
    0.5
    """
    known = replicate_sd[np.isfinite(replicate_sd)]
    return float(known.mean()) if len(known) else None


def rolling_variance(
    counts: list[int], variances: list[float | None], window: int
) -> list[float | None]:
    """Variance within bins, pooled by n over each bin and the ``window - 1`` before it."""
    pooled: list[float | None] = []
    for end in range(1, len(counts) + 1):
        at = slice(max(0, end - window), end)
        near = [(n, v) for n, v in zip(counts[at], variances[at], strict=True) if v is not None]
        total = sum(n for n, _ in near)
        pooled.append(sum(n * v for n, v in near) / total if total else None)
    return pooled
