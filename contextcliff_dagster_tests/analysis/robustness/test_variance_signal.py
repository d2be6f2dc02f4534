"""Scatter beyond what the mean explains, and where nothing can be said about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.robustness import variance_sentence, variance_signal
from contextcliff_dagster.reporting.length_profile.scope import scatter_sentence
from contextcliff_dagster_tests.support.records.planted_curves import (
    Floats,
    bins_of,
    flat,
    lengths_of,
    plant,
)
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, QUICK, assert_conforms


def signal(seed: int, concentration: Any, mean: Any = 0.6) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    lengths = np.sort(lengths_of(rng))
    m: Floats = mean(lengths) if callable(mean) else np.full(len(lengths), mean)
    k: Floats = concentration(lengths)
    scores = rng.beta(k * m, k * (1 - m))
    names = np.arange(len(lengths))
    return variance_signal(names, lengths, scores, m, permutations=199, seed=0)


def even(lengths: Floats) -> Floats:
    return np.full(len(lengths), 4.0)


def uneven(lengths: Floats) -> Floats:
    return np.where((lengths > 500) & (lengths < 2_000), 0.8, 4.0)


def test_an_even_scatter_is_no_signal_also_where_the_mean_falls() -> None:
    falling = [signal(seed, even, lambda x: np.where(x < 900, 0.8, 0.4)) for seed in range(30)]
    level = [signal(seed, even) for seed in range(30)]
    for found in (falling, level):
        assert sum(s.p_value <= 0.05 for s in found) <= 5


def test_a_stretch_that_scatters_more_is_found_at_its_place() -> None:
    for seed in range(5):
        tested = signal(seed, uneven)
        assert tested.p_value <= 0.01
        assert tested.from_tokens < 900
        assert 1_200 < tested.to_tokens < 3_000
        assert tested.inside > 1.5 * tested.outside
        assert f"{tested.from_tokens:,}" in str(variance_sentence(tested))


def test_a_share_of_the_largest_variance_is_a_share() -> None:
    """Scores of nearly 0 and 1 around a mean that is off scatter more than they can."""
    for seed in range(7):
        tested = signal(seed, lambda lengths: np.where(lengths < 900, 4.0, 0.01))
        assert 0.0 <= tested.outside <= tested.inside <= 1.0


def test_questions_of_one_document_count_once() -> None:
    rng = np.random.default_rng(0)
    misses = 0
    for _ in range(30):
        lengths = np.sort(lengths_of(rng, 6))
        own = np.clip(0.5 + 0.35 * rng.choice([-1.0, 1.0], len(lengths)), 0, 1)
        document = np.repeat(np.arange(len(lengths)), 6)
        scores = np.clip(own[document] + rng.normal(0, 0.02, len(document)), 0, 1)
        tested = variance_signal(
            document, lengths[document], scores, np.full(len(scores), 0.5), permutations=99, seed=0
        )
        misses += tested.p_value <= 0.05
    assert misses <= 5


def test_right_or_wrong_answers_are_refused_with_the_reason() -> None:
    records = plant(flat(0.6), 1)
    profile = profile_model(records, bins_of(records), QUICK, CONTEXT)
    assert_conforms(profile)
    test = profile.metrics.variance_signal
    assert test == profile.cliffs.variance_signal
    assert test.p_value is None
    assert "mean x (1 - mean)" in test.refused_because
    assert "not tested" in str(scatter_sentence(profile.cliffs))
    assert variance_sentence(test) is None
    near_one = signal(1, even, 0.95)
    assert "no room" in near_one.refused_because
    few = profile_model(records.head(5), [], QUICK, CONTEXT).metrics.variance_signal
    assert few.refused_because


def test_graded_scores_are_tested_and_the_report_says_so() -> None:
    records: pd.DataFrame = plant(flat(0.6), 1, graded=True)
    cliffs = profile_model(records, bins_of(records), QUICK, CONTEXT).cliffs
    assert 0 < cliffs.variance_signal.p_value <= 1
    assert "p = " in str(scatter_sentence(cliffs))
