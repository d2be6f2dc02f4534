"""Equal score up to a length: rarely claimed where it is wrong, and claimed where it is right."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.comparison import Measured, compare
from contextcliff_dagster.analysis.contrast import Pairs, pair_records
from contextcliff_dagster.analysis.kv_costs import (
    LEAST_DOCUMENTS,
    drop_p_value,
    equal_score,
    median_of,
)
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts.results import Comparison, to_json
from contextcliff_dagster.contracts.results.comparison import KvPolicy
from contextcliff_dagster_tests.support.records.planted_curves import bins_of, flat, plant
from contextcliff_dagster_tests.support.records.profiles import schema


def with_drop(pairs: Pairs, drops: np.ndarray) -> Pairs:
    """Single questions, all right on side A."""
    ones = np.ones(len(pairs.a.n))
    return replace(
        pairs, a=replace(pairs.a, n=ones, s=ones), b=replace(pairs.b, n=ones, s=ones - drops)
    )


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    a = plant(flat(0.9), 1)
    return pair_records(a, a, bins_of(a))


@pytest.mark.parametrize("gain", [0.0, 0.05, 0.2])
def test_a_drop_of_the_margin_is_seldom_taken_for_none(pairs: Pairs, gain: float) -> None:
    """The whole statement, over four windows, at a drop of just the margin: at most 5%."""
    rng = np.random.default_rng(3)
    chances = [0.1 + gain, gain, 0.9 - 2 * gain]
    wrong = sum(
        equal_score(
            with_drop(pairs, rng.choice([1.0, -1.0, 0.0], p=chances, size=len(pairs.a.n))),
            0.1,
            0.95,
        ).tokens
        is not None
        for _ in range(300)
    )
    assert wrong <= 0.05 * 300 + 2.5 * np.sqrt(300 * 0.05 * 0.95)


def test_a_drop_that_begins_in_the_middle_ends_the_claim_there(pairs: Pairs) -> None:
    late = pairs.a.length_tokens > np.median(pairs.a.length_tokens)
    equal = equal_score(with_drop(pairs, late * 0.9), 0.1, 0.95)
    assert [window.equal for window in equal.windows] == [True, True, False, False]
    assert equal.tokens == equal.windows[1].to_tokens
    assert all(window.n_documents >= LEAST_DOCUMENTS for window in equal.windows)
    assert sum(window.n_documents for window in equal.windows) == len(pairs.a.n)


def test_where_the_whole_cache_has_nothing_to_lose_nothing_is_claimed(pairs: Pairs) -> None:
    """Both sides without a right answer beyond the first half do not differ, nor work."""
    early = pairs.a.length_tokens <= np.median(pairs.a.length_tokens)
    ones = np.ones(len(pairs.a.n))
    side = replace(pairs.a, n=ones, s=1.0 * early)
    equal = equal_score(replace(pairs, a=side, b=side), 0.1, 0.95)
    assert [window.equal for window in equal.windows] == [True, True, False, False]


def test_a_recovery_beyond_a_drop_is_not_claimed(pairs: Pairs) -> None:
    early = pairs.a.length_tokens <= np.quantile(pairs.a.length_tokens, 0.25)
    assert equal_score(with_drop(pairs, early * 0.9), 0.1, 0.95).tokens is None


@given(st.lists(st.floats(-1, 1, allow_nan=False), min_size=1, max_size=80), st.floats(0.05, 0.5))
def test_the_p_value_is_one_and_falls_with_the_drop(drops: list[float], margin: float) -> None:
    p_value = drop_p_value(np.array(drops), margin)
    assert 0 < p_value <= 1
    assert p_value == pytest.approx(drop_p_value(np.array(drops[::-1]), margin), abs=1e-9)
    # As much change, and all of it for the better.
    assert drop_p_value(-np.abs(drops), margin) <= p_value + 1e-9


def test_the_p_value_of_unchanged_documents_is_the_binomial_one() -> None:
    # Without gains: the chance that none of n is lost, of the margin's each.
    exact = 0.9**60
    assert exact <= drop_p_value(np.zeros(60), 0.1) <= exact + 0.02


@given(st.integers(6, 60), st.integers(0, 1_000))
def test_the_median_has_the_exact_interval_of_order_statistics(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(10, 2, count)
    median = median_of(values, 0.95)
    assert median is not None
    assert median.ci_low is not None
    assert median.ci_high is not None
    assert median.ci_low <= median.median <= median.ci_high
    assert {median.ci_low, median.ci_high} <= set(values.tolist())


def test_few_documents_have_a_median_without_limits() -> None:
    assert median_of(np.array([]), 0.95) is None
    median = median_of(np.arange(5.0), 0.95)
    assert (median and median.median, median and median.ci_low) == (2.0, None)


def test_the_interval_of_a_median_covers_it_as_often_as_stated() -> None:
    rng = np.random.default_rng(1)
    for count in (6, 20, 41):
        found = [median_of(rng.exponential(1.0, count), 0.95) for _ in range(400)]
        covered = np.mean([m.ci_low <= np.log(2) <= m.ci_high for m in found])  # type: ignore[union-attr,operator]
        assert covered >= 0.95 - 2.5 * np.sqrt(0.05 * 0.95 / 400)


def pressed(share: float, lost: float = 0.0) -> Comparison:
    """`none` against `snapkv`, whose cache has ``share`` of the bytes, over 200 documents."""
    a = plant(flat(1.0), 1)
    rng = np.random.default_rng(0)

    def extra(factor: float) -> list[str]:
        return [
            json.dumps({"kv_bytes": int(factor * 1_000 * n), "kv_prefill_ms": 0.5 * n})
            for n in a.length_tokens
        ]

    b = a.assign(score=(rng.random(len(a)) >= lost) * 1.0, extra=extra(share))
    comparison = compare(
        Measured("m", a.assign(extra=extra(1.0)), kv=KvPolicy("m", "none")),
        Measured("m+snapkv", b, kv=KvPolicy("m", "snapkv", share)),
        bins_of(a),
        AnalysisSettings(),
    )
    schema("comparison").validate(json.loads(json.dumps(to_json(comparison), allow_nan=False)))
    return comparison


def test_what_is_saved_at_equal_score_is_named_with_its_length() -> None:
    kv = pressed(0.2).kv
    assert kv is not None
    longest = kv.equal.windows[-1].to_tokens
    assert kv.saved_share == pytest.approx(0.8, abs=0.001)
    assert kv.sentence == (
        "At equal score (mean drop below 0.1 in every length window, 95% confidence), snapkv at "
        f"20% saves 80% of the cache up to {longest:,} tokens."
    )
    quantities = {cost.quantity for cost in kv.costs}
    assert quantities == {"kv_bytes", "kv_prefill_ms"}
    last = [cost for cost in kv.costs if cost.quantity == "kv_bytes"][-1]
    assert last.a is not None
    assert last.b is not None
    assert last.b.median == pytest.approx(0.2 * last.a.median, rel=0.01)


def test_where_the_score_falls_no_length_is_named() -> None:
    kv = pressed(0.2, lost=0.4).kv
    assert kv is not None
    assert kv.equal.tokens is None
    assert "is not shown to score as well at any length" in kv.sentence
    assert "up to" not in kv.sentence


def test_a_comparison_of_other_models_has_no_part_on_the_cache() -> None:
    a = plant(flat(0.9), 1)
    sides = (Measured("a", a, kv=KvPolicy("a", "none")), Measured("b", a, kv=KvPolicy("b", "h2o")))
    assert compare(*sides, bins_of(a), AnalysisSettings()).kv is None
