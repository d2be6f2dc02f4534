"""Calibration: counts that are right, the same on any number of processes, for a drawn sample."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from contextcliff_dagster.analysis.design.error_rates import (
    Design,
    Plan,
    Rate,
    Reach,
    calibrate,
    describe,
    of_chances,
    simulate_sample,
)
from contextcliff_dagster.analysis.design.true_curves import KINDS, Curve, draw_curve, drops
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import intraclass_correlation

SETTINGS = AnalysisSettings(permutations=99)
SMALL = Plan(Design(bins=5, per_bin=8, pool=200, binary=True), 0.9)


def test_the_result_does_not_depend_on_the_number_of_processes() -> None:
    one = calibrate(SMALL, SETTINGS, simulations=20, seed=3)
    assert calibrate(SMALL, SETTINGS, simulations=20, seed=3, jobs=2) == one
    assert json.loads(json.dumps(asdict(one), allow_nan=False))["power"]["runs"] == 5


def test_large_samples_find_deep_steps_and_where_they_are() -> None:
    plan = Plan(Design(bins=5, per_bin=40, binary=True), 0.9)
    calibration = calibrate(plan, SETTINGS, simulations=20)
    assert (calibration.power.hits, calibration.power.runs) == (5, 5)
    assert calibration.held.value is not None
    assert calibration.held.value >= 0.6
    # Flat curves lose nothing, so no cap of theirs is unsafe.
    of = {row.kind: row for row in calibration.planted}
    assert of["flat"].unsafe.runs == 0
    assert of["step"].unsafe.runs == 5
    assert of["step"].cap.median is not None
    assert 0.4 < of["step"].cap.median <= 1.05


def test_samples_too_small_to_judge_raise_no_alarm_and_have_no_cap() -> None:
    plan = Plan(Design(bins=5, per_bin=4, pool=200, binary=True), 0.9)
    calibration = calibrate(plan, SETTINGS, simulations=22)
    assert (calibration.false_alarms.hits, calibration.power.hits, calibration.unsafe.hits) == (
        0,
        0,
        0,
    )
    assert all(row.without_cap.value == 1.0 for row in calibration.planted)


def test_a_drawn_sample_is_simulated_as_it_is() -> None:
    lengths, questions = np.array([10, 20, 20, 40, 80]), np.array([1, 3, 2, 1, 1])
    curve = Curve("step", 1.0, 1.0, place=0.3)
    drawn = simulate_sample(
        lengths, questions, Design(binary=True, correlation=0.0), curve, np.random.default_rng(0)
    )
    assert drawn.documents.length_tokens.tolist() == [10, 20, 20, 40, 80]
    assert drawn.documents.n.tolist() == [1, 3, 2, 1, 1]
    # Both documents of 20 tokens begin before the step, so neither has lost anything.
    assert drawn.documents.s.tolist() == [1, 3, 2, 0, 0]
    plan = Plan(Design(), 0.5, ((10, 20, 20, 40, 80), (1, 3, 2, 1, 1)))
    assert describe(plan)["examples"] == 8
    assert describe(plan)["questions"] == [1, 3]


def test_the_hash_is_that_of_the_design_not_of_what_is_assumed() -> None:
    same = Plan(replace(SMALL.design, correlation=0.3), 0.6)
    other = Plan(replace(SMALL.design, per_bin=9), 0.9)
    assert describe(same)["sha256"] == describe(SMALL)["sha256"]
    assert describe(other)["sha256"] != describe(SMALL)["sha256"]
    assert (
        describe(replace(SMALL, sample=((10, 20), (1, 1))))["sha256"]
        != describe(replace(SMALL, sample=((10, 21), (1, 1))))["sha256"]
    )


@pytest.mark.parametrize("tolerance", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planted_loses_more_than_the_tolerance_or_nothing(
    kind: str, tolerance: float
) -> None:
    share = (np.arange(2_000) + 0.5) / 2_000
    rng = np.random.default_rng(1)
    for _ in range(20):
        curve = draw_curve(kind, 0.6, tolerance, rng)
        low, high = drops(kind, tolerance)
        assert low <= curve.drop <= high < 1.0
        loss = curve.first_loss(tolerance, share)
        if kind == "flat":
            assert loss is None
        else:
            assert loss is not None
            assert (0.0 if kind == "decay" else 0.1) < loss < 1.0


@pytest.mark.parametrize(
    "design",
    [
        Design(binary=True, correlation=0.3),
        Design(binary=False, correlation=0.3),
        Design(binary=True, correlation=0.3, replicates=3),
    ],
)
def test_scores_are_as_alike_as_the_design_says(design: Design) -> None:
    documents, each = 4_000, 4
    lengths, questions = np.arange(1, documents + 1), np.full(documents, each)
    drawn = simulate_sample(
        lengths,
        questions,
        replace(design, correlation=of_chances(design)),
        Curve("flat", 0.6),
        np.random.default_rng(0),
    )
    # From sums alone: the variance of a document's mean is v (1 + (m - 1) r) / m.
    between = float(np.var(drawn.documents.s / each))
    single = simulate_sample(
        lengths,
        np.ones(documents, np.int64),
        replace(design, correlation=of_chances(design)),
        Curve("flat", 0.6),
        np.random.default_rng(1),
    )
    variance = float(np.var(single.documents.s))
    assert (between * each / variance - 1.0) / (each - 1) == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("truth", [0.0, 0.3])
def test_the_correlation_is_found_again_however_the_mean_falls_with_length(truth: float) -> None:
    rng = np.random.default_rng(4)
    found = []
    for _ in range(60):
        size = rng.integers(1, 8, 80)
        mean = np.where(np.arange(80) < 40, 0.8, 0.3)
        p = rng.beta(mean * (1 / truth - 1), (1 - mean) * (1 / truth - 1)) if truth else mean
        document = np.repeat(np.arange(80), size)
        score = (rng.random(len(document)) < p[document]).astype(float)
        one = intraclass_correlation(document, score, np.repeat(np.arange(80) // 8, size))
        assert one is not None
        assert 0.0 <= one.low <= one.value <= one.high <= 1.0
        found.append((one.value, one.low <= truth <= one.high))
    assert np.mean([value for value, _ in found]) == pytest.approx(truth, abs=0.04)
    assert np.mean([held for _, held in found]) >= 0.85


def test_no_correlation_is_made_up_from_single_questions_or_equal_scores() -> None:
    one_each, some = np.arange(40), np.arange(40) // 2
    zeros = np.zeros(40, np.int64)
    random = np.random.default_rng(0).random(40)
    assert intraclass_correlation(one_each, random, zeros) is None
    assert intraclass_correlation(some, np.ones(40), zeros) is None
    assert intraclass_correlation(some, random, zeros) is not None


def test_donners_estimator_on_equal_groups_is_the_textbook_one() -> None:
    # Two scores a document: msb = 2 var(means), msw = mean of half the squared differences.
    rng = np.random.default_rng(9)
    score = rng.random((12, 2)) + rng.random((12, 1))
    msb = 2 * score.mean(axis=1).var(ddof=1)
    msw = float((np.diff(score, axis=1) ** 2 / 2).mean())
    estimate = intraclass_correlation(
        np.repeat(np.arange(12), 2), score.ravel(), np.zeros(24, np.int64)
    )
    assert estimate is not None
    assert estimate.value == pytest.approx((msb - msw) / (msb + msw))


def test_rates_have_wilson_limits_and_nothing_counted_has_none() -> None:
    rate = Rate.of([True] * 10 + [False] * 90)
    assert (rate.hits, rate.runs, rate.value) == (10, 100, 0.1)
    # The textbook's interval for 10 of 100.
    assert (rate.low, rate.high) == pytest.approx((0.0552, 0.1744), abs=1e-3)
    assert Rate.of([]).value is None
    assert Reach.of([]).median is None
    reach = Reach.of(list(np.linspace(0, 1, 101)))
    assert (reach.quarter, reach.median, reach.three_quarters) == (0.25, 0.5, 0.75)
    assert reach.low == pytest.approx(0.40, abs=0.02)
