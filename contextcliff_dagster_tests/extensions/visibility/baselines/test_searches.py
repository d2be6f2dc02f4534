"""Searches without a model: within the space, repeatable, and better than chance where they can."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.baselines import (
    HillClimb,
    RandomSearch,
    Search,
    SobolSearch,
    TPESearch,
    Trial,
    area_under_curve,
    regret_curve,
    reported_scores,
    run_search,
)
from contextcliff_dagster.extensions.visibility.tasks.catalogue import load_data, task_named
from contextcliff_dagster.extensions.visibility.tasks.task import (
    Config,
    Evaluation,
    Number,
    Objective,
    Space,
    clamp,
)
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.spaces import SPACE, spaces
from contextcliff_dagster_tests.support.examples import examples

MAKERS: dict[str, Callable[[Space, int, bool], Search]] = {
    "random": lambda space, seed, up: RandomSearch(space, seed),
    "sobol": lambda space, seed, up: SobolSearch(space, seed),
    "tpe": lambda space, seed, up: TPESearch(space, seed, higher_is_better=up),
    "hill climb": lambda space, seed, up: HillClimb(space, seed, higher_is_better=up),
}
SCORES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


def hill(space: Space, *, up: bool = True, top: float = 0.7) -> Objective:
    """One summit, at the same position of each parameter."""
    sign = 1.0 if up else -1.0

    def height(config: Config) -> Evaluation:
        score = -sign * float(((space.positions(config) - top) ** 2).mean())
        return Evaluation(score, score)

    return height


@pytest.mark.parametrize("name", MAKERS)
@examples(15)
@given(data=st.data())
def test_every_proposal_can_be_trained_as_it_is(name: str, data: st.DataObject) -> None:
    space, seed = data.draw(spaces()), data.draw(st.integers(0, 99))
    first, again = (
        run_search(MAKERS[name](space, seed, True), hill(space), space.start, 8) for _ in range(2)
    )
    assert first == again, "the same seed searches alike"
    assert len(first) == 9
    for trial in first:
        clamped = clamp(space, trial.config)
        assert (clamped.events, dict(clamped.values)) == ((), dict(trial.config))


@pytest.mark.parametrize("up", [True, False])
def test_climbing_and_estimating_beat_chance_on_one_summit(up: bool) -> None:
    plane = Space(
        tuple(Number(name, 0.01, 100, log=True) for name in "abcd"), dict.fromkeys("abcd", 0.05)
    )

    def reached(name: str) -> float:
        runs = [
            run_search(MAKERS[name](plane, seed, up), hill(plane, up=up), plane.start, 25)
            for seed in range(8)
        ]
        scores = [(max if up else min)(one.evaluation.test for one in run) for run in runs]
        return float(np.abs(np.mean(scores)))

    assert reached("hill climb") < reached("tpe") < reached("random")
    assert reached("sobol") < 1.5 * reached("random")


def test_searches_survive_trials_without_a_score() -> None:
    nothing = Evaluation(float("nan"), float("nan"))
    for make in MAKERS.values():
        trials = run_search(make(SPACE, 0, True), lambda config: nothing, SPACE.start, 12)
        assert len(trials) == 13


def test_a_search_sees_validation_scores_only() -> None:
    for make in MAKERS.values():
        proposals = []
        for test in (0.0, 1.0):
            rng = np.random.default_rng(1)

            def objective(
                config: Config, test: float = test, rng: np.random.Generator = rng
            ) -> Evaluation:
                return Evaluation(float(rng.random()), test)

            trials = run_search(make(SPACE, 0, True), objective, SPACE.start, 15)
            proposals.append([one.config for one in trials])
        assert proposals[0] == proposals[1]


def test_the_hill_climber_tries_nothing_twice_and_leaves_a_summit_that_it_knows() -> None:
    few = Space((Number("n", 1, 4, integer=True),), {"n": 2})
    trials = run_search(HillClimb(few, 0, higher_is_better=True), hill(few), few.start, 3)
    assert sorted(one.config["n"] for one in trials[:3]) == [1, 2, 3]
    assert len(run_search(HillClimb(few, 0, higher_is_better=True), hill(few), few.start, 20)) == 21


@given(SCORES, st.booleans())
def test_regret_over_the_best_so_far_only_falls_and_its_area_is_within_0_and_1(
    scores: list[float], up: bool
) -> None:
    trials = [Trial({}, Evaluation(score, score)) for score in scores]
    best, worst = (max(scores), min(scores)) if up else (min(scores), max(scores))
    curve = regret_curve(trials, best, worst, higher_is_better=up)
    assert (np.diff(curve) <= 1e-12).all()
    assert 0 <= area_under_curve(curve) <= 1
    assert curve[-1] in (0, 0.5)


def test_what_is_reported_is_the_test_score_of_the_best_on_validation() -> None:
    pairs = [(0.5, 0.6), (0.7, 0.4), (0.6, 0.9), (float("nan"), 1.0), (0.8, 0.5)]
    trials = [Trial({}, Evaluation(*pair)) for pair in pairs]
    assert reported_scores(trials, higher_is_better=True).tolist() == [0.6, 0.4, 0.4, 0.4, 0.5]
    assert reported_scores(trials, higher_is_better=False).tolist() == [0.6] * 5


def test_the_area_is_the_mean_of_neighbours_means() -> None:
    assert area_under_curve([1, 1, 0, 0]) == 0.5


@pytest.mark.parametrize("module", ["optuna", "sklearn"])
def test_what_is_not_installed_is_said_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StudyError, match=r"pip install 'contextcliff-dagster\[visibility\]'"):
        load_data(task_named("toy"), Store(tmp_path))
