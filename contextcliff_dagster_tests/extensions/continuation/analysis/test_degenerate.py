"""Outcomes that allow no conclusion get a sentence, not a number; bad ones are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.continuation.analysis.model import analyse_model
from contextcliff_dagster.extensions.continuation.results import ContinuationResult
from contextcliff_dagster_tests.support.simulated_study import SimulatedStudy

QUICK = AnalysisSettings(resamples=200)
STUDY = SimulatedStudy(sizes=(512, 1024, 2048), passages=10, rounds=3)


def rows_of(study: SimulatedStudy = STUDY, seed: int = 0) -> pd.DataFrame:
    return study.draw(np.random.default_rng(seed))


def analysed(rows: pd.DataFrame, **given: Any) -> ContinuationResult:
    result = analyse_model(rows, settings=QUICK, **given)
    to_json(result)
    return result


def test_one_passage_is_insufficient_data() -> None:
    arm = analysed(rows_of(replace(STUDY, passages=1, texts=1))).arms[0]
    assert arm.verdict == "insufficient_data"
    assert arm.reason.endswith("are needed, and there is 1.")
    assert arm.score.sizes[0].ci_low is None
    assert arm.components is None


def test_one_size_is_insufficient_data() -> None:
    arm = analysed(rows_of(replace(STUDY, sizes=(2048,)))).arms[0]
    assert arm.verdict == "insufficient_data"
    assert "two or more context sizes" in arm.reason


def test_one_round_is_enough_and_its_variance_is_not_split() -> None:
    arm = analysed(rows_of(replace(STUDY, rounds=1, passages=30))).arms[0]
    assert arm.verdict in ("undecided", "no_decline")
    assert arm.components is not None
    assert arm.components.round is None
    assert {row.rounds for row in arm.plan} == {1}


def test_nothing_generated_is_insufficient_data() -> None:
    rows = rows_of().assign(score=np.nan, collapse=None)
    result = analysed(rows)
    assert (result.verdict, result.n, result.missing) == ("insufficient_data", 0, len(rows))


def test_a_generation_without_a_score_counts_for_the_share_without_collapse_alone() -> None:
    rows = rows_of()
    rows.loc[rows["round"] == 0, "score"] = np.nan
    result = analysed(rows)
    size = result.arms[0].score.sizes[0], result.arms[0].intact.sizes[0]
    assert (size[0].n, size[1].n) == (20, 30)
    assert any("have no score" in warning for warning in result.warnings)


@pytest.mark.parametrize(("cut_off", "verdict"), [(3, "no_decline"), (5, "undecided")])
def test_no_decline_needs_scores_of_all_but_the_margin(cut_off: int, verdict: str) -> None:
    rows = rows_of(replace(STUDY, passages=40, rounds=1)).assign(score=0.5)
    largest = np.flatnonzero(rows["context_tokens"] == 2048)
    rows.loc[largest[:cut_off], "score"] = np.nan
    arm = analysed(rows).arms[0]
    assert (arm.verdict, arm.unscored) == (verdict, cut_off / 40)
    assert ("12.5% of the generations at 2,048 tokens have no score" in arm.reason) == (cut_off > 4)


def test_arms_are_not_alike_where_scores_are_missing() -> None:
    whole = rows_of(replace(STUDY, passages=40, rounds=1)).assign(score=0.5, arm="f16")
    other = whole.assign(arm="q8_0")
    assert analysed(pd.concat([whole, other])).comparisons[0].verdict == "alike"
    other.loc[other.index[:30:3], "score"] = np.nan
    assert analysed(pd.concat([whole, other])).comparisons[0].verdict == "undecided"


def test_a_collapse_without_a_score_counts_as_0() -> None:
    rows = rows_of()
    at = rows["context_tokens"] == 2048
    rows["score"] = rows["score"].mask(at)
    rows["collapse"] = rows["collapse"].mask(at, "empty")
    arm = analysed(rows).arms[0]
    assert arm.verdict == "collapse"
    assert (arm.score.sizes[2].mean, arm.intact.sizes[2].mean) == (0.0, 0.0)
    assert arm.collapses == [{}, {}, {"empty": 30}]


@pytest.mark.parametrize("score", [0.0, 0.5, 1.0])
def test_equal_scores_show_no_decline_only_where_there_was_room_for_one(score: float) -> None:
    arm = analysed(rows_of(replace(STUDY, passages=40)).assign(score=score)).arms[0]
    assert arm.verdict == ("undecided" if score == 0.0 else "no_decline")
    assert ("too low for a decline" in arm.reason) == (score == 0.0)
    assert arm.tests == 0


def test_few_equal_scores_do_not_make_certain() -> None:
    few = analysed(rows_of(replace(STUDY, passages=6, rounds=1)).assign(score=0.5)).arms[0]
    assert few.verdict == "undecided"
    assert few.score.excluded is not None
    assert few.score.excluded > 0.05
    low, high = few.score.sizes[0].ci_low, few.score.sizes[0].ci_high
    assert low is not None
    assert high is not None
    assert low < 0.5 < high


def test_passages_that_lack_a_size_are_left_out_of_its_pair_alone() -> None:
    rows = rows_of()
    gone = (rows["passage"] == "passage 003") & (rows["context_tokens"] == 1024)
    result = analysed(rows[~gone])
    counts = [one.decline and one.decline.n_passages for one in result.arms[0].score.sizes]
    assert counts == [None, 9, 10]
    assert any("1 of 10 passages lack a context size" in one for one in result.warnings)


def test_without_common_passages_nothing_is_compared() -> None:
    rows = rows_of()
    early = rows["passage"] < "passage 005"
    rows = rows[(rows["context_tokens"] == 512) == early]
    arm = analysed(rows).arms[0]
    assert arm.verdict == "insufficient_data"
    declined = arm.score.sizes[2].decline
    assert declined is not None
    assert declined.p_value is None
    assert declined.not_tested == "No passage has outcomes at 512 and at 2,048 tokens."


def test_a_smallest_size_without_outcomes_hands_the_baseline_on() -> None:
    rows = rows_of()
    rows["collapse"] = rows["collapse"].mask(rows["context_tokens"] == 512)
    sizes = analysed(rows).arms[0].score.sizes
    assert sizes[0].mean is None
    assert [one.decline is None for one in sizes] == [True, True, False]


def test_a_generation_that_occurs_twice_is_refused() -> None:
    rows = rows_of()
    with pytest.raises(ContextCliffError, match="twice"):
        analysed(pd.concat([rows, rows.iloc[:1]]))
