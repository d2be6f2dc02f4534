"""Slow beyond a length: found where it is planted, not where the time merely grows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.latency import (
    by_document,
    find_slowdown,
    joint_cap,
    slowdown_sentences,
)
from contextcliff_dagster.analysis.profile import ModelProfile, profile_model
from contextcliff_dagster.contracts.results.cliffs import (
    JointCap,
    Slowdown,
    SlowdownByKind,
    SlowdownTest,
)
from contextcliff_dagster.reporting.terminal import risk_report
from contextcliff_dagster.reporting.wording import joint_cap_sentence
from contextcliff_dagster_tests.support.records.planted_curves import (
    Floats,
    bins_of,
    flat,
    lengths_of,
    plant,
)
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, QUICK, assert_conforms

SERVERS = ((500.0, 0.0, 0.0), (20.0, 0.05, 0.0), (20.0, 0.02, 3e-6), (1.0, 0.001, 2e-5))


def times(seed: int, beyond: float = np.inf, factor: float = 1.5) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    a, b, c = SERVERS[seed % len(SERVERS)]
    lengths = np.sort(lengths_of(rng)).astype(float)
    ms = (a + b * lengths + c * lengths**2) * np.where(lengths > beyond, factor, 1.0)
    return lengths, ms * np.exp(rng.normal(0, 0.2, len(ms)))


def searched(lengths: Floats, ms: Floats) -> SlowdownTest | None:
    return find_slowdown(lengths, ms, alpha=0.025, permutations=399, seed=0)


def test_times_that_follow_a_law_have_no_slowdown() -> None:
    found = [searched(*times(seed)) for seed in range(40)]
    assert sum(test is not None and test.slowdown is not None for test in found) <= 1
    p_values = [test.p_value for test in found if test is not None]
    assert len(p_values) == 40
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.2)


def test_half_as_much_again_is_found_near_its_place() -> None:
    near = held = 0
    for seed in range(30):
        beyond = (300.0, 900.0, 2_200.0)[seed % 3]
        test = searched(*times(seed, beyond))
        assert test is not None
        slow = test.slowdown
        if slow is None:
            continue
        near += abs(slow.last_normal_tokens / beyond - 1) <= 0.15
        held += slow.earliest_tokens <= beyond and slow.excess_low <= 0.5 <= slow.excess_high
        assert slow.earliest_tokens <= slow.last_normal_tokens <= slow.latest_tokens
    assert near >= 27
    assert held >= 24


def test_stalls_are_no_slowdown_and_hide_none() -> None:
    rng = np.random.default_rng(5)
    lengths, ms = times(1)
    stalled = np.where(rng.random(len(ms)) < 0.03, 8 * ms, ms)
    test = searched(lengths, stalled)
    assert test is not None
    assert test.slowdown is None
    slow = np.where(lengths > 900, 1.5, 1.0) * stalled
    test = searched(lengths, slow)
    assert test is not None
    assert test.slowdown is not None
    assert test.slowdown.last_normal_tokens == pytest.approx(900, rel=0.15)


def test_what_cannot_be_tested_is_not() -> None:
    lengths, ms = times(1)
    assert searched(lengths[:29], ms[:29]) is None
    assert searched(np.full(100, 500.0), ms[:100]) is None
    test = searched(np.repeat([100.0, 200.0], 50), np.full(100, 7.0))
    assert test is None or test.slowdown is None


def test_a_slowdown_that_may_be_below_a_tenth_is_none() -> None:
    lengths = np.geomspace(50, 5_000, 2_000)
    rng = np.random.default_rng(0)
    ms = np.where(lengths > 900, 1.05, 1.0) * (20 + 0.05 * lengths)
    test = searched(lengths, ms * np.exp(rng.normal(0, 0.02, len(ms))))
    assert test is not None
    assert test.p_value <= 0.025
    assert test.slowdown is None


def test_calls_on_one_document_are_one_unit() -> None:
    lengths, ms = by_document(
        np.array([10.0, 20.0, 10.0, 30.0, 30.0]),
        np.array([1.0, 5.0, 4.0, 7.0, 9.0]),
        np.array([0, 1, 0, 2, 3]),
    )
    assert sorted(zip(lengths, ms, strict=True)) == [
        (10.0, pytest.approx(2.0)), (20.0, pytest.approx(5.0)),
        (30.0, pytest.approx(7.0)), (30.0, pytest.approx(9.0)),
    ]  # fmt: skip


def test_the_joint_cap_is_the_smaller_and_says_which() -> None:
    slow = SlowdownTest(0.001, Slowdown(0.001, 900, 850, 950, 0.5, 0.4, 0.6, 50, 80.0))
    assert joint_cap(2_000, slow) == JointCap(850, "latency")
    assert joint_cap(500, slow) == JointCap(500, "accuracy")
    assert joint_cap(2_000, SlowdownTest(0.5, None)) == JointCap(2_000, "accuracy")
    assert joint_cap(None, slow) == JointCap(None, "accuracy")
    assert joint_cap(2_000, None) is None


@pytest.mark.parametrize(
    "slight",
    [
        Slowdown(0.001, 900, 850, 950, 0.5, 0.4, 0.6, 50, 10.0),
        Slowdown(0.001, 900, 850, 950, 0.2, 0.15, 0.25, 50, 80.0),
        Slowdown(0.001, 900, 200, 950, 0.5, 0.4, 0.6, 50, 80.0),
        Slowdown(0.001, 900, 850, 950, 0.5, 0.4, 0.6, 50),
    ],
    ids=["10 ms", "20%", "somewhere", "of an older file"],
)
def test_a_slowdown_that_nobody_notices_limits_nothing(slight: Slowdown) -> None:
    test = SlowdownTest(0.001, slight)
    assert joint_cap(2_000, test) == JointCap(2_000, "accuracy")
    assert slowdown_sentences(SlowdownByKind(test, test)) == []


def profile_of(records: pd.DataFrame) -> ModelProfile:
    profile = profile_model(records, bins_of(records), QUICK, CONTEXT)
    assert_conforms(profile)
    return profile


def test_a_slow_server_limits_the_joint_cap_of_a_profile() -> None:
    records = plant(flat(0.97), 1)
    rng = np.random.default_rng(1)
    scatter = np.exp(rng.normal(0, 0.1, len(records)))
    normal = records.assign(ttft_ms=(50 + 0.05 * records["length_tokens"]) * scatter)
    late = np.where(records["length_tokens"] > 1_000, 1.6, 1.0)
    slow = normal.assign(ttft_ms=normal.ttft_ms * late)
    plain, limited = profile_of(normal), profile_of(slow)
    cap = plain.cliffs.safe_cap_tokens
    assert cap is not None
    assert plain.cliffs.joint_cap == JointCap(cap, "accuracy", plain.cliffs.cap_prompt_tokens)
    slowdown = limited.metrics.slowdown.ttft.slowdown
    assert slowdown.last_normal_tokens == pytest.approx(1_000, rel=0.1)
    joint = limited.cliffs.joint_cap
    assert joint.tokens == min(cap, slowdown.earliest_tokens)
    assert limited.cliffs.safe_cap_tokens == cap
    assert any("time to first token is higher" in w for w in limited.cliffs.warnings)
    if joint.limited_by == "latency":
        assert "limited by latency" in str(joint_cap_sentence(limited.cliffs))
        assert "cap there where latency matters" in risk_report(limited.cliffs)
    no_times = profile_of(records.drop(columns=["ttft_ms"]))
    assert no_times.cliffs.joint_cap is None


def test_a_server_that_slows_down_over_a_run_in_order_of_length_limits_nothing() -> None:
    records = plant(flat(0.97), 1).sort_values("length_tokens", kind="stable")
    second = np.arange(len(records))
    moments = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(second, unit="s")
    ms = (50 + 0.05 * records["length_tokens"]) * np.where(second > 120, 2.0, 1.0)
    profile = profile_of(records.assign(ttft_ms=ms, finished_at=moments))
    assert profile.metrics.slowdown.ttft.slowdown is not None
    assert profile.cliffs.joint_cap is None
    assert not any("first token" in warning for warning in profile.cliffs.warnings)
    assert any("in order of length" in warning for warning in profile.cliffs.warnings)
