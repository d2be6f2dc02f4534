"""Numbers per bin, checked against hand-made ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.bin_statistics import bimodality, instability, rolling_variance
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval, document_interval
from contextcliff_dagster.contracts import ContextCliffError, LengthBin
from contextcliff_dagster.contracts.results.json_form import BinResult, Missing
from contextcliff_dagster_tests.support.records.planted_curves import flat, plant, ramp
from contextcliff_dagster_tests.support.records.profiles import (
    CONTEXT,
    QUICK,
    assert_conforms,
    cliffs_of,
)

BINS = [LengthBin(f"b0{i}", 100 * i, 100 * i + 100, None, None, None, 0, 0) for i in range(3)]


def rows(records: pd.DataFrame) -> list[BinResult]:
    profile = profile_model(records, BINS, QUICK, CONTEXT)
    assert_conforms(profile)
    return list(profile.cliffs.bins)


def test_mean_spread_and_failures_of_a_bin() -> None:
    first, second, third = rows(
        pd.DataFrame(
            {
                "length_tokens": [10, 20, 30, 40, 110],
                "score": [1.0, 0.0, 0.0, 1.0, 0.5],
                "document_id": ["a", "a", "b", "c", "d"],
                "failed": [False, True, True, False, False],
                "failure": [None, "refusal", "empty", None, "hallucination"],
            }
        )
    )
    assert (first.n, first.n_documents, first.mean) == (4, 3, 0.5)
    assert (first.variance, first.sd, first.failure_rate) == (0.25, 0.5, 0.5)
    assert first.failures == {"empty": 1, "refusal": 1}
    assert (first.min_tokens, first.median_tokens, first.max_tokens) == (10, 25, 40)
    assert first.ci_width == pytest.approx(first.ci_high - first.ci_low)
    assert (second.n, second.sd, second.rolling_variance) == (1, None, 0.25)
    assert (third.n, third.mean, third.failures) == (0, None, {})


def test_an_example_with_calls_in_two_bins_counts_in_one_of_them() -> None:
    first, second, _ = rows(
        pd.DataFrame(
            {
                "length_tokens": [10, 20, 110],
                "example_id": ["a", "b", "a"],
                "score": [1.0, 0.0, np.nan],
                "failure": [None, None, "context_overflow"],
            }
        )
    )
    assert (first.n, first.missing, first.delivered_mean) == (2, 0, None)
    assert (second.n, second.missing, second.delivered_mean) == (0, 1, None)


def test_what_the_records_do_not_carry_is_null() -> None:
    first = rows(pd.DataFrame({"length_tokens": [10, 20], "score": [1.0, 0.0]}))[0]
    for key in ("n_documents", "failure_rate", "failures", "ttft_ms", "duration_ms", "ttft_excess"):
        assert getattr(first, key) is None
    assert first.instability is None


def test_calls_without_an_answer_change_no_mean_and_are_counted() -> None:
    records = plant(ramp(512), 1)
    lost = records.iloc[:30].assign(
        example_id=lambda r: "lost" + r["example_id"], score=np.nan, length_tokens=5_000
    )
    lost["failure"] = ["context_overflow", "transport_error", "invalid_truncated"] * 10
    lost.loc[lost["failure"] == "transport_error", "score"] = 1.0  # a tag outweighs a stray score
    bins = cliffs_of(records).bins
    both = profile_model(
        pd.concat([records, lost]),
        [LengthBin(b.bin, b.edge_low, b.edge_high, 0, 0, 0, 0, 0) for b in bins],
        QUICK,
        CONTEXT,
    ).cliffs
    assert both.missing == Missing(context_overflow=10, invalid_truncated=10, transport_error=10)
    assert both.missing_share == pytest.approx(30 / 230)
    for before, after in zip(bins, both.bins, strict=True):
        assert replace(after, missing=0, delivered_mean=None) == before
        delivered = before.mean * before.n / (before.n + after.missing) if after.missing else None
        assert after.delivered_mean == delivered
    assert sum(b.missing for b in both.bins) == 30


def test_missing_calls_beyond_the_longest_answer_do_not_stretch_the_cap() -> None:
    records = plant(flat(1.0), 1)
    longest = int(records["length_tokens"].max())
    overflow = pd.DataFrame(
        {"length_tokens": [9_000], "score": [np.nan], "failure": ["context_overflow"]}
    )
    assert cliffs_of(pd.concat([records, overflow])).safe_cap_tokens <= longest


def test_a_score_missing_without_a_reason_is_left_out_with_a_warning() -> None:
    records = plant(ramp(512), 1)
    records.loc[:2, "score"] = np.nan
    records.loc[:2, "failure"] = None
    result = cliffs_of(records)
    assert result.n == 197
    assert any("3 records have neither a score" in w for w in result.warnings)


def test_intervals_cover_means_of_clustered_scores() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        p = rng.beta(3, 3, 40)  # documents differ, questions on one document go together
        s = rng.binomial(5, p).astype(float)
        low, high = document_interval(np.full(40, 5.0), s, AnalysisSettings(resamples=400, seed=1))
        assert low is not None
        assert high is not None
        covered += low <= 0.5 <= high
    assert 0.90 <= covered / 200 <= 0.985


def test_agreement_is_no_certainty() -> None:
    # Clopper-Pearson, 0 of 20 and 20 of 20 at 95%: (0, .1684) and (.8316, 1).
    assert agreeing_interval(0.0, 20, 0.95) == pytest.approx((0.0, 0.1684), abs=1e-4)
    assert agreeing_interval(1.0, 20, 0.95) == pytest.approx((0.8316, 1.0), abs=1e-4)
    # Wilson, 10 of 20: (.2993, .7007).
    assert agreeing_interval(0.5, 20, 0.95) == pytest.approx((0.2993, 0.7007), abs=1e-4)


def test_bimodality_tells_two_modes_from_one_and_refuses_zero_one_scores() -> None:
    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal(0.1, 0.03, 200), rng.normal(0.9, 0.03, 200)]).clip(0, 1)
    one = rng.normal(0.5, 0.1, 400).clip(0, 1)
    high, low = bimodality(two), bimodality(one)
    assert high is not None
    assert low is not None
    assert high > 5 / 9 > low
    assert bimodality(np.array([0.0, 1.0] * 20)) is None
    assert bimodality(np.full(20, 0.5)) is None
    assert bimodality(np.array([0.1, 0.5])) is None


def test_instability_is_the_mean_sd_between_replicates() -> None:
    sd = np.array([0.0, np.sqrt(0.5), np.nan])
    assert instability(sd) == pytest.approx(np.sqrt(0.5) / 2)
    assert instability(np.array([np.nan])) is None
    result = cliffs_of(plant(flat(0.5), 1, replicates=3))
    assert 0.3 < result.bins[0].instability < 0.5


def test_rolling_variance_pools_the_trailing_bins() -> None:
    assert rolling_variance([10, 30, 10], [0.1, 0.2, None], 2) == pytest.approx(
        [0.1, (1 + 6) / 40, 0.2]
    )


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ({"length": [1], "score": [1.0]}, "no column 'length_tokens'"),
        ({"length_tokens": [1]}, "no column 'score'"),
        ({"length_tokens": [1], "score": [85.0]}, "outside 0..1"),
        ({"length_tokens": [-1], "score": [1.0]}, "negative"),
    ],
)
def test_impossible_records_are_refused_in_a_sentence(records: dict[str, Any], said: str) -> None:
    with pytest.raises(ContextCliffError, match=said):
        profile_model(pd.DataFrame(records), [], QUICK, CONTEXT)


def test_merged_bins_leave_the_table_with_a_warning() -> None:
    merged = LengthBin("b03", 300, 400, None, None, None, 0, 0, merged_into="b02")
    records = pd.DataFrame({"length_tokens": [10, 110, 210], "score": [1.0, 1.0, 0.0]})
    result = profile_model(records, [*BINS, merged], QUICK, CONTEXT).cliffs
    assert [b.bin for b in result.bins] == ["b00", "b01", "b02"]
    assert any("merged into b02" in w for w in result.warnings)
