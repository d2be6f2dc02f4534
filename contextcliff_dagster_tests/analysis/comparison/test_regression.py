"""The regression test fails on a real shrink, and not on flips, luck or noise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.contrast import Pairs, pair_records
from contextcliff_dagster.analysis.regression import RegressionSettings, find_shrink
from contextcliff_dagster_tests.support.records.planted_curves import (
    Curve,
    bins_of,
    flat,
    plant,
    ramp,
    step,
)

ALPHA = RegressionSettings().alpha(models=2)


def answers(records: pd.DataFrame, curve: Curve, seed: int, flips: float = 0.0) -> pd.DataFrame:
    """Each example's luck is its own and stays; ``flips`` of the answers come out otherwise."""
    luck = np.random.default_rng(1).random(len(records))
    rng = np.random.default_rng(seed)
    score = (luck < curve(records["length_tokens"].to_numpy(float))).astype(float)
    flipped = rng.random(len(records)) < flips
    return records.assign(score=np.where(flipped, 1 - score, score))


def paired(a: pd.DataFrame, b: pd.DataFrame) -> Pairs:
    return pair_records(a, b, bins_of(a))


@pytest.mark.parametrize(
    "curve",
    [ramp(1_600), step(1_500, 0.95, 0.28), flat(1.0), flat(0.6)],
    ids=["ramp", "step", "all right", "flat .6"],
)
def test_an_unchanged_model_that_flips_passes(curve: Curve) -> None:
    sample = plant(flat(0.5), 3)
    pinned = answers(sample, curve, 0)
    for run in range(8):
        shrink = find_shrink(paired(pinned, answers(sample, curve, run, 0.05)), ALPHA)
        assert not shrink.shrunk, shrink


def test_the_same_answers_are_no_shrink() -> None:
    pinned = answers(plant(flat(0.5), 3), ramp(1_600), 0)
    shrink = find_shrink(paired(pinned, pinned), ALPHA)
    assert (shrink.shrunk, shrink.p_value, shrink.lost) == (False, 1.0, 0)


def test_a_halved_cap_is_found_at_once_and_placed() -> None:
    sample = plant(flat(0.5), 3)
    pinned = answers(sample, ramp(1_600), 0, 0.05)
    shrink = find_shrink(paired(pinned, answers(sample, ramp(800), 1, 0.05)), ALPHA)
    assert shrink.shrunk
    assert shrink.from_tokens is not None
    assert shrink.to_tokens is not None
    assert 300 < shrink.from_tokens < shrink.to_tokens < 3_000
    assert shrink.lost > shrink.gained


def test_a_model_that_became_better_passes() -> None:
    sample = plant(flat(0.5), 3)
    pinned = answers(sample, ramp(800), 0, 0.05)
    assert not find_shrink(paired(pinned, answers(sample, ramp(1_600), 1, 0.05)), ALPHA).shrunk


def test_answers_drawn_anew_each_time_are_noise() -> None:
    for seed in range(6):
        a, b = (plant(step(1_500, 0.75, 0.4), seed + 100 * k) for k in (0, 1))
        assert not find_shrink(paired(a, a.assign(score=b.score)), ALPHA).shrunk


def test_a_loss_on_one_document_is_an_accident_of_that_document() -> None:
    sample = plant(flat(1.0), 3, questions=10)
    gone = sample["document_id"] == "doc7"
    worse = sample.assign(score=np.where(gone, 0.0, sample["score"]))
    assert not find_shrink(paired(sample, worse), ALPHA).shrunk


def test_graded_scores_shrink_too() -> None:
    sample = plant(flat(0.85), 3, graded=True)
    rng = np.random.default_rng(0)
    wobble = np.clip(sample["score"] + rng.normal(0, 0.05, len(sample)), 0, 1)
    assert not find_shrink(paired(sample, sample.assign(score=wobble)), ALPHA).shrunk
    lost = np.where(sample["length_tokens"] > 700, 0.6 * wobble, wobble)
    assert find_shrink(paired(sample, sample.assign(score=lost)), ALPHA).shrunk


def test_the_years_error_is_divided_among_runs_and_models() -> None:
    settings = RegressionSettings(yearly_error=0.05, runs_per_year=50)
    assert settings.alpha(2) == pytest.approx(0.0005)
