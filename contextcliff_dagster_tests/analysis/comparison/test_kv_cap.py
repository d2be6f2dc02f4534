"""A cap against another measurement's baseline: never beyond its own, never from a lost start."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.contrast import Pairs, Side
from contextcliff_dagster.analysis.kv_costs import kv_cap
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster_tests.support.examples import examples

SETTINGS = AnalysisSettings()
LENGTHS = np.geomspace(40, 8_000, 120).astype(np.int64)


def pairs_of(right_a: np.ndarray, right_b: np.ndarray) -> Pairs:
    ones, bins = np.ones(len(LENGTHS)), np.zeros(len(LENGTHS), np.int64)
    sides = (Side(LENGTHS, ones, right.astype(float), bins, True) for right in (right_a, right_b))
    return Pairs(True, *sides, [], right_a, right_b, np.arange(len(LENGTHS)), 0, 0)


def until(tokens: float, share: float = 1.0) -> np.ndarray:
    """Right answers up to a length, spread evenly over that share of the documents."""
    chosen = np.floor(np.arange(1, len(LENGTHS) + 1) * share) > np.floor(
        np.arange(len(LENGTHS)) * share
    )
    return (tokens >= LENGTHS) & chosen


def test_the_same_answers_keep_the_own_cap() -> None:
    answers = until(2_000)
    cap = kv_cap(pairs_of(answers, answers), 1_000, SETTINGS)
    assert cap.tokens == 1_000
    assert cap.baseline == 1.0
    assert cap.lost_low is not None
    assert cap.lost_tokens is not None
    assert cap.lost_high is not None
    assert 1_000 < cap.lost_low <= cap.lost_tokens <= cap.lost_high
    assert 1_800 < cap.lost_tokens < 2_500


def test_a_low_start_has_no_cap() -> None:
    cap = kv_cap(pairs_of(until(9_000), until(9_000, 0.5)), 8_000, SETTINGS)
    assert (cap.tokens, cap.lost_tokens) == (None, 40)


def test_a_small_loss_at_the_start_shortens_what_may_be_lost_later() -> None:
    whole, pressed = until(9_000), until(9_000, 0.9) & ((LENGTHS < 1_500) | until(9_000, 0.8))
    own = kv_cap(pairs_of(pressed, pressed), 8_000, SETTINGS)
    against = kv_cap(pairs_of(whole, pressed), 8_000, SETTINGS)
    assert own.tokens is not None
    assert (against.tokens or 0) < own.tokens


def test_without_an_own_cap_there_is_none() -> None:
    answers = until(2_000)
    assert kv_cap(pairs_of(answers, answers), None, SETTINGS).tokens is None


def test_one_length_has_neither_cap_nor_loss() -> None:
    answers = np.ones(len(LENGTHS))
    pairs = pairs_of(answers, answers)
    side = Side(np.full(len(LENGTHS), 100), np.ones(len(LENGTHS)), answers, pairs.a.bin_index, True)
    one = Pairs(True, side, side, [], answers, answers, np.arange(len(LENGTHS)), 0, 0)
    cap = kv_cap(one, 100, SETTINGS)
    assert (cap.tokens, cap.lost_tokens, cap.lost_low, cap.lost_high) == (None, None, None, None)


@examples(25)
@given(st.floats(0.2, 1.0), st.floats(0.2, 1.0), st.floats(100, 9_000), st.sampled_from([0.1, 0.3]))
def test_the_cap_lies_below_the_loss_and_grows_with_the_tolerance(
    share_a: float, share_b: float, tokens: float, tolerance: float
) -> None:
    pairs = pairs_of(until(9_000, share_a), until(tokens, share_b))
    strict = kv_cap(pairs, 9_000, AnalysisSettings(tolerance=tolerance))
    loose = kv_cap(pairs, 9_000, AnalysisSettings(tolerance=tolerance + 0.2))
    assert (strict.tokens or 0) <= (loose.tokens or 0)
    if strict.tokens is not None and strict.lost_tokens is not None:
        assert strict.tokens <= strict.lost_tokens
