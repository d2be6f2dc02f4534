"""Limits of shares and of their differences, for outcomes that share a unit.

Counts are divided by the design effect 1 + (m - 1) rho of m outcomes a unit (Rao and Scott 1992,
Biometrics 48, 577-585). Such limits have a width where all outcomes agree.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.statistics.intraclass_correlation import intraclass_correlation

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints


ASSUMED_CORRELATION = 0.2
"""Of two outcomes of one unit, where too few answers differ to estimate it."""
_ASSUMED_WEIGHT = 10.0
"""Answers that differ from the rest which the assumption is worth. An estimate from one or two is
near 0 or 1 by chance: with it alone, 39 right of 40 would have the narrower interval than 40."""


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


def score_correlation(document: Ints, score: Floats, stratum: Ints) -> tuple[float, bool]:
    """The correlation of two outcomes of one unit, and whether it is assumed.

    Args:
        document, score, stratum: of each outcome (N); a unit lies in one stratum.
    """
    return shrunk_correlation(
        document, score, stratum, float(min(score.sum(), (1.0 - score).sum()))
    )


def shrunk_correlation(
    document: Ints, score: Floats, stratum: Ints, differ: float
) -> tuple[float, bool]:
    """The intraclass correlation, shrunk towards the assumed one; and whether it is assumed.

    Args:
        differ: summed differences from the commoner outcome: what the estimate rests on.
    """
    found = intraclass_correlation(document, score, stratum) if len(document) else None
    if found is None:
        return ASSUMED_CORRELATION, True
    known = differ * found.value + _ASSUMED_WEIGHT * ASSUMED_CORRELATION
    return known / (differ + _ASSUMED_WEIGHT), False
