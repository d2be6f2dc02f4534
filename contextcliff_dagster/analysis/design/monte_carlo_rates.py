"""Rates counted over simulations, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval

CONFIDENCE = 0.95
"""Of the limits that say how exact a simulation is; not of what is simulated."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of simulations with the 95% limits of its Monte Carlo error (Wilson's; exact ones at
    0 and 1); nulls where there was none to count."""

    hits: int
    runs: int
    value: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, hits: Sequence[bool]) -> Rate:
        runs, count = len(hits), sum(hits)
        if not runs:
            return cls(0, 0, None, None, None)
        low, high = agreeing_interval(count / runs, runs, CONFIDENCE)
        return cls(count, runs, count / runs, low, high)


@dataclass(frozen=True, slots=True)
class Reach:
    """Caps as shares of the samples that are safe in truth, no cap counting as 0: quartiles, and
    95% limits of the median (by its order statistics)."""

    median: float | None
    low: float | None
    high: float | None
    quarter: float | None
    three_quarters: float | None

    @classmethod
    def of(cls, shares: Sequence[float]) -> Reach:
        if not shares:
            return cls(None, None, None, None, None)
        ordered = np.sort(np.array(shares))
        half, away = 0.5 * len(ordered), 0.98 * np.sqrt(len(ordered))
        low = ordered[max(int(np.floor(half - away)), 0)]
        high = ordered[min(int(np.ceil(half + away)), len(ordered) - 1)]
        quarter, median, three = np.quantile(ordered, (0.25, 0.5, 0.75))
        return cls(float(median), float(low), float(high), float(quarter), float(three))
