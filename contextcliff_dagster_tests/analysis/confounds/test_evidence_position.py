"""A place that loses answers is found, a flat curve is left alone; levels have own rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.confounds import (
    EvidenceCurve,
    compare_levels,
    evidence_curve,
    evidence_sentence,
)
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings, clean_records
from contextcliff_dagster.analysis.statistics.rank_tests import exchanges
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, QUICK, assert_conforms

FAST = AnalysisSettings(resamples=100, permutations=199)


def plant(
    seed: int, *, middle: float = 0.0, documents: int = 200, questions: int = 1, shared: float = 0.0
) -> pd.DataFrame:
    """Scores fall with length, by ``middle`` where the evidence is in the middle fifth, and
    with a luck of each document that its questions share."""
    rng = np.random.default_rng(seed)
    lengths = np.sort(np.exp(rng.uniform(np.log(40), np.log(6_000), documents)).astype(np.int64))
    position = rng.random((documents, questions))
    luck = shared * rng.normal(0, 1, (documents, 1))
    chance = 0.85 - 0.3 * np.arange(documents)[:, None] / documents + luck
    chance = np.clip(chance, 0.05, 0.95) - middle * ((position >= 0.4) & (position < 0.6))
    document = np.repeat(np.arange(documents), questions)
    return pd.DataFrame(
        {
            "document_id": [f"d{i}" for i in document],
            "example_id": [f"e{i}" for i in range(len(document))],
            "length_tokens": lengths[document],
            "score": (rng.random(chance.shape) < chance).astype(float).ravel(),
            "evidence_position": position.ravel(),
        }
    )


def curve_of(records: pd.DataFrame, axis: Any = "evidence_position") -> EvidenceCurve:
    curve = evidence_curve(clean_records(records, []), axis, FAST)
    assert curve is not None
    return curve


def test_what_is_lost_in_the_middle_is_found_with_its_size() -> None:
    found = [curve_of(plant(seed, middle=0.4)) for seed in range(12)]
    assert all(curve.p_value is not None and curve.p_value <= 0.05 for curve in found)
    assert all(curve.group == 2 for curve in found)
    errors = [(curve.difference or 0.0) + 0.4 for curve in found]
    assert abs(np.median(errors)) < 0.06
    sentence = evidence_sentence(found[0], 0.95)
    assert sentence is not None
    assert "from 40% to 60% of the text, the score is lower" in sentence


@pytest.mark.parametrize(("documents", "questions"), [(200, 1), (80, 3)])
def test_a_flat_curve_raises_no_alarm_more_often_than_promised(
    documents: int, questions: int
) -> None:
    """60 data sets: at a rate of .05, more than 8 alarms have a chance below 1 in 200."""
    alarms = [
        curve_of(plant(seed, documents=documents, questions=questions, shared=0.2)).p_value
        for seed in range(60)
    ]
    assert sum(p is not None and p <= 0.05 for p in alarms) <= 8
    quiet = curve_of(plant(0, documents=documents, questions=questions))
    assert (evidence_sentence(quiet, 0.95) is None) == (
        quiet.p_value is not None and quiet.p_value > 0.05
    )


def test_places_that_go_with_length_are_no_effect_of_the_place() -> None:
    """Late evidence in long documents, and only length does something."""
    alarms = 0
    for seed in range(20):
        records = plant(seed)
        late = np.argsort(np.argsort(records["length_tokens"])) / len(records)
        rng = np.random.default_rng(seed)
        records["evidence_position"] = np.clip(0.6 * late + 0.4 * rng.random(len(records)), 0, 1)
        p_value = curve_of(records).p_value
        alarms += p_value is not None and p_value <= 0.05
    assert alarms <= 4


def test_the_distance_of_two_pieces_has_a_curve_of_groups_of_equal_size() -> None:
    records = plant(3, documents=240)
    rng = np.random.default_rng(3)
    apart = np.floor(rng.uniform(0, 1, len(records)) * records["length_tokens"])
    records["inter_evidence_tokens"] = np.where(np.arange(len(records)) % 2, apart, np.nan)
    curve = curve_of(records, "inter_evidence_tokens")
    assert (curve.n, curve.n_all) == (120, 240)
    sizes = [group.n for group in curve.groups]
    assert sum(sizes) == 120
    assert max(sizes) - min(sizes) <= 6
    assert all(g.mean is not None and g.ci_low is not None for g in curve.groups)


def test_too_few_examples_are_named_and_none_at_all_is_no_curve() -> None:
    few = plant(0, documents=25)
    curve = curve_of(few)
    assert (curve.groups, curve.p_value) == ((), None)
    assert curve.refused_because is not None
    assert "only 25 examples on 25 documents" in curve.refused_because
    sample = clean_records(few.drop(columns="evidence_position"), [])
    assert evidence_curve(sample, "evidence_position", FAST) is None
    one_place = curve_of(plant(0).assign(evidence_position=0.5))
    assert one_place.p_value is None
    assert one_place.refused_because == "nearly all evidence has one position"
    floor = curve_of(plant(0).assign(score=0.0))
    assert (floor.p_value, floor.refused_because) == (
        None,
        "all scores of each length bin are equal",
    )


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 3))
def test_an_exchange_stays_within_its_length_bin_and_loses_nothing(
    seed: int, most: int, bins: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, 30)
    document = rng.permutation(np.repeat(np.arange(30), sizes))
    index = rng.integers(0, bins, 30)[document]
    group = rng.integers(0, 3, len(document))
    found = exchanges(document, index, 20, rng)
    assert sorted(np.concatenate([block.ravel() for block in found.blocks])) == list(
        range(len(document))
    )
    for block in found.blocks:
        assert len(np.unique(index[block])) == 1
        assert all(len(np.unique(document[row])) == 1 for row in block)
    # Whatever is exchanged, every bin keeps its groups: their sums of a constant stay.
    constant = found.sums(np.ones(len(document)), group, 3)
    assert (constant == constant[0]).all()
    residual = rng.normal(size=len(document))
    sums = found.sums(residual, group, 3)
    assert sums.sum(axis=1) == pytest.approx(np.full(21, residual.sum()))
    assert sums[0] == pytest.approx(np.bincount(group, weights=residual, minlength=3))


@examples(5)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_records_changes_nothing(shuffle: Any) -> None:
    records = plant(5, middle=0.3, questions=2, documents=60)
    order = list(range(len(records)))
    shuffle.shuffle(order)
    assert curve_of(records) == curve_of(records.iloc[order].reset_index(drop=True))


def two_levels(seed: int, per_level: int = 120, complex_from: float = 0.4) -> pd.DataFrame:
    """Level 1 holds at all lengths, level 2 (and 3) loses .6 beyond a place."""
    rng = np.random.default_rng(seed)
    n = 2 * per_level
    lengths = np.sort(np.exp(rng.uniform(np.log(40), np.log(6_000), n)).astype(np.int64))
    level = np.tile([1, 2], per_level)
    level[3::8] = 3
    lost = (level > 1) & (np.arange(n) >= complex_from * n)
    chance = np.where(lost, 0.3, 0.9)
    return pd.DataFrame(
        {
            "document_id": [f"d{i}" for i in range(n)],
            "example_id": [f"e{i}" for i in range(n)],
            "length_tokens": lengths,
            "score": (rng.random(n) < chance).astype(float),
            "level": level,
        }
    )


def test_simple_and_complex_questions_have_a_verdict_and_a_cap_each() -> None:
    simple, complex_ = compare_levels(clean_records(two_levels(0), []), FAST)
    assert (simple.name, simple.levels) == ("simple", ("1",))
    assert (complex_.name, complex_.levels) == ("complex", ("2", "3"))
    assert (simple.verdict, complex_.verdict) == ("stable", "cliff")
    assert complex_.location_tokens is not None
    place = int(np.sort(two_levels(0)["length_tokens"])[96])
    assert complex_.ci_low is not None
    assert complex_.ci_high is not None
    assert complex_.ci_low <= place <= complex_.ci_high
    assert complex_.safe_cap_tokens is not None
    assert complex_.safe_cap_tokens < place
    assert simple.n + complex_.n == 240


def test_a_level_with_too_few_examples_says_so() -> None:
    records = two_levels(1)
    rare = records["level"].gt(1)
    kept = records[~rare | (rare.cumsum() <= 12)]
    simple, complex_ = compare_levels(clean_records(kept, []), FAST)
    assert simple.verdict != "insufficient_data"
    assert (complex_.verdict, complex_.safe_cap_tokens) == ("insufficient_data", None)
    assert "Too few examples and documents for a verdict: 12 examples" in complex_.safe_cap_reason


def test_one_level_is_not_compared_and_named_ones_keep_their_names() -> None:
    records = two_levels(2)
    assert compare_levels(clean_records(records[records["level"] == 1], []), FAST) == []
    assert compare_levels(clean_records(records.drop(columns="level"), []), FAST) == []
    named = records.assign(level=records["level"].map({1: "easy", 2: "hard", 3: "hard"}))
    assert [r.name for r in compare_levels(clean_records(named, []), FAST)] == ["easy", "hard"]


def test_the_result_has_all_of_it_and_meets_its_schema() -> None:
    records = two_levels(0).assign(evidence_position=np.linspace(0, 1, 240) ** 2)
    records["inter_evidence_tokens"] = np.where(
        records["level"] > 1, records["length_tokens"] // 3, np.nan
    )
    profile = profile_model(records, [], AnalysisSettings(resamples=100, permutations=99), CONTEXT)
    assert_conforms(profile)
    assert [level.name for level in profile.cliffs.levels] == ["simple", "complex"]
    assert profile.cliffs.by_position.n == 240
    assert profile.cliffs.by_distance.n == 120
    assert {row.category for row in profile.cliffs.mix} == {"level", "evidence_position"}
    quick = profile_model(records, [], QUICK, CONTEXT)
    assert_conforms(quick)
    assert quick.cliffs.levels == []
