"""Limits of shares and of their differences, for outcomes that share a unit.

Counts are divided by the design effect 1 + (m - 1) rho of m outcomes a unit (Rao and Scott 1992,
Biometrics 48, 577-585). Such limits have a width where all outcomes agree.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Ints


def band_quantile(confidence: float, members: int) -> float:
    """Normal quantile of each of ``members`` two-sided intervals that hold at once (Bonferroni).

    >>> round(band_quantile(0.95, 9), 2)
    2.77
    """
    return NormalDist().inv_cdf(1.0 - 0.5 * (1.0 - confidence) / members)


def design_effect(n: Ints, correlation: float) -> float:
    """How many dependent outcomes are worth one independent one; ``n`` of each unit (D)."""
    return float(1.0 + ((n**2).sum() / max(n.sum(), 1) - 1.0) * correlation)


def wilson_limits(share: float, n: float, z: float) -> tuple[float, float]:
    """Wilson's limits (1927, JASA 22, 209-212) of a share of ``n`` effective outcomes."""
    middle = (share + z**2 / (2.0 * n)) / (1.0 + z**2 / n)
    half = z * (share * (1.0 - share) / n + (z / (2.0 * n)) ** 2) ** 0.5 / (1.0 + z**2 / n)
    return middle - half, middle + half


def newcombe_limits(
    a: tuple[float, float], b: tuple[float, float], z: float
) -> tuple[float, float]:
    """Limits of the difference of two shares, each with its effective number of outcomes.

    By the square-and-add of Wilson's (Newcombe 1998, Statistics in Medicine 17, 873-890).
    """
    (low_a, high_a), (low_b, high_b) = wilson_limits(*a, z), wilson_limits(*b, z)
    difference = a[0] - b[0]
    below = ((a[0] - low_a) ** 2 + (high_b - b[0]) ** 2) ** 0.5
    above = ((high_a - a[0]) ** 2 + (b[0] - low_b) ** 2) ** 0.5
    return max(difference - below, -1.0), min(difference + above, 1.0)
