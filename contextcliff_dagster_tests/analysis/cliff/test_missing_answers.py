"""Calls without an answer that become more with length limit the cap; others do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.cliff import Cap, limited_cap
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster_tests.support.records.planted_curves import flat, plant
from contextcliff_dagster_tests.support.records.profiles import QUICK, cliffs_of
from contextcliff_dagster_tests.support.records.reports import page_of


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
    rise = cut.missing_by_length
    assert rise is not None
    # The answers that are left may be too few to pass even where missing ones would allow it.
    limited = cut.safe_cap_tokens == rise.cap_tokens
    assert limited == ("Missing answers limit the cap" in cut.safe_cap_reason)
    assert limited or seed == 1
    assert rise.ci_low <= 1_500 <= 1.05 * rise.ci_high
    assert rise.share_short == 0.0
    assert rise.share_long > 0.6
    assert all(c.safe_cap_tokens <= cut.safe_cap_tokens for c in cut.caps_by_tolerance)


def test_they_limit_the_caps_of_other_choices_too() -> None:
    records = plant(flat(0.9), 0)
    late = records["length_tokens"].gt(1_500) & (np.arange(len(records)) % 5 > 0)
    thorough = replace(QUICK, second_opinions=True)
    cut = cliffs_of(without(records, late, "transport_error"), thorough)
    others = [row for row in cut.sensitivity if row.factor != "missing"]
    assert len(others) >= 10
    assert cut.missing_by_length is not None
    assert max(row.safe_cap_tokens or 0 for row in others) <= cut.missing_by_length.cap_tokens
    assert cut.certify.more == []


def test_the_mean_that_a_user_gets_stands_in_every_bin_that_lacks_an_answer() -> None:
    records = plant(flat(0.9), 3, replicates=2)
    lost = records["length_tokens"].gt(1_500) & (records["replicate"] == 1)
    cliffs = cliffs_of(without(records, lost, "transport_error"))
    for row in cliffs.bins:
        if not row.missing:
            assert row.delivered_mean is None
        elif row.missing == row.n:  # each example lacks one of its two answers
            assert row.delivered_mean == pytest.approx(row.mean / 2)
    assert any(row.missing == row.n for row in cliffs.bins)
    assert "mean, missing as 0" in page_of([cliffs])
    assert "mean, missing as 0" not in page_of([cliffs_of(records)])


def test_a_bin_without_any_answer_delivers_nothing() -> None:
    records = plant(flat(0.95), 1)
    cliffs = cliffs_of(without(records, records["length_tokens"].gt(3_000), "context_overflow"))
    assert cliffs.bins[-1].mean is None
    assert cliffs.bins[-1].delivered_mean == 0.0


def test_documents_beyond_the_window_end_the_cap_at_the_window() -> None:
    records = plant(flat(0.95), 1)
    beyond = records["length_tokens"].gt(3_000)
    cliffs = cliffs_of(without(records, beyond, "context_overflow"))
    answered = np.sort(records["length_tokens"][~beyond])
    assert answered[-8] <= cliffs.safe_cap_tokens <= answered[-1]
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
    nowhere = replace(cliffs.missing_by_length, cap_tokens=None)
    assert limited_cap(Cap(900, ""), nowhere, AnalysisSettings()).tokens is None
