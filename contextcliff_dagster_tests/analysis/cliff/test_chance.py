"""Where guessing scores, losses are those of what is above it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.cliff import Conclusion, baseline_of, conclude
from contextcliff_dagster.analysis.design.true_curves import Curve
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.analysis.statistics.falling_curve import falling_posterior, kept_of
from contextcliff_dagster.analysis.statistics.intervals import loss_lengths
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.arrays import Floats
from contextcliff_dagster_tests.support.records.planted_curves import plant, step
from contextcliff_dagster_tests.support.records.profiles import QUICK, cliffs_of

COUNT = 200
LENGTHS = np.geomspace(1_000, 100_000, COUNT).astype(np.int64)


def spread(mean: Floats) -> Floats:
    """Scores of 0 and 1 that follow ``mean`` as evenly as they can."""
    reached = np.floor(np.cumsum(mean) + 1e-9)
    return np.diff(reached, prepend=0.0)


def concluded(mean: Floats, chance: float) -> Conclusion:
    documents = Documents(LENGTHS, np.ones(COUNT), spread(mean), True, chance)
    settings = replace(QUICK, chance=chance)
    return conclude(documents, settings, baseline_of(documents, settings))


def test_who_guesses_has_no_cap_and_it_is_said_why() -> None:
    guessing = np.full(COUNT, 0.30)
    assert concluded(guessing, 0.0).cap.tokens is not None
    found = concluded(guessing, 0.25)
    assert found.finding.verdict is Verdict.FLOOR
    assert found.cap.tokens is None
    assert "not better than guessing (0.25)" in found.cap.reason


def test_a_drop_is_a_share_of_what_can_be_lost() -> None:
    mean = np.where(np.arange(COUNT) < 120, 0.80, 0.58)
    assert concluded(mean, 0.0).finding.verdict is Verdict.STABLE, "28% of .80: not certain"
    found = concluded(mean, 0.25)
    assert found.finding.cliff is not None, "40% of .55"
    assert found.finding.cliff.drop.value == pytest.approx(0.4, abs=0.08)
    assert (found.cap.tokens or 0) < LENGTHS[120]


def test_down_to_guessing_everything_is_lost() -> None:
    mean = np.where(np.arange(COUNT) < 100, 0.95, 0.25)
    cliff = concluded(mean, 0.25).finding.cliff
    assert cliff is not None
    assert cliff.drop.high > 0.95
    assert cliff.drop.value > 0.85


@given(st.floats(0.0, 0.8), st.floats(0.05, 1.0), st.integers(0, 40), st.integers(1, 3))
def test_no_mean_is_below_guessing_and_a_larger_loss_is_less_likely(
    chance: float, part: float, right: int, baseline: int
) -> None:
    n = np.full(6, 40.0)
    s = np.append(np.full(3, 40.0 * kept_of(1.0, part, chance)), np.full(3, float(right)))
    posterior = falling_posterior(n, s, np.ones(6), baseline, guessing=chance)
    assert posterior.mean.min() >= min(chance, 0.999) - 1e-9
    lost = np.array([posterior.chance_lost(share) for share in (0.1, 0.3, 0.6, 0.9)])
    assert np.isfinite(lost).all()
    assert (np.diff(lost, axis=0) <= 1e-9).all()
    assert (np.diff(lost, axis=1) >= -1e-9).all()


@given(st.floats(0.0, 0.6), st.floats(0.1, 0.9), st.floats(0.05, 0.5))
def test_a_planted_curve_loses_its_tolerance_where_it_is_lost_above_guessing(
    chance: float, drop: float, tolerance: float
) -> None:
    share = np.linspace(0.0, 1.0, 1_001)
    curve = Curve("step", 0.95, drop, 0.5, chance=chance)
    assert (curve.first_loss(tolerance, share) is not None) == (drop >= tolerance - 1e-12)
    assert curve.mean(share).min() >= chance - 1e-12


def test_compared_runs_lose_their_tolerance_above_guessing() -> None:
    mean = np.where(np.arange(COUNT) < 120, 0.80, 0.58)
    one = np.ones((COUNT, 1))
    lengths = [
        loss_lengths(LENGTHS, np.ones(COUNT), spread(mean), one, 0.3, chance)[0]
        for chance in (0.0, 0.25)
    ]
    assert lengths[0] == np.inf
    assert lengths[1] == pytest.approx(np.log(LENGTHS[120]), abs=0.1)


def test_a_result_names_what_guessing_scores() -> None:
    records = plant(step(1_000, 0.9, 0.4), 3)
    cliffs = cliffs_of(records, replace(QUICK, chance=0.25))
    assert cliffs.chance == 0.25
    assert "Guessing scores 0.25: what is lost is measured above that." in cliffs.warnings
    without = cliffs_of(records)
    assert without.chance == 0.0
    assert without.cliff is not None
    assert cliffs.cliff is not None
    assert cliffs.cliff.drop > without.cliff.drop
