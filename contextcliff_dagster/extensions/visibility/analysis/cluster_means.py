"""The mean of clusters, each counting alike, with Student's interval; clusters lie in strata.

Strata are fixed: the interval is for further clusters of the same strata, so only the spread within
strata counts. Where a stratum has a single cluster, strata are not told apart, which is cautious.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

AGREE = 1e-9
"""A smaller standard error is none: rounding alone."""


@dataclass(frozen=True, eq=False, slots=True)
class ClusterMeans:
    """Means of clusters and the stratum of each (C), at least one.

    >>> means = ClusterMeans(np.array([0.1, 0.3, 0.5, 0.7]), np.array([0, 0, 1, 1]))
    >>> round(means.mean, 3), round(means.standard_error, 3), round(means.degrees, 3)
    (0.4, 0.071, 2.0)
    """

    values: Floats
    stratum: Ints

    @property
    def mean(self) -> float:
        """Mean over clusters."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean; nan with a single cluster."""
        return math.sqrt(_parts(self.values, self.stratum).sum()) / len(self.values)

    @property
    def degrees(self) -> float:
        """Degrees of freedom by Welch and Satterthwaite (1946, Biometrics Bulletin 2, 110-114)."""
        parts = _parts(self.values, self.stratum)
        sizes = np.array([mask.sum() for mask in strata_of(self.stratum)])
        if parts.sum() < AGREE**2:
            return float(len(self.values) - len(sizes))
        return float(parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum())

    def interval(self, confidence: float) -> tuple[float, float] | tuple[None, None]:
        """Two-sided interval of the mean of differences, -1..1; nulls with a single cluster.

        Clusters that agree are no certainty: theirs is that of a share of which none was seen,
        +-(1 - tail^(1/C)) (Clopper and Pearson 1934, Biometrika 26, 404-413).
        """
        if len(self.values) < 2:
            return None, None
        tail = 0.5 * (1.0 - confidence)
        if self.standard_error < AGREE:
            half = float(1.0 - tail ** (1.0 / len(self.values)))
        else:
            half = self.quantile(1.0 - tail) * self.standard_error
        return max(self.mean - half, -1.0), min(self.mean + half, 1.0)

    def upper(self, confidence: float, whole: float) -> float | None:
        """Upper end of the two-sided interval, with the variance of half a cluster of ``whole``.

        So clusters that agree are not certain, and a rare difference as large as ``whole`` is not
        ruled out by its absence alone. None with a single cluster.
        """
        if len(self.values) < 2:
            return None
        variance = self.standard_error**2 + 0.5 * whole**2 / len(self.values) ** 2
        half = self.quantile(0.5 * (1.0 + confidence)) * math.sqrt(variance)
        return min(self.mean + half, 1.0)

    def quantile(self, probability: float) -> float:
        """Of Student's t with these degrees of freedom."""
        from scipy.special import stdtrit

        return float(stdtrit(self.degrees, probability))


def strata_of(stratum: Ints) -> list[np.ndarray]:
    """Which clusters each stratum has (S x C); one of all where a stratum has a single cluster."""
    names, sizes = np.unique(stratum, return_counts=True)
    if (sizes < 2).any():
        return [np.ones(len(stratum), bool)]
    return [stratum == name for name in names]


def _parts(values: Floats, stratum: Ints) -> Floats:
    """Each stratum's part of C^2 times the variance of the mean."""
    masks = strata_of(stratum)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.array([mask.sum() * np.var(values[mask], ddof=1) for mask in masks])
