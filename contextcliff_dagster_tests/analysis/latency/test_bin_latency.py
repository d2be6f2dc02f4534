"""Times against length: what length explains is no excess, and slow calls do not bend the law."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.latency import LengthLaw, fit_length_law, spread_of
from contextcliff_dagster.analysis.profile import ModelProfile, profile_model
from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.contracts.results.metrics import (
    ExcessByKind,
    ExcludedCalls,
    LatencyByKind,
)
from contextcliff_dagster_tests.support.records.planted_curves import Floats, bins_of, flat, plant
from contextcliff_dagster_tests.support.records.profiles import (
    CONTEXT,
    METRICS,
    QUICK,
    assert_conforms,
)

SLOW_BEYOND, FACTOR = 2_000, 1.5


def excess(lengths: Floats, ms: Floats) -> Floats:
    law = fit_length_law(lengths, ms)
    assert law is not None
    return ms / law(lengths) - 1.0


def profile_of(records: pd.DataFrame) -> ModelProfile:
    profile = profile_model(records, bins_of(records), QUICK, CONTEXT)
    assert_conforms(profile)
    return profile


seeds = st.integers(0, 2**32 - 1)
costs = st.tuples(
    st.floats(0.1, 1_000), st.just(0.0) | st.floats(0.001, 1), st.just(0.0) | st.floats(1e-8, 1e-4)
)


def server(cost: tuple[float, float, float], lengths: Floats) -> Floats:
    base, per_token, squared = cost
    return base + per_token * lengths + squared * lengths**2


@given(seeds, costs, st.integers(12, 300))
def test_a_server_whose_time_is_its_length_has_no_excess(
    seed: int, cost: tuple[float, float, float], calls: int
) -> None:
    lengths = np.exp(np.random.default_rng(seed).uniform(np.log(40), np.log(8_000), calls))
    assert np.abs(excess(lengths, server(cost, lengths))).max() < 1e-3


@given(seeds, costs, st.floats(1.2, 5.0), st.floats(0.05, 0.3))
def test_a_slow_tail_is_its_own_excess_and_nobody_elses(
    seed: int, cost: tuple[float, float, float], factor: float, share: float
) -> None:
    lengths = np.exp(np.random.default_rng(seed).uniform(np.log(40), np.log(8_000), 200))
    slow = lengths > np.quantile(lengths, 1 - share)
    estimate = excess(lengths, server(cost, lengths) * np.where(slow, factor, 1.0))
    assert np.median(estimate[slow]) == pytest.approx(factor - 1, rel=0.02)
    assert np.median(np.abs(estimate[~slow])) < 0.01


@given(seeds, costs, st.floats(0.01, 100))
def test_the_unit_of_time_does_not_matter(
    seed: int, cost: tuple[float, float, float], unit: float
) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.uniform(40, 8_000, 100)
    ms = server(cost, lengths) * np.exp(rng.normal(0, 0.05, 100))
    assert excess(lengths, unit * ms) == pytest.approx(excess(lengths, ms), abs=1e-6)


def test_calls_that_scatter_have_little_excess_and_still_show_a_slow_tail() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        lengths = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), 200)))
        ms = (20 + 0.05 * lengths) * np.exp(rng.normal(0, 0.05, 200))
        medians = [np.median(part) for part in np.array_split(excess(lengths, ms), 10)]
        assert np.abs(medians).max() < 0.10
        ms[-20:] *= 1.5
        medians = [np.median(part) for part in np.array_split(excess(lengths, ms), 10)]
        assert medians[-1] > 0.3
        assert np.abs(medians[:-1]).max() < 0.10


def test_few_calls_or_lengths_give_no_law() -> None:
    lengths = np.linspace(100, 5_000, 40)
    assert fit_length_law(lengths[:11], lengths[:11]) is None
    assert fit_length_law(np.repeat([1.0, 2.0, 3.0], 20), np.full(60, 7.0)) is None
    assert fit_length_law(lengths, np.full(40, 7.0)) == LengthLaw(pytest.approx(7.0), 0.0, 0.0)


def test_ten_thousand_calls_give_the_law_of_some() -> None:
    lengths = np.linspace(40, 8_000, 10_000)
    law = fit_length_law(lengths, 20 + 0.05 * lengths)
    assert law is not None
    assert (law.base_ms, law.ms_per_1k) == pytest.approx((20, 50), rel=1e-6)


def test_the_interval_of_a_bins_median_covers() -> None:
    rng = np.random.default_rng(0)
    for n in (6, 7, 20, 21):
        hits = 0
        for _ in range(2_000):
            noise = rng.normal(0, 1, n)
            estimate = spread_of(noise, noise)
            assert estimate is not None
            low, high = estimate.ci_low, estimate.ci_high
            assert low is not None
            assert high is not None
            hits += low <= 0 <= high
        assert 0.94 <= hits / 2_000 <= 0.995
    values = np.array([0.1, 0.2, np.nan])
    few = spread_of(values, 100 * values)
    assert few is not None
    assert (few.n, few.ci_low, few.median_ms) == (2, None, pytest.approx(15.0))
    unknown = np.array([np.nan])
    assert spread_of(unknown, unknown) is None


def slow_records(seed: int = 1) -> pd.DataFrame:
    records = plant(flat(0.9), seed)
    late = np.where(records["length_tokens"] > SLOW_BEYOND, FACTOR, 1.0)
    return records.assign(ttft_ms=10 * records["ttft_ms"] * late)


def test_slow_bins_are_in_the_metrics_and_in_a_warning() -> None:
    profile = profile_of(slow_records())
    rows = profile.metrics.bins
    beyond = [row for row in rows if row.min_tokens > SLOW_BEYOND]
    before = [row for row in rows if row.max_tokens <= SLOW_BEYOND]
    assert beyond
    for row in beyond:
        assert row.latency_excess.ttft.median == pytest.approx(FACTOR - 1, abs=0.05)
        assert row.ttft_excess == row.latency_excess.ttft.median
        assert row.latency_excess.ttft.iqr < 0.1
        assert abs(row.latency_excess.duration.median) < 0.05
    assert all(abs(row.latency_excess.ttft.median) < 0.05 for row in before)
    law = profile.metrics.latency.ttft.law
    assert (law.base_ms, law.ms_per_1k) == pytest.approx((50, 200), rel=0.05)
    (warning,) = [w for w in profile.cliffs.warnings if "time to first token is higher" in w]
    assert warning in profile.metrics.warnings
    slowdown = profile.metrics.slowdown.ttft.slowdown
    assert before[-1].max_tokens <= slowdown.last_normal_tokens < beyond[0].min_tokens
    assert f"Beyond {slowdown.last_normal_tokens:,} tokens" in warning


def test_calls_from_a_cache_and_calls_that_waited_are_left_out() -> None:
    records = plant(flat(0.9), 1).assign(cached_tokens=0, queue_ms=0.2, loop_lag_ms=0.05)
    plain = profile_of(records)
    assert plain.metrics.latency.ttft.excluded == ExcludedCalls(0, 0, 0)
    odd = records.index[records["length_tokens"] > SLOW_BEYOND]
    cached, queued, lagging = odd[0::3], odd[1::3], odd[2::3]
    records.loc[cached, ["cached_tokens", "ttft_ms"]] = [1_000, 0.5]
    records.loc[queued, ["queue_ms", "ttft_ms"]] = [500, 400]
    records.loc[lagging, ["loop_lag_ms", "ttft_ms"]] = [500, 400]
    profile = profile_of(records)
    latency = profile.metrics.latency.ttft
    assert latency.excluded == ExcludedCalls(len(cached), len(queued), len(lagging))
    assert latency.calls == len(records) - len(odd)
    law, before = asdict(latency.law), asdict(plain.metrics.latency.ttft.law)
    assert law == pytest.approx(before, rel=0.1)
    beyond = [row for row in profile.metrics.bins if row.min_tokens > SLOW_BEYOND]
    assert beyond
    assert all(row.latency_excess.ttft is None for row in beyond)
    # A system prompt that every call shares is no reason to leave the call out.
    shared = profile_of(plant(flat(0.9), 1).assign(cached_tokens=3))
    assert shared.metrics.latency.ttft.calls == len(records)


def test_metrics_of_before_still_meet_the_schema() -> None:
    metrics = to_json(profile_of(slow_records()).metrics)
    del metrics["latency"]
    for row in metrics["bins"]:
        del row["latency_excess"]
    METRICS.validate(json.loads(json.dumps(metrics)))


def test_without_times_nothing_is_said() -> None:
    records = plant(flat(0.9), 1).drop(columns=["ttft_ms", "duration_ms"])
    metrics = profile_of(records).metrics
    assert metrics.latency == LatencyByKind(None, None)
    assert all(row.latency_excess == ExcessByKind(None, None) for row in metrics.bins)
