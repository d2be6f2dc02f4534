"""How flips vary is learned from runs of the unchanged model, and from the run's own plateau."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from contextcliff_dagster.analysis.contrast import Pairs
from contextcliff_dagster.analysis.regression import (
    RATES,
    Changes,
    FlipRates,
    RegressionSettings,
    find_shrink,
)
from contextcliff_dagster_tests.analysis.comparison.test_regression import answers, paired
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.records.planted_curves import flat, plant, step

ALPHA = RegressionSettings().alpha(models=2)
WHOLE = np.array([0]), np.array([200])


def run(lost: int, n: int = 200, questions: int = 1) -> Changes:
    """The last ``lost`` of ``n`` right answers are lost; lengths 1, 2, 3, ..."""
    gone = np.arange(n) >= n - lost
    document = np.arange(n) // questions
    return Changes(np.ones(n, bool), gone, np.zeros(n, bool), document, 1 + document)


def rates(now: Changes, *lost: int, plateau: float = 1e9) -> FlipRates:
    return FlipRates.of(now, [run(one) for one in lost], plateau, 0.05)


@examples(30)
@given(st.lists(st.integers(0, 60), max_size=12), st.integers(0, 200))
def test_probabilities_are_probabilities_and_fall_with_the_losses(
    others: list[int], lost: int
) -> None:
    known = rates(run(lost), *others)
    for start, end in ((0, 200), (0, 20), (150, 190)):
        window = np.array([start]), np.array([end])
        assert known.outside(*window).sum() == pytest.approx(1.0)
        tails = [known.tail(*window, np.array([k]))[0] for k in range(end - start + 1)]
        assert tails[0] == pytest.approx(1.0, abs=1e-6)
        assert np.all(np.diff(tails) <= 1e-12)


def test_a_run_that_is_known_exactly_is_binomial() -> None:
    weights = (np.arange(len(RATES)) == 90).astype(float)
    known = FlipRates(weights, 1.0, np.zeros(1, np.int64))
    tail = known.tail(*WHOLE, np.array([40]))[0]
    assert tail == pytest.approx(binom.sf(39, 200, RATES[90]), rel=1e-6)


def test_runs_that_are_alike_leave_less_to_an_unusual_one() -> None:
    unusual = [rates(run(10), *[10] * count).upper(*WHOLE, 1e-4)[0] for count in (0, 5, 15, 50)]
    assert np.all(np.diff(unusual) < 0)
    assert unusual[-1] < 0.12
    varied = rates(run(10), *[2, 30, 5, 0, 21] * 3).upper(*WHOLE, 1e-4)[0]
    assert varied > 2 * unusual[2]


def test_a_bad_week_shows_on_its_own_plateau() -> None:
    window = np.array([150]), np.array([180])
    lost = np.array([9])
    bad, good = run(0), run(0)
    bad.lost[:100:4] = True
    calm, restless = (rates(one, plateau=101).tail(*window, lost)[0] for one in (good, bad))
    assert calm < ALPHA < 0.1 < restless


def test_questions_on_one_document_are_not_counted_as_many() -> None:
    alone, together = (
        FlipRates.of(run(20), [run(20, questions=q)] * 6, 1e9, 0.05) for q in (1, 10)
    )
    assert alone.dispersion == pytest.approx(1.0)
    assert together.dispersion > 5
    assert together.upper(*WHOLE, 1e-4)[0] > alone.upper(*WHOLE, 1e-4)[0]


def history(flips: list[float]) -> tuple[Pairs, list[Pairs]]:
    """A run of .25 flips, and others, of a model that is always right."""
    sample = plant(flat(0.5), 3)
    pinned = answers(sample, flat(1.0), 0)
    runs = [paired(pinned, answers(sample, flat(1.0), i, f)) for i, f in enumerate([0.25, *flips])]
    return runs[0], runs[1:]


def test_a_bad_week_fails_only_where_weeks_are_known_to_be_alike() -> None:
    now, alike = history([0.05] * 30)
    assert find_shrink(now, ALPHA, unchanged=alike).shrunk
    _, varied = history([0.02, 0.12, 0.0, 0.09, 0.25, 0.01])
    judged = find_shrink(now, ALPHA, unchanged=varied)
    assert (judged.shrunk, judged.runs) == (False, 6)
    assert judged.unusual is not None
    assert judged.unusual > 0.2


def test_a_cliff_that_moves_is_found_among_varied_weeks() -> None:
    sample = plant(flat(0.5), 3)
    before, after = step(1_500, 0.95, 0.1), step(750, 0.95, 0.1)
    pinned = answers(sample, before, 0)
    flips = [0.02, 0.12, 0.0, 0.09, 0.2, 0.01]
    known = [paired(pinned, answers(sample, before, i, f)) for i, f in enumerate(flips)]
    now = paired(pinned, answers(sample, after, 99, 0.05))
    assert find_shrink(now, ALPHA, unchanged=known).shrunk


@pytest.mark.parametrize("known", [5, 20, 52])
def test_a_server_that_answers_the_same_every_time_has_no_bad_weeks(known: int) -> None:
    for seed in range(6):
        sample, rng = plant(flat(0.5), seed), np.random.default_rng(seed)
        right = rng.random(len(sample)) < 0.95
        pinned = sample.assign(score=right.astype(float))
        for share in (0.2, 0.45):
            lost = rng.choice(np.flatnonzero(right), round(share * right.sum()), replace=False)
            now = pinned["score"].to_numpy().copy()
            now[lost] = 0.0
            worse = paired(pinned, sample.assign(score=now))
            assert find_shrink(worse, ALPHA, unchanged=[paired(pinned, pinned)] * known).shrunk
