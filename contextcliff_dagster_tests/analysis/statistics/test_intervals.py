"""Quantiles, and the drop's interval where the spread of the scores is estimated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, chi2, f

from contextcliff_dagster.analysis.records.settings import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import (
    deviance_quantile,
    document_interval,
    exact_interval,
)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_quantile_is_chi_square_of_a_known_and_f_of_an_estimated_dispersion(
    confidence: float,
) -> None:
    assert deviance_quantile(confidence, None) == pytest.approx(chi2.ppf(confidence, 1))
    for degrees in (1, 3, 22, 197):
        expected = f.ppf(confidence, 1, degrees)
        assert deviance_quantile(confidence, degrees) == pytest.approx(expected)


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
