"""What the first sentence says of readers of each sort, and how intervals answer to the data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import score_correlation
from contextcliff_dagster.extensions.utilization.analysis.answers import Scale, mean_limits
from contextcliff_dagster.extensions.utilization.analysis.model import analyse_model
from contextcliff_dagster.reporting.wording import difference
from contextcliff_dagster_tests.extensions.utilization.planted_records import planted_records

LENGTHS = {"jsonl": 20_000.0, "prose": 6_000.0}


def headline(records: pd.DataFrame) -> list[str]:
    settings = AnalysisSettings(permutations=99, resamples=200)
    result = analyse_model(records, settings=settings, context=ProfileContext(model="reader"))
    return list(result.headline)


def test_caps_of_both_formats_and_where_they_part_are_one_sentence() -> None:
    first, *others = headline(planted_records(LENGTHS, top=0.95, chance=0.05))
    assert first == (
        "As prose the model keeps at least 70% of its score on short documents up to 5,004 tokens, "
        "as JSON lines up to 16,004 tokens (95% confidence); they part by more than 0.1 at about "
        "4,300 tokens of JSON lines [4,000 to 8,000], JSON lines ahead."
    )
    assert not [sentence for sentence in others if "begin to differ" in sentence]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (
            planted_records({"jsonl": 0, "prose": 0}),
            "The model answers almost nothing right as JSON lines or as prose, so there is no "
            "score to lose.",
        ),
        (
            planted_records({"jsonl": np.inf, "prose": 0}, benchmarks=["network"]),
            "As JSON lines the model keeps at least 70% of its score on short documents up to "
            "32,004 tokens, the longest measured (95% confidence). The model answers almost "
            "nothing right as prose, so there is no score to lose. They part by more than 0.1 "
            "already at the smallest scale, 1,000 tokens of JSON lines, JSON lines ahead.",
        ),
        (
            planted_records({"jsonl": np.inf, "prose": np.inf}, seeds=1, benchmarks=["network"]),
            "Too few documents to say how far the model keeps its score as JSON lines or as prose "
            "(add seeds).",
        ),
    ],
)
def test_a_format_without_a_cap_has_its_reason(records: pd.DataFrame, expected: str) -> None:
    assert headline(records)[0] == expected


def test_formats_that_part_without_a_cap_have_a_sentence_of_their_own() -> None:
    records = planted_records({"jsonl": np.inf, "prose": 3_000}, seeds=5, scales=(1, 2, 4),
                              benchmarks=["network"])  # fmt: skip
    first = headline(records)[0]
    assert first.startswith("Too few documents")
    assert "(add seeds). They part by more than 0.1 at about 2,100 tokens of JSON lines" in first


@pytest.mark.parametrize("chance", [0.0, 0.03])
def test_formats_at_the_floor_are_neither_alike_nor_different(chance: float) -> None:
    result = analyse_model(planted_records({"jsonl": 0, "prose": 0}, chance=chance))
    assert result.verdict == "floor"
    assert all(curve.tokens and curve.tokens.cap is None for curve in result.curves)
    (pair,) = result.comparisons
    for scope in (pair.pooled, *pair.benchmarks):
        assert not scope.equivalent
        assert scope.divergence.status == "not_parted"
        assert scope.divergence.low_tokens is None
        assert scope.divergence.sentence.startswith("At the floor: the mean score is 0.0")
    text = " ".join([*result.headline, *pair.sentences])
    assert "no score to lose" in text
    assert "differ by" not in text
    assert "alike" not in text
    assert not result.warnings


def test_a_difference_shown_near_the_floor_is_still_a_difference() -> None:
    records = planted_records({"jsonl": 0, "prose": 0}, seeds=30)
    at_zero = records["score"].to_numpy() * 0.0
    records["score"] = np.where(
        (records["format"] == "jsonl") & (records["seed"] % 3 == 0) & (records["question"] == 0),
        1.0,
        at_zero,
    )
    assert analyse_model(records).verdict == "structure_better"


def test_one_benchmark_at_the_floor_is_a_warning() -> None:
    lost = {"jsonl/network": 0.0, "prose/network": 0.0, "jsonl": np.inf, "prose": np.inf}
    result = analyse_model(planted_records(lost))
    assert result.verdict == "no_difference"
    assert any("almost no answer is right in network" in w.lower() for w in result.warnings)
    assert not any("if they do" in sentence for sentence in result.headline)


@pytest.mark.parametrize("unsent", [["jsonl", "prose"], ["prose"], []])
def test_a_scale_without_answers_is_named_and_never_taken_for_the_last(unsent: list[str]) -> None:
    records = planted_records({"jsonl": np.inf, "prose": np.inf})
    lost = (records["scale"] == "32k") & records["format"].isin(unsent)
    records["score"] = records["score"].mask(lost)
    asked = [Scale("32k", 32_000), *([] if unsent else [Scale("64k", 64_000)])]
    result = analyse_model(records, asked=asked)
    missing, largest = asked[-1].label, "16,000" if unsent else "32,000"
    assert result.scales[-1] == missing
    parting = result.comparisons[0].pooled.divergence.sentence
    said = " ".join([*result.headline, parting, *result.warnings])
    assert f"at every scale compared (not {missing})" in said
    assert f"{largest} tokens of JSON lines, the largest scale compared" in said
    assert f"at {missing}: nothing is compared there" in said


def test_where_it_depends_on_the_benchmark_each_has_its_parting() -> None:
    lost = {"jsonl/warehouse": 4e3, "prose/network": 4e3, "jsonl": np.inf, "prose": np.inf}
    result = analyse_model(planted_records(lost))
    assert result.verdict == "task_dependent"
    partings = [sentence for sentence in result.headline if sentence.startswith("In ")]
    assert len(partings) == 2
    assert "prose ahead" in partings[0]
    assert "JSON lines ahead" in partings[1]


def test_numbers_in_sentences_are_spelled_as_in_tables() -> None:
    for sentence in headline(planted_records(LENGTHS)):
        assert " ." not in sentence
        assert "+." not in sentence
        assert "-." not in sentence
    spelled = [difference(one) for one in (0.314, -0.05, 0.0, -0.001, 1.0, None)]
    assert spelled == ["+0.31", "-0.05", "0.00", "0.00", "+1.00", "not measured"]


@pytest.mark.parametrize("together", [True, False])
def test_one_more_wrong_answer_never_raises_a_limit(together: bool) -> None:
    """Ten documents of four questions: whole documents go wrong, or one question of each first."""
    order = np.arange(40) if together else np.arange(40).reshape(10, 4).T.ravel()
    limits = []
    for wrong in range(12):
        score = np.ones(40)
        score[order[:wrong]] = 0.0
        correlation, assumed = score_correlation(np.arange(40) // 4, score, np.zeros(40, np.int64))
        assert assumed == (wrong == 0)
        limits.append(mean_limits(score, np.full(10, 4), correlation, 1.96))
    assert limits[0] == pytest.approx((0.867, 1.0), abs=1e-3)
    assert (np.diff([low for low, _ in limits]) < 0.0).all()
    assert all(low < 1.0 - wrong / 40 for wrong, (low, _) in enumerate(limits))
    # A correlation that is seen widens both sides: the upper limit may stay, never far above.
    assert (np.diff([high for _, high in limits]) < 0.008).all()


def test_a_correlation_of_few_differing_answers_leans_on_the_assumption() -> None:
    document, stratum = np.arange(400) // 4, np.zeros(400, np.int64)
    score = np.ones(400)
    score[:4] = 0.0
    few, _ = score_correlation(document, score, stratum)
    score[:200] = 0.0
    many, _ = score_correlation(document, score, stratum)
    assert few < 0.5
    assert many > 0.95
