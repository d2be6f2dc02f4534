"""Exact intervals of shares, and which documents have them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import document_interval, exact_interval


def interval(n: list[float], s: list[float]) -> tuple[float, float]:
    low, high = document_interval(np.array(n), np.array(s), AnalysisSettings(resamples=500))
    assert low is not None
    assert high is not None
    return low, high


@pytest.mark.parametrize("count", [3, 8, 20])
def test_the_exact_interval_covers_every_chance(count: int) -> None:
    limits = np.array([exact_interval(hits, count, 0.95) for hits in range(count + 1)])
    for chance in np.linspace(0.001, 0.999, 999):
        holds = (limits[:, 0] <= chance) & (chance <= limits[:, 1])
        assert binom.pmf(np.arange(count + 1), count, chance)[holds].sum() >= 0.95 - 1e-12


def test_only_single_right_or_wrong_answers_a_document_have_the_exact_interval() -> None:
    ones = [1.0] * 20
    assert interval(ones, [1.0] * 5 + [0.0] * 15) == exact_interval(5, 20, 0.95)
    assert exact_interval(5, 20, 0.95) == pytest.approx((0.0866, 0.4910), abs=1e-4)
    halves = interval(ones, [1.0] * 4 + [0.5] * 2 + [0.0] * 14)
    pairs = interval([2.0] * 10, [2.0] * 2 + [1.0] + [0.0] * 7)
    assert halves != exact_interval(5, 20, 0.95)
    assert pairs != exact_interval(5, 20, 0.95)
