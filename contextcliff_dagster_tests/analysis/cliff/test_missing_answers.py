"""Calls without an answer that become more with length limit the cap; others do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster_tests.support.records.planted_curves import flat, plant
from contextcliff_dagster_tests.support.records.profiles import cliffs_of


def without(records: pd.DataFrame, lost: pd.Series[bool], tag: str) -> pd.DataFrame:
    changed = records.astype({"failed": float})
    changed.loc[lost, ["score", "failed"]] = np.nan
    changed.loc[lost, "failure"] = tag
    return changed


@pytest.mark.parametrize("seed", range(3))
def test_time_outs_at_long_lengths_end_the_cap_where_they_begin(seed: int) -> None:
    records = plant(flat(0.9), seed)
    chance = np.random.default_rng(seed).random(len(records))
    late = records["length_tokens"].gt(1_500) & (chance < 0.8)
    whole, cut = cliffs_of(records), cliffs_of(without(records, late, "transport_error"))
    assert whole.safe_cap_tokens > 3_000
    assert whole.missing_by_length is None
    assert cut.safe_cap_tokens is not None
    assert 300 < cut.safe_cap_tokens <= 1_700
    assert "limited by missing answers" in cut.safe_cap_reason
    rise = cut.missing_by_length
    assert rise is not None
    assert rise.ci_low <= 1_500 <= 1.05 * rise.ci_high
    assert rise.share_short == 0.0
    assert rise.share_long > 0.6
    assert all(c.safe_cap_tokens <= cut.safe_cap_tokens for c in cut.caps_by_tolerance)


def test_documents_beyond_the_window_end_the_cap_at_the_window() -> None:
    records = plant(flat(0.95), 1)
    beyond = records["length_tokens"].gt(3_000)
    cliffs = cliffs_of(without(records, beyond, "context_overflow"))
    assert cliffs.safe_cap_tokens == records["length_tokens"][~beyond].max()
    assert cliffs.missing_by_length is None


def test_calls_lost_at_any_length_limit_nothing() -> None:
    limited = 0
    for seed in range(10):
        records = plant(flat(0.9), seed)
        lost = pd.Series(np.random.default_rng((seed, 1)).random(len(records)) < 0.1)
        limited += (
            cliffs_of(without(records, lost, "transport_error")).missing_by_length is not None
        )
    assert limited <= 2


def test_a_rise_that_costs_less_than_the_tolerance_is_known_and_limits_nothing() -> None:
    records = plant(flat(0.95), 4, per_bin=60)
    chance = np.random.default_rng(5).random(len(records))
    late = records["length_tokens"].gt(1_500) & (chance < 0.08)
    cliffs = cliffs_of(without(records, late, "transport_error"))
    assert cliffs.missing_by_length is not None
    assert "missing" not in cliffs.safe_cap_reason
