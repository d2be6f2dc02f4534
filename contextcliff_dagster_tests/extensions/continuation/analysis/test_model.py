"""Planted declines are found where they are, arms are compared on their passages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.continuation.analysis.model import analyse_model
from contextcliff_dagster.extensions.continuation.report.page import arms
from contextcliff_dagster_tests.extensions.continuation.analysis.test_degenerate import QUICK
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.simulated_study import SimulatedStudy, Spoiled

PLANTED = SimulatedStudy(share=0.5, from_size=16384)


def study(design: SimulatedStudy, seed: int = 0, arm: str = "base") -> pd.DataFrame:
    return design.draw(np.random.default_rng(seed)).assign(arm=arm)


@pytest.mark.parametrize("spoiled", ["looped", "simplified", "shuffled"])
def test_a_planted_decline_is_found_and_placed(spoiled: Spoiled) -> None:
    result = analyse_model(study(replace(PLANTED, spoiled=spoiled)), settings=QUICK)
    arm = result.arms[0]
    assert arm.verdict == ("collapse" if spoiled == "looped" else "decline")
    assert arm.score.location is not None
    assert arm.score.location.low_tokens <= 8192
    assert 16384 <= arm.score.location.high_tokens <= 32768
    assert (arm.intact.location is not None) == (spoiled == "looped")
    assert any("Half of the loss" in sentence for sentence in arm.sentences)


def test_a_rise_is_no_decline() -> None:
    rows = study(SimulatedStudy(mu=-0.3))
    rows["score"] = (rows["score"] + 0.05 * np.log2(rows["context_tokens"] / 2048)).clip(0, 1)
    arm = analyse_model(rows, settings=QUICK).arms[0]
    assert arm.verdict in ("no_decline", "undecided")
    assert arm.score.trend is not None
    assert arm.score.trend.p_value > 0.9


def test_a_gradual_decline_is_shown_by_the_trend() -> None:
    rows = study(SimulatedStudy(passages=16, rounds=3))
    rows["score"] = (rows["score"] - 0.05 * np.log2(rows["context_tokens"] / 2048)).clip(0, 1)
    trend = analyse_model(rows, settings=QUICK).arms[0].score.trend
    assert trend is not None
    assert trend.p_holm is not None
    assert trend.p_holm < 0.01
    assert trend.slope == pytest.approx(-0.05, abs=0.02)


@pytest.mark.parametrize("unanswered", [True, False])
def test_a_size_without_outcomes_is_named_and_never_taken_for_the_last(unanswered: bool) -> None:
    rows = study(SimulatedStudy(mu=-0.3, passages=30))
    sizes = sorted(set(rows["context_tokens"]))
    last = rows["context_tokens"] == sizes[-1]
    if unanswered:
        rows = rows.assign(
            score=rows["score"].mask(last), collapse=rows["collapse"].mask(last, None)
        )
    else:
        rows = rows[~last]
    result = analyse_model(rows, settings=QUICK, asked=sizes)
    assert result.sizes == sizes
    assert result.verdict == "undecided"
    assert f"to {sizes[-2]:,} tokens of context (not measured: {sizes[-1]:,})" in result.headline[0]
    (row,) = arms(result).rows
    assert f"{sizes[0]:,} to {sizes[-2]:,} (not measured: {sizes[-1]:,})" in row


@examples(5)
@given(st.randoms(use_true_random=False), st.integers(0, 100))
def test_no_row_order_matters(random: object, seed: int) -> None:
    rows = study(SimulatedStudy(sizes=(512, 1024, 2048), passages=7, rounds=2, missing=0.1), seed)
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    one, other = (analyse_model(each, settings=QUICK) for each in (rows, rows.iloc[order]))
    assert to_json(one) == to_json(other)


def test_humans_give_the_noise_floor_and_change_no_test() -> None:
    rows = study(PLANTED)
    low, high = (
        analyse_model(rows, settings=QUICK, human=np.random.default_rng(0).random(60) * top)
        for top in (0.1, 1.0)
    )
    assert to_json(low)["arms"] == to_json(high)["arms"]
    assert low.human is not None
    assert low.human.floor_high < 0.1
    assert "outside what as many human passages" in " ".join(low.headline)
    assert analyse_model(rows, settings=QUICK, human=[0.5]).human is None


def test_arms_on_the_same_passages_are_compared_by_pairs() -> None:
    base = study(SimulatedStudy(passages=30), arm="f16")
    worse = base.assign(arm="q4_0", score=(base["score"] - 0.1).clip(0, 1))
    result = analyse_model(pd.concat([worse, base]), settings=QUICK, arms=["f16", "q4_0"])
    (found,) = result.comparisons
    assert (found.arm, found.reference, found.verdict) == ("q4_0", "f16", "worse")
    mean = found.overall[0]
    assert mean.difference is not None
    assert mean.difference == pytest.approx(-0.09, abs=0.02)
    assert mean.p_holm is not None
    assert mean.p_holm < 0.001
    assert "q4_0 does worse than f16" in found.sentence


def test_an_arm_that_is_the_same_is_alike_and_one_that_declines_is_worse() -> None:
    base = study(SimulatedStudy(passages=30), arm="f16")
    noise = np.random.default_rng(1).normal(0, 0.02, len(base))
    same = base.assign(arm="q8_0", score=(base["score"] + noise).clip(0, 1))
    lost = base.assign(arm="q4_0")
    late = lost["context_tokens"] > 30_000
    lost["score"] = lost["score"].mask(late, 0.0)
    lost["collapse"] = lost["collapse"].mask(late, "loop")
    rows = pd.concat([base, same, lost])
    result = analyse_model(rows, settings=QUICK, arms=["f16", "q8_0", "q4_0"])
    assert [one.verdict for one in result.comparisons] == ["alike", "worse"]
    extra = [row for row in result.comparisons[1].overall if row.extra_decline]
    assert [row.context_tokens for row in extra] == [65536, 65536]
    assert all((row.difference or 0.0) > 0.4 for row in extra)
    assert [one.verdict for one in result.arms][2] == "collapse"


def test_a_null_is_seldom_called_a_decline() -> None:
    design = SimulatedStudy(sizes=(512, 1024, 2048, 4096), passages=8, rounds=2)
    verdicts = [analyse_model(study(design, seed), settings=QUICK).verdict for seed in range(25)]
    assert sum(one in ("decline", "collapse") for one in verdicts) <= 5
