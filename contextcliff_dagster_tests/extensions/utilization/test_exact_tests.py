"""Tests of whole documents are exact: held against brute force, scipy and published figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from contextcliff_dagster.analysis.statistics.intervals import newcombe_limits
from contextcliff_dagster.extensions.utilization.analysis.comparison import (
    binomial_p_value,
    paired_t_test,
    tango_z,
)

whole = st.lists(st.integers(-4, 4), max_size=10).map(np.array)


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_the_binomial_test(one: int, other: int) -> None:
    expected = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert binomial_p_value(one, other) == pytest.approx(expected)


@given(whole.filter(lambda change: len(change) > 1 and np.ptp(change) > 0))
def test_the_t_test_is_students(change: np.ndarray) -> None:
    found = paired_t_test(change / 4.0)
    expected = stats.ttest_1samp(change / 4.0, 0.0)
    assert found is not None
    assert found.t == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_a_t_test_without_spread_has_no_p_value() -> None:
    found = paired_t_test(np.full(5, 0.25))
    assert found is not None
    assert (found.t, found.p_value, found.degrees) == (None, None, 4)
    assert paired_t_test(np.ones(1)) is None


counts = st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 40)).filter(any)


@given(counts, st.floats(-0.9, 0.9))
def test_tangos_statistic_is_the_score_test(
    observed: tuple[int, int, int], difference: float
) -> None:
    a, b, same = observed
    n = a + b + same

    def lost(of_b: float) -> float:
        of_a = of_b + difference
        rest = 1.0 - of_a - of_b
        parts = ((a, of_a), (b, of_b), (same, rest))
        return -sum(k * np.log(max(p, 1e-300)) for k, p in parts if k)

    low, high = max(0.0, -difference), (1.0 - difference) / 2.0
    found = optimize.minimize_scalar(
        lost, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    ends = min((lost(end), end) for end in (found.x, low, high))
    variance = n * (2.0 * ends[1] + difference - difference**2)
    z = tango_z(a, b, n, difference)
    if variance > 1e-6:
        assert z == pytest.approx((a - b - n * difference) / np.sqrt(variance), abs=2e-3)
    assert tango_z(b, a, n, -difference) == pytest.approx(-z, abs=1e-6)


def test_newcombes_published_interval() -> None:
    """56/70 against 48/80 (Newcombe 1998, table II, method 10): .0524 to .3339."""
    z = stats.norm.ppf(0.975)
    low, high = newcombe_limits((56 / 70, 70), (48 / 80, 80), z)
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)
