"""A search: a start, then as many proposals as the budget allows, each from what came before.

And what a run reached by each of its steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from contextcliff_dagster.extensions.visibility.landscape.table import (
    normalised_regret,
    sobol_configs,
)
from contextcliff_dagster.extensions.visibility.tasks.parameters import (
    Choice,
    Config,
    Floats,
    Space,
    Value,
)
from contextcliff_dagster.extensions.visibility.tasks.task import Evaluation, Objective


class Trial(NamedTuple):
    """A configuration that was tried, and its scores."""

    config: Config
    evaluation: Evaluation


class Search(Protocol):
    """Chooses the next configuration; keeps what it needs, and is used for one run only."""

    def propose(self, trials: Sequence[Trial]) -> Config:
        """Return the next configuration after ``trials``, the start first.

        It may look at validation scores alone.
        """


def run_search(search: Search, objective: Objective, start: Config, budget: int) -> list[Trial]:
    """Return ``budget`` + 1 trials: the start, and what the search proposed.

    Raises:
        ValueError: the budget is negative.
    """
    if budget < 0:
        raise ValueError("a budget is 0 or more steps")
    trials = [Trial(start, objective(start))]
    for _ in range(budget):
        config = search.propose(tuple(trials))
        trials.append(Trial(config, objective(config)))
    return trials


class RandomSearch:
    """Uniform over positions, so log-uniform where the scale is (Bergstra, Bengio 2012)."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def propose(self, trials: Sequence[Trial]) -> Config:
        return self._space.at(self._rng.random(len(self._space.parameters)))


class SobolSearch:
    """Points of a scrambled Sobol sequence, one after another."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed
        self._points: list[dict[str, Value]] = []

    def propose(self, trials: Sequence[Trial]) -> Config:
        if len(self._points) < len(trials):
            self._points = sobol_configs(self._space, max(16, 2 * len(trials)), self._seed)
        return self._points[len(trials) - 1]


_FIRST_STEP = 0.25
_SMALLEST_STEP = 1 / 64


class HillClimb:
    """Tries a step up and down of each parameter in a drawn order, and stays where it improves.

    A step is a share of the parameter's scale; after a round without improvement it is halved. A
    choice is tried with each other value. What was tried already is not tried again.
    """

    def __init__(self, space: Space, seed: int, *, higher_is_better: bool) -> None:
        self._space = space
        self._sign = 1.0 if higher_is_better else -1.0
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._step = _FIRST_STEP
        self._moves: list[tuple[int, float]] = []
        self._best: Config | None = None

    def propose(self, trials: Sequence[Trial]) -> Config:
        known = [one for one in trials if math.isfinite(one.evaluation.validation)]
        best = max(known or trials, key=self._height).config
        if self._best is None or dict(best) != dict(self._best):
            self._best, self._moves = best, []
            fresh = True
        else:
            fresh = False
        tried = [dict(one.config) for one in trials]
        while self._step >= _SMALLEST_STEP:
            if not self._moves:
                if not fresh:
                    self._step /= 2
                self._moves = self._round()
                fresh = False
            while self._moves:
                config = self._moved(best, *self._moves.pop())
                if config not in tried:
                    return config
        # Nothing near the best is left: elsewhere is the only place that may be better.
        return self._space.at(self._rng.random(len(self._space.parameters)))

    def _height(self, trial: Trial) -> float:
        return self._sign * trial.evaluation.validation

    def _round(self) -> list[tuple[int, float]]:
        count = len(self._space.parameters)
        moves = list(product(range(count), (1.0, -1.0)))
        return [moves[k] for k in self._rng.permutation(len(moves))]

    def _moved(self, config: Config, number: int, direction: float) -> dict[str, Value]:
        parameter = self._space.parameters[number]
        if isinstance(parameter, Choice):
            place = parameter.choices.index(config[parameter.name]) + int(direction)
            value = parameter.choices[place % len(parameter.choices)]
        else:
            position = parameter.position(config[parameter.name]) + direction * self._step
            value = parameter.at(min(max(position, 0.0), 1.0))
        return {**config, parameter.name: value}


def reported_scores(trials: Sequence[Trial], *, higher_is_better: bool) -> Floats:
    """Return, after each step, the test score of the trial whose validation score is best so far.

    The test score itself never chooses: its best of many steps would be too good.
    """
    sign = 1.0 if higher_is_better else -1.0
    reported = np.full(len(trials), np.nan)
    best, test = -np.inf, float("nan")
    for k, trial in enumerate(trials):
        if sign * trial.evaluation.validation > best:
            best, test = sign * trial.evaluation.validation, trial.evaluation.test
        reported[k] = test
    return reported


def area_under_curve(regret: ArrayLike) -> float:
    """Return the mean regret over a run's steps, by the trapezoidal rule; of one step, its own.

    0 is the best configuration from the start, 1 the worst to the end.

    >>> area_under_curve([1.0, 0.5, 0.0])
    0.5
    """
    curve = np.asarray(regret, dtype=np.float64)
    if len(curve) == 1:
        return float(curve[0])
    return float(np.trapezoid(curve) / (len(curve) - 1))


def regret_curve(
    trials: Sequence[Trial], best: float, worst: float, *, higher_is_better: bool
) -> Floats:
    """Return the normalised regret of what would be reported after each step."""
    return normalised_regret(
        reported_scores(trials, higher_is_better=higher_is_better), best, worst
    )
