"""Up to which length the first token keeps to a user's limit, and who decides the joint cap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.latency import joint_cap, judge_limit, least_documents
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.cliffs import (
    JointCap,
    LatencyLimit,
    Slowdown,
    SlowdownTest,
)
from contextcliff_dagster.policy import PolicyError, SafeContext
from contextcliff_dagster.reporting.length_profile.tables import slowdown_sections
from contextcliff_dagster.reporting.terminal import risk_report
from contextcliff_dagster.reporting.wording import joint_cap_sentence, latency_limit_sentence
from contextcliff_dagster_tests.support.records.planted_curves import Floats, flat, plant
from contextcliff_dagster_tests.support.records.profiles import QUICK, cliffs_of

BASE, PER_TOKEN, NOISE = 50.0, 0.5, 0.2
P95 = np.exp(1.645 * NOISE)


def times(seed: int, documents: int = 200) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    lengths = np.sort(np.exp(rng.uniform(np.log(100), np.log(8_000), documents)).round())
    ms = (BASE + PER_TOKEN * lengths) * np.exp(rng.normal(0, NOISE, documents))
    return lengths, ms


def judged(lengths: Floats, ms: Floats, limit: float, confidence: float = 0.95) -> LatencyLimit:
    return judge_limit(lengths, ms, np.arange(len(ms)), limit, confidence)


def truth(limit: float) -> float:
    return float((limit / P95 - BASE) / PER_TOKEN)


def test_the_length_is_near_the_true_one_and_seldom_beyond() -> None:
    beyond = early = 0
    reach = []
    for seed in range(40):
        limit = (300.0, 900.0, 2_000.0)[seed % 3]
        found = judged(*times(seed), limit)
        assert found.tokens is not None
        assert found.passed_by_tokens is not None
        beyond += found.tokens > truth(limit)
        early += found.passed_by_tokens <= truth(limit)
        reach.append(found.tokens / truth(limit))
        assert found.tokens < found.passed_by_tokens
    assert beyond <= 5
    assert early <= 5
    assert 0.75 <= np.median(reach) <= 1.0


@given(st.integers(0, 10_000), st.floats(100.0, 3_000.0), st.floats(1.0, 3.0))
def test_a_longer_limit_never_names_a_shorter_length(seed: int, limit: float, more: float) -> None:
    lengths, ms = times(seed, 80)
    short, long = judged(lengths, ms, limit), judged(lengths, ms, limit * more)
    assert (short.tokens or 0) <= (long.tokens or 0)
    assert (short.passed_by_tokens or 10**9) <= (long.passed_by_tokens or 10**9)


@given(st.integers(0, 10_000), st.integers(0, 100))
def test_neither_the_order_of_the_calls_nor_the_unit_of_time_matters(seed: int, order: int) -> None:
    lengths, ms = times(seed, 70)
    shuffled = np.random.default_rng(order).permutation(len(ms))
    one = judged(lengths, ms, 900.0)
    same = judge_limit(lengths[shuffled], ms[shuffled], shuffled, 900.0, 0.95)
    scaled = judged(lengths, ms * 4.0, 3_600.0)
    assert one == same == replace(scaled, ttft_ms_p95=900.0)


def test_a_limit_that_is_never_reached_holds_over_the_whole_range() -> None:
    lengths, ms = times(1)
    found = judged(lengths, ms, 20_000.0)
    assert found.tokens == found.longest_tokens == lengths[-1]
    assert found.passed_by_tokens is None
    hopeless = judged(lengths, ms, 1.0)
    assert (hopeless.tokens, hopeless.passed_by_tokens) == (None, lengths[0])


def test_too_few_documents_support_no_length() -> None:
    assert least_documents(0.95) == 59
    lengths, ms = times(1, 59)
    assert judged(lengths, ms, 20_000.0).tokens == lengths[-1]
    assert judged(lengths[:-1], ms[:-1], 20_000.0).tokens is None
    assert judged(lengths, ms, 20_000.0, 0.99).tokens is None
    # Many calls on few documents are no more documents.
    again = judge_limit(
        np.repeat(lengths[1:], 4), np.repeat(ms[1:], 4), np.arange(232) // 4, 9e9, 0.95
    )
    assert (again.tokens, again.n_documents) == (None, 58)


def test_calls_without_a_first_token_are_late() -> None:
    lengths, ms = times(1)
    lost = np.where(lengths > 2_000, np.inf, ms)
    found = judged(lengths, lost, 1e6)
    assert found.tokens is not None
    assert found.tokens < 2_000
    assert judged(lengths, ms, 1e6).tokens == lengths[-1]


def test_the_users_limit_takes_part_in_the_joint_cap() -> None:
    limit = LatencyLimit(2_000.0, 800, 900, 5_000, 200)
    slow = SlowdownTest(0.001, Slowdown(0.001, 600, 550, 650, 0.5, 0.4, 0.6, 50, 80.0))
    assert joint_cap(2_000, None, limit) == JointCap(800, "latency_limit")
    assert joint_cap(2_000, slow, limit) == JointCap(800, "latency_limit")
    assert joint_cap(500, None, limit) == JointCap(500, "accuracy")
    assert joint_cap(None, None, limit) == JointCap(None, "accuracy")
    assert joint_cap(500, None, replace(limit, tokens=None)) == JointCap(None, "latency_limit")


def records(**columns: object) -> pd.DataFrame:
    planted = plant(flat(0.97), 1)
    rng = np.random.default_rng(1)
    ms = (BASE + PER_TOKEN * planted["length_tokens"]) * np.exp(rng.normal(0, 0.2, len(planted)))
    prompt = planted["length_tokens"] + 20.0
    return planted.assign(**{"ttft_ms": ms, "prompt_tokens": prompt, **columns})


def limited(limit_ms: float, **columns: object) -> Cliffs:
    return cliffs_of(records(**columns), replace(QUICK, ttft_limit_ms=limit_ms))


def test_a_profile_names_the_length_and_which_cap_binds() -> None:
    bound = limited(600.0)
    limit, joint, cap = bound.latency_limit, bound.joint_cap, bound.safe_cap_tokens
    assert limit is not None
    assert joint is not None
    assert cap is not None
    assert limit.tokens is not None
    assert limit.tokens < cap
    assert (joint.tokens, joint.limited_by) == (limit.tokens, "latency_limit")
    assert joint.prompt_tokens is not None
    assert joint.tokens < joint.prompt_tokens < cap
    assert f"First token within 600 ms up to {limit.tokens:,} tokens" in risk_report(bound)
    assert f"Hard cap inference context at {limit.tokens:,} tokens." in risk_report(bound)
    assert f"the scores alone allow {cap:,} tokens" in risk_report(bound)
    assert "may exceed its limit" in str(joint_cap_sentence(bound))
    free = limited(60_000.0)
    assert free.joint_cap == JointCap(cap, "accuracy", free.cap_prompt_tokens)
    assert "over the whole range, to" in str(latency_limit_sentence(free))
    assert "The score decides the cap." in risk_report(free)
    none = limited(1.0)
    assert none.joint_cap == JointCap(None, "latency_limit")
    assert "supports no hard cap" in risk_report(none)
    assert cliffs_of(records()).latency_limit is None


def test_the_policy_keeps_to_the_limit() -> None:
    bound = limited(600.0)
    policy = SafeContext.from_cliffs(bound, expires=3_650)
    assert bound.joint_cap is not None
    assert policy.safe_cap_tokens == bound.joint_cap.tokens
    assert policy.cap_prompt_tokens == bound.joint_cap.prompt_tokens
    with pytest.raises(PolicyError, match="first token after 600 ms"):
        policy.check(policy.safe_cap_tokens + 1)
    with pytest.raises(PolicyError, match="limit on the time to the first token"):
        SafeContext.from_cliffs(limited(1.0), expires=3_650)


@pytest.mark.parametrize(
    ("columns", "documents"),
    [
        ({"ttft_ms": np.nan}, 0),
        ({"loop_lag_ms": 26.0}, 0),
        ({"cached_tokens": 1_000_000.0}, 0),
        ({"queue_ms": 1_000_000.0}, 200),
    ],
    ids=["no times", "our own lag", "cached", "queued"],
)
def test_only_times_that_a_user_would_wait_count(columns: dict[str, float], documents: int) -> None:
    result = limited(600.0, **columns)
    assert result.latency_limit is not None
    assert result.latency_limit.n_documents == documents
    if not documents:
        assert "not known from 0 documents" in str(latency_limit_sentence(result))


def test_a_slowdown_that_nobody_notices_is_a_row_and_no_warning() -> None:
    planted = records()
    late = np.where(planted["length_tokens"] > 1_000, 1.6, 1.0)
    result = cliffs_of(planted.assign(ttft_ms=0.02 * planted["ttft_ms"] * late))
    assert result.slowdown is not None
    assert result.slowdown.ttft is not None
    assert result.slowdown.ttft.slowdown is not None
    (section,) = slowdown_sections(result)
    assert section.title == "Slower than expected"
    assert not any("first token" in warning for warning in result.warnings)
    assert result.joint_cap is not None
    assert result.joint_cap.limited_by == "accuracy"
    assert slowdown_sections(cliffs_of(planted.drop(columns="ttft_ms"))) == []
