"""From records to conclusions: laws of the comparison, and verdicts on planted readers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.contracts.results import from_json, to_json
from contextcliff_dagster.extensions.utilization.analysis.model import analyse_model
from contextcliff_dagster.extensions.utilization.results import (
    DifferenceTest,
    ScopeComparison,
    UtilizationResult,
)
from contextcliff_dagster_tests.extensions.utilization.planted_records import planted_records
from contextcliff_dagster_tests.support.examples import examples
from tools.write_result_schemas import schemas

SCHEMA = next(file for file in schemas().values() if file.name == "utilization").schema()

QUICK = AnalysisSettings(permutations=99, resamples=200)
CONTEXT = ProfileContext(model="reader")
few = examples(5)
small_plans = st.builds(
    planted_records,
    st.fixed_dictionaries(
        {
            "jsonl": st.sampled_from([3_000.0, np.inf]),
            "prose": st.sampled_from([3_000.0, np.inf]),
        }
    ),
    benchmarks=st.sampled_from([["warehouse"], ["warehouse", "network"]]),
    scales=st.sampled_from([(1, 2), (2, 4, 8)]),
    seeds=st.integers(1, 4),
    questions=st.integers(1, 3),
    top=st.sampled_from([1.0, 0.8]),
    rng_seed=st.integers(0, 1_000),
)


def analyse(records: pd.DataFrame, **options: Any) -> UtilizationResult:
    return analyse_model(records, settings=QUICK, context=CONTEXT, **options)


def pooled(result: UtilizationResult) -> ScopeComparison:
    return result.comparisons[0].pooled


def every_test(scope: ScopeComparison) -> list[DifferenceTest]:
    return [scope.overall, *(row.test for row in scope.scales)]


@few
@given(small_plans)
def test_exchanging_the_formats_only_turns_the_signs(records: pd.DataFrame) -> None:
    one = pooled(analyse(records, formats=("jsonl", "prose")))
    other = pooled(analyse(records, formats=("prose", "jsonl")))
    for a, b in zip(every_test(one), every_test(other), strict=True):
        assert a.difference is not None
        assert a.difference == pytest.approx(-(b.difference or 0.0))
        for low, high in (("ci_low", "ci_high"), ("band_low", "band_high")):
            assert getattr(a, low) == pytest.approx(-getattr(b, high), abs=1e-6)
            assert getattr(a, high) == pytest.approx(-getattr(b, low), abs=1e-6)
        assert (a.p_value, a.p_holm) == (b.p_value, b.p_holm)
        assert (a.only_a, a.only_b) == (b.only_b, b.only_a)
    turned = replace(one.divergence, sentence="")
    assert turned == replace(other.divergence, sentence="")


@few
@given(small_plans, st.randoms(use_true_random=False))
def test_no_order_of_rows_matters(records: pd.DataFrame, shuffle: Any) -> None:
    order = list(range(len(records)))
    shuffle.shuffle(order)
    assert to_json(analyse(records)) == to_json(analyse(records.iloc[order]))


@few
@given(small_plans)
def test_intervals_hold_their_estimates_and_the_result_its_schema(records: pd.DataFrame) -> None:
    result = analyse(records)
    for scope in (pooled(result), *result.comparisons[0].benchmarks):
        for test in every_test(scope):
            assert test.difference is not None
            for low, high in ((test.ci_low, test.ci_high), (test.band_low, test.band_high)):
                assert low is not None
                assert high is not None
                assert -1.0 <= low <= test.difference <= high <= 1.0
                assert high - low > 0.0
            assert test.band_low <= test.ci_low + 1e-9
            assert test.ci_high <= test.band_high + 1e-9
        adjusted = [row.test.p_holm for row in scope.scales]
        assert all(q is not None and q >= (row.test.p_value or 0.0) for q, row in
                   zip(adjusted, scope.scales, strict=True))  # fmt: skip
        found = scope.divergence
        if found.tokens is not None:
            assert found.low_tokens is None or found.low_tokens <= found.tokens
            assert found.high_tokens is None or found.tokens <= found.high_tokens
    data = json.loads(json.dumps(to_json(result)))
    Draft202012Validator(SCHEMA).validate(data)
    assert to_json(from_json(UtilizationResult, data)) == data


@few
@given(small_plans, st.integers(0, 1_000))
def test_a_missing_answer_drops_its_pair_and_is_never_wrong(
    records: pd.DataFrame, seed: int
) -> None:
    lost = np.random.default_rng(seed).random(len(records)) < 0.15
    gaps = records.copy()
    gaps.loc[lost, "score"] = np.nan
    gaps.loc[lost, "failure"] = "context_overflow"
    keys = ["document_key", "question"]
    incomplete = gaps.loc[lost, keys].drop_duplicates()
    whole = records.merge(incomplete, on=keys, how="left", indicator=True)
    whole = whole[whole.pop("_merge") == "left_only"]
    if not len(whole):
        return
    one = pooled(analyse(gaps))
    other = {row.scale: row.test for row in pooled(analyse(whole)).scales}
    assert one.overall.dropped == len(incomplete)
    for row in one.scales:
        same = other.get(row.scale)
        assert row.test.difference == (same.difference if same else None)
        assert row.test.p_value == (same.p_value if same else None)
    assert analyse(gaps).missing.context_overflow == int(lost.sum())


def test_a_reader_that_loses_prose_first_is_better_with_structure() -> None:
    result = analyse(planted_records({"jsonl": 20_000, "prose": 6_000}, top=0.95, chance=0.05))
    (comparison,) = result.comparisons
    assert (result.verdict, comparison.better) == ("structure_better", "jsonl")
    found = comparison.pooled.divergence
    assert (found.status, found.better) == ("parted", "jsonl")
    assert (found.low_tokens, found.high_tokens, found.shown_at_tokens) == (4_000, 8_000, 8_000)
    assert result.headline[1].startswith("As JSON lines the model scores higher than as prose")
    by_scale = {row.scale: row.test for row in comparison.pooled.scales}
    assert (by_scale["8k"].band_low or 0.0) > 0.5
    assert by_scale["8k"].p_holm == pytest.approx(6 * 2.0**-29, rel=1e-3)
    prose = next(c for c in result.curves if c.format == "prose" and c.benchmark is None)
    assert prose.tokens is not None
    assert prose.records is not None
    assert 4_000 <= (prose.tokens.cap or 0) <= 7_500  # in tokens of the prose
    assert 4 * 40 <= (prose.records.cap or 0) < 8 * 40
    swapped = analyse(planted_records({"prose": 20_000, "jsonl": 6_000}))
    assert (swapped.verdict, swapped.comparisons[0].better) == ("prose_better", "prose")


def test_perfect_readers_do_not_differ_and_few_answers_leave_it_open() -> None:
    perfect = analyse(planted_records({"jsonl": np.inf, "prose": np.inf}))
    assert perfect.verdict == "no_difference"
    assert pooled(perfect).equivalent
    assert pooled(perfect).divergence.status == "not_parted"
    assert perfect.headline[1].startswith("No difference")
    few_answers = analyse(
        planted_records({"jsonl": np.inf, "prose": np.inf}, benchmarks=["network"], seeds=3)
    )
    assert few_answers.verdict == "undecided"
    assert not pooled(few_answers).equivalent


def test_benchmarks_of_opposite_signs_make_it_depend_on_the_task() -> None:
    result = analyse(
        planted_records({
            "jsonl": np.inf, "prose": np.inf, "jsonl/network": 3_000, "prose/warehouse": 3_000,
        })
    )  # fmt: skip
    assert result.verdict == "task_dependent"
    assert "in warehouse it scores higher as JSON lines" in result.headline[1]
    assert "in network it scores higher as prose" in result.headline[1]


def test_formats_apart_from_the_smallest_scale_on() -> None:
    found = pooled(analyse(planted_records({"jsonl": np.inf, "prose": 0}))).divergence
    assert (found.status, found.tokens, found.low_tokens) == ("at_smallest", None, None)
    assert found.high_tokens == found.shown_at_tokens == 1_000


def test_a_scale_without_one_format_is_named_and_not_compared() -> None:
    records = planted_records({"jsonl": np.inf, "prose": np.inf})
    gone = (records["format"] == "prose") & (records["scale_tokens"] == 32_000)
    records.loc[gone, "score"] = np.nan
    records.loc[gone, "failure"] = "transport_error"
    result = analyse(records)
    last = pooled(result).scales[-1].test
    assert (last.n, last.dropped, last.difference) == (0, 120, None)
    assert last.not_tested == "At 32k no question has an answer in both formats."
    assert "No answer as prose at 32k: nothing is compared there." in result.warnings
    assert result.missing.transport_error == 120
    planned = len(records)
    why = f"120 of {planned:,} calls failed on the way."
    assert result.warnings[0] == why


def test_documents_matched_by_tokens_are_not_paired() -> None:
    records = planted_records({"jsonl": np.inf, "prose": 6_000}, top=0.95)
    result = analyse(records, match="tokens")
    (comparison,) = result.comparisons
    assert not comparison.paired
    assert comparison.unpaired_reason
    for test in every_test(comparison.pooled):
        assert (test.mcnemar, test.t_test, test.only_a, test.p_exact) == (None, None, None, False)
        assert test.p_value is not None
    assert result.verdict == "structure_better"
    assert comparison.pooled.divergence.high_tokens == 8_000
    assert (comparison.pooled.scales[0].test.p_value or 0.0) > 0.05


def test_effects_are_paired_with_the_base_and_adjusted() -> None:
    records = planted_records(
        {"jsonl": np.inf, "prose": np.inf}, benchmarks=["warehouse"], top=0.6,
        arms={"order=shuffled": -0.3, "thought=on": 0.0},
    )  # fmt: skip
    records.loc[(records["arm"] == "thought=on") & (records["seed"] == 0), "score"] = np.nan
    found = {
        (effect.factor, effect.format): effect
        for effect in analyse(records, base_levels={"order": "chronological"}).effects
    }
    shuffled, thought = found["order", None], found["thought", None]
    assert (shuffled.level, shuffled.reference) == ("shuffled", "chronological")
    assert (shuffled.ci_high or 0.0) < -0.15
    assert (shuffled.p_holm or 1.0) < 0.001
    assert (thought.reference, thought.n_documents, thought.dropped) == ("base", 54, 48)
    assert (thought.ci_low or 0.0) < 0.0 < (thought.ci_high or 0.0)
    assert shuffled.n == 2 * found["order", "prose"].n


def test_confounds_are_looked_at() -> None:
    records = planted_records({"jsonl": np.inf, "prose": np.inf})
    late = records["evidence_position"] > 2 / 3
    records.loc[late & (records["format"] == "prose"), "score"] = 0.0
    result = analyse(records)
    thirds = {(row.format, row.third): row.mean for row in result.positions}
    assert thirds["prose", "last"] == 0.0
    assert thirds["prose", "middle"] == thirds["jsonl", "last"] == 1.0
    ratio = {(row.format, row.benchmark): row.ratio for row in result.tokens_per_record}
    assert ratio["jsonl", "network"] == 1.0
    assert ratio["prose", "network"] == pytest.approx(1.25, rel=0.01)


def test_every_pair_of_formats_is_compared_in_the_order_asked() -> None:
    records = planted_records(
        {"jsonl": np.inf, "csv": np.inf, "prose": 3_000}, benchmarks=["network"]
    )
    result = analyse(records, formats=("csv", "jsonl", "prose"))
    assert [(c.a, c.b) for c in result.comparisons] == [
        ("csv", "jsonl"), ("csv", "prose"), ("jsonl", "prose"),
    ]  # fmt: skip
    assert result.comparisons[0].benchmarks == []
    assert result.verdict == result.comparisons[1].verdict == "structure_better"


def test_a_single_format_or_scale_is_no_error() -> None:
    alone = analyse(planted_records({"prose": np.inf}, benchmarks=["network"]))
    assert (alone.comparisons, alone.verdict) == ([], "undecided")
    assert alone.headline[1].startswith("A single format")
    one = analyse(planted_records({"jsonl": np.inf, "prose": 0}, scales=[4]))
    assert pooled(one).divergence.status == "at_smallest"


def test_questions_are_numbered_by_their_examples_where_they_have_no_number() -> None:
    records = planted_records({"jsonl": np.inf, "prose": 6_000}, top=0.9)
    named = records.rename(columns={"question": "number"})
    named["example_id"] = [
        f"{row.format}-{row.document_key}-q{row.question}" for row in records.itertuples()
    ]
    expected = to_json(analyse(records))["comparisons"]
    assert to_json(analyse(named))["comparisons"] == expected
    # A call that was never planned leaves a gap that moves no other question.
    gone = (named["format"] == "prose") & (named["seed"] == 3) & (named["number"] == 0)
    assert pooled(analyse(named[~gone])).overall.dropped == 18
    mixed = named.copy()
    prose = mixed["format"] == "prose"
    mixed.loc[prose, "example_id"] = [f"x-q{number + 1}" for number in mixed.loc[prose, "number"]]
    with pytest.raises(ContextCliffError, match="different right answers in two formats"):
        analyse(mixed)


def test_records_without_the_base_condition_are_refused() -> None:
    records = planted_records({"jsonl": np.inf, "prose": np.inf}, seeds=2)
    with pytest.raises(ContextCliffError, match="no answer under the base condition"):
        analyse(records.assign(arm="order=shuffled"))
