"""Limits, plans and intervals against what they are defined by."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from contextcliff_dagster.extensions.continuation.analysis.arm import (
    intact_upper,
    mean_interval,
    passages_needed,
    trend_over_sizes,
)
from contextcliff_dagster.extensions.continuation.results import Components

PARTS = Components(passage=0.1, size_within_passage=0.05, round=0.25, rounds=5.0)


def test_the_limit_of_the_share_falls_with_passages_and_knows_collapses() -> None:
    limits = []
    for passages in (5, 20, 80):
        whole = np.ones((passages, 5))
        limits.append(intact_upper(whole, whole, 0.95))
    assert limits == sorted(limits, key=lambda limit: -(limit or 0.0))
    half = np.ones((20, 5))
    half[::2] = 0.0
    found = intact_upper(np.ones((20, 5)), half, 0.95)
    assert found is not None
    assert found > 0.6


def test_passages_needed_have_the_power_that_is_wished() -> None:
    rng = np.random.default_rng(0)
    needed = passages_needed(PARTS, 0.5, 0.1, 0.8, 5, 0.05)
    assert needed is not None
    sd = (2 * 0.05**2 + 0.25**2 / 5 + (0.8 * 0.25**2 + 0.16 * 0.5**2) / 5) ** 0.5
    drawn = rng.normal(0.1, sd, size=(4_000, needed))
    t = drawn.mean(axis=1) / (drawn.std(axis=1, ddof=1) / needed**0.5)
    assert (t > stats.t.ppf(0.95, needed - 1)).mean() == pytest.approx(0.8, abs=0.05)


def test_more_rounds_power_and_tests_ask_for_fewer_and_more_passages() -> None:
    base = passages_needed(PARTS, 0.5, 0.1, 0.8, 5, 0.005)
    assert base is not None
    for changed, more in (
        (passages_needed(PARTS, 0.5, 0.1, 0.9, 5, 0.005), True),
        (passages_needed(PARTS, 0.5, 0.1, 0.8, 5, 0.0025), True),
        (passages_needed(PARTS, 0.5, 0.1, 0.8, 10, 0.005), False),
        (passages_needed(PARTS, 0.5, 0.2, 0.8, 5, 0.005), False),
    ):
        assert changed is not None
        assert (changed > base) == more
    assert passages_needed(PARTS, 0.05, 0.1, 0.8, 5, 0.005) is None


def test_an_interval_holds_the_mean_of_passages_with_effects_of_texts() -> None:
    rng = np.random.default_rng(3)
    text = np.repeat(np.arange(8), 4)
    held = 0
    for _ in range(100):
        values = rng.normal(0, 0.1, 8)[text] + rng.normal(0.3, 0.1, 32)
        low, high = mean_interval(values, text, 0.95)
        assert low is not None
        assert high is not None
        held += low <= 0.3 <= high
    assert held >= 88


def test_a_trend_is_its_slope_per_doubling_and_knows_missing_sizes() -> None:
    sizes = np.array([1024, 2048, 4096, 8192])
    means = 0.8 - 0.1 * np.log2(sizes / 1024) + np.linspace(-0.1, 0.1, 6)[:, None]
    means[0, 1] = means[1, 3] = np.nan
    passages = np.arange(6)
    found = trend_over_sizes(means, sizes, passages, np.random.default_rng(0), 0.95)
    assert found is not None
    assert found.slope == pytest.approx(-0.1)
    assert found.p_value == 1 / 5000
    assert (
        trend_over_sizes(means[:, :2], sizes[:2], passages, np.random.default_rng(0), 0.95) is None
    )
