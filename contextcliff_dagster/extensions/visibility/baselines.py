"""Searches without a language model, on the same budget as one with it.

A search has a start, then as many proposals as the budget allows, each from what came before.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.landscape import normalised_regret, sobol_configs
from contextcliff_dagster.extensions.visibility.tasks.task import (
    Choice,
    Config,
    Evaluation,
    Floats,
    Objective,
    Space,
    Value,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

_RANDOM_FIRST = 4
"""Trials before the first estimate: optuna's 10 would leave nothing of a budget of 10."""


class TPESearch:
    """A TPE sampler over all parameters together, fed with every trial, the start included.

    Raises:
        StudyError: optuna is not installed.
    """

    def __init__(self, space: Space, seed: int, *, higher_is_better: bool) -> None:
        try:
            import optuna
        except ImportError as error:
            raise StudyError(
                "The baseline TPE is optuna's, which is not installed: "
                "`pip install 'contextcliff-dagster[visibility]'`."
            ) from error
        self._space = space
        self._distributions = _distributions(space)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=_RANDOM_FIRST, multivariate=True, seed=seed
            )
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self._study = optuna.create_study(
                sampler=sampler, direction="maximize" if higher_is_better else "minimize"
            )
        finally:
            optuna.logging.set_verbosity(verbosity)
        self._known = 0

    def propose(self, trials: Sequence[Trial]) -> Config:
        for trial in trials[self._known :]:
            self._study.add_trial(self._kept(trial))
        self._known = len(trials)
        asked = self._study.ask(self._distributions)
        # Only what was trained is added; the trial that the question began never ends.
        return {name: asked.params[name] for name in self._space.names}

    def _kept(self, trial: Trial) -> FrozenTrial:
        from optuna.trial import TrialState, create_trial

        score = trial.evaluation.validation
        failed = not math.isfinite(score)
        return create_trial(
            params=dict(trial.config),
            distributions=self._distributions,
            value=None if failed else score,
            state=TrialState.FAIL if failed else TrialState.COMPLETE,
        )


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    made: dict[str, BaseDistribution] = {}
    for one in space.parameters:
        if isinstance(one, Choice):
            made[one.name] = CategoricalDistribution(one.choices)
        elif one.integer:
            made[one.name] = IntDistribution(int(one.low), int(one.high), log=one.log)
        else:
            made[one.name] = FloatDistribution(one.low, one.high, log=one.log)
    return made


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
