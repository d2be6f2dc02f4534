"""Averages, outliers and what follows from them, where the sample has no case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.extensions.continuation.compat.slicing import trimmed
from contextcliff_dagster.extensions.continuation.compat.statistics import (
    averaged,
    composite_of,
    convergence,
    degradation_statistics,
    is_long_enough,
    magnitude,
    rank_biserial,
    rejected,
    replacement,
    spearman,
    trend_analysis,
)

P_VALUES = st.lists(st.floats(0, 1), max_size=12)


def rounds(*cloze: float) -> list[dict[str, Any]]:
    return [
        {"round_number": k, "text": f"t{k}", "cloze_score": value, "vocabulary_diversity": 0.5}
        for k, value in enumerate(cloze, 1)
    ]


def test_what_is_no_number_comes_from_the_first_round() -> None:
    mean = averaged(rounds(10, 20, 60))
    assert (mean["round_number"], mean["text"], mean["cloze_score"]) == (1, "t1", 30)
    assert (mean["reading_level"], mean["num_rounds"]) == ("9-10", 3)
    assert mean["cloze_score_std"] == 26.458


def test_a_field_that_a_round_lacks_is_averaged_over_the_others() -> None:
    some = rounds(10, 20, 60)
    del some[2]["cloze_score"]
    assert averaged(some)["cloze_score"] == 15


def test_a_round_of_three_fifths_counts() -> None:
    assert [is_long_enough(tokens, 1024) for tokens in (614, 615, 1024)] == [False, True, True]


def test_a_loop_among_like_rounds_is_replaced() -> None:
    assert replacement(rounds(25, 25.1, 25.2, 25, 25.1, -444)) == [5]
    assert replacement(rounds(25, 25, 25, -444)) == [3]
    assert replacement(rounds(25, 25.1, 25.2, 25.3)) == []
    assert replacement(rounds(25, 25, -444)) == []
    assert replacement(rounds(1, 25, 25, 25, 25, 25, 25, 99)) == [0, 7]
    some = rounds(25, 25, 25, 25, 99)
    some[0]["vocabulary_diversity"] = 0.9
    assert replacement(some) == []  # too many


@given(P_VALUES)
def test_a_rejected_hypothesis_has_a_small_adjusted_p(p_values: list[float]) -> None:
    for p, is_rejected in zip(holm(p_values), rejected(p_values), strict=True):
        assert is_rejected == (p <= 0.05) or p == pytest.approx(0.05)


def test_what_lies_exactly_at_a_limit_is_as_in_the_reference() -> None:
    assert rejected([0.025, 0.05]) == [True] * 2
    assert rejected([]) == []
    assert np.isnan(spearman([1, 2, 3], [7, 7, 7])).all()
    assert spearman([1, 2], [7, 7]) == (0.0, 1.0)
    assert [trimmed(blank) for blank in ("", "  ", "\n\t ")] == ["", "  ", "\n\t "]


def test_averages_have_texts_first_and_numbers_after_them() -> None:
    one = {"round_number": 1, "continuation_length": 4, "continuation_text": "a", "cloze_score": 9}
    both = averaged([one, one | {"round_number": 2, "cloze_score": 10}])
    assert list(both)[:4] == [
        *("round_number", "continuation_text", "continuation_length", "cloze_score"),
    ]


@given(st.lists(st.integers(0, 9), min_size=1), st.lists(st.integers(0, 9), min_size=1))
def test_effect_changes_sign_with_the_sides(one: list[int], other: list[int]) -> None:
    assert rank_biserial(one, other) == pytest.approx(-rank_biserial(other, one))


def test_words_for_effects() -> None:
    assert [magnitude(x) for x in (0.3, -0.31, 0.5, -0.51)] == ["small", "medium"] * 1 + [
        "medium",
        "large",
    ]


def test_missing_figures_count_as_middling() -> None:
    assert composite_of({}) == composite_of(
        {
            "vocabulary_diversity": 0.5,
            "cloze_score": 25,
            "adjacent_coherence": None,
            "bigram_repetition_rate": 0.1,
        }
    )


def test_one_size_has_no_tests() -> None:
    result = degradation_statistics({4096: rounds(25, 26)})
    assert result["significance_tests"] == result["effect_sizes"] == {}
    assert not result["has_degradation_trend"]


def test_degradation_points_are_between_neighbours() -> None:
    means = {
        1024: {"cloze_score": 20.0, "vocabulary_diversity": 0.5},
        4096: {"cloze_score": 26.5, "vocabulary_diversity": 0.44},
        2048: {"cloze_score": 23.0, "sentence_length_variance": 60.0},
    }
    found = trend_analysis(means)
    assert [(p["context_length"], p["metric"]) for p in found["degradation_points"]] == [
        (4096, "cloze_score")
    ]
    assert found["trends"]["cloze_score"] == {"start": 20.0, "end": 26.5, "change": 6.5}


def test_convergence_needs_a_positive_figure_of_the_author() -> None:
    author = {
        "cloze_score": 20.0,
        "semicolon_density": 0.0,
        "sentence_length_kurtosis": -1.0,
        "vocabulary_diversity": 0.5,
        "char_entropy": 4.0,
        "reading_level": "4",
    }
    steps = {
        1024: {"cloze_score": 30, "sentence_length_kurtosis": -1.0, "vocabulary_diversity": 0.2},
        2048: {"cloze_score": 22, "sentence_length_kurtosis": -1.0, "vocabulary_diversity": 0.55},
        4096: {"cloze_score": 18, "sentence_length_kurtosis": -1.0, "vocabulary_diversity": 0.56},
    }
    found = convergence(steps, author)
    assert found.near == {
        "cloze_score": (False, True, True),
        "vocabulary_diversity": (False, True, False),
        "sentence_length_kurtosis": (False, False, False),
    }
    assert [found.first_size(metric) for metric in found.near] == [2048, 2048, None]
    assert found.groups() == [["cloze_score"], ["vocabulary_diversity"]]
    wider = convergence(steps, author, 0.2)
    assert wider.groups() == [["cloze_score", "vocabulary_diversity"]]
