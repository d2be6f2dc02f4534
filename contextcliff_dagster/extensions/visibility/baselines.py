"""Searches without a language model, with the same budget as the model's search.

A search tries a start and then as many proposals, based on earlier trials, as the budget allows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

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
"""Random trials before TPE begins; optuna's default of 10 would use up a budget of 10 steps."""


class TPESearch:
    """A TPE search over all parameters jointly; it learns from every trial, the start included."""

    def __init__(self, space: Space, seed: int, *, higher_is_better: bool) -> None:
        import optuna

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
        suggestion = self._study.ask(self._distributions)
        # Only what was trained is added; the trial that the question began never ends.
        return {name: suggestion.params[name] for name in self._space.names}

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
    for param in space.parameters:
        if isinstance(param, Choice):
            made[param.name] = CategoricalDistribution(param.choices)
        elif param.integer:
            made[param.name] = IntDistribution(int(param.low), int(param.high), log=param.log)
        else:
            made[param.name] = FloatDistribution(param.low, param.high, log=param.log)
    return made


class Trial(NamedTuple):
    """A tried configuration and its scores."""

    config: Config
    evaluation: Evaluation


class Search(Protocol):
    """A stateful search strategy; each instance is used for one run."""

    def propose(self, trials: Sequence[Trial]) -> Config:
        """Return the next configuration after ``trials``, the first of which is the start.

        Only validation scores may be used.
        """


def run_search(search: Search, objective: Objective, start: Config, budget: int) -> list[Trial]:
    """Return ``budget`` + 1 trials, start and proposals."""
    trials = [Trial(start, objective(start))]
    for _ in range(budget):
        config = search.propose(tuple(trials))
        trials.append(Trial(config, objective(config)))
    return trials


class RandomSearch:
    """Random search, uniform on each parameter's own scale (Bergstra, Bengio 2012)."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def propose(self, trials: Sequence[Trial]) -> Config:
        return self._space.at(self._rng.random(len(self._space.parameters)))


class SobolSearch:
    """Search along the points of a scrambled Sobol sequence."""

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
    """Hill climbing: steps each parameter up and down in random order and keeps improvements.

    The step size is a fraction of the parameter's scale and is halved after a round without
    improvement. For a choice, every other value is tried. No configuration is tried twice.
    """

    def __init__(self, space: Space, seed: int, *, higher_is_better: bool) -> None:
        self._space = space
        self._sign = 1.0 if higher_is_better else -1.0
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._step = _FIRST_STEP
        self._moves: list[tuple[int, float]] = []
        self._best: Config | None = None

    def propose(self, trials: Sequence[Trial]) -> Config:
        trained = [trial for trial in trials if math.isfinite(trial.evaluation.validation)]
        best = max(trained or trials, key=self._height).config
        if self._best is None or dict(best) != dict(self._best):
            self._best, self._moves = best, []
            fresh = True
        else:
            fresh = False
        configs = [dict(trial.config) for trial in trials]
        while self._step >= _SMALLEST_STEP:
            if not self._moves:
                if not fresh:
                    self._step /= 2
                self._moves = self._round()
                fresh = False
            while self._moves:
                config = self._moved(best, *self._moves.pop())
                if config not in configs:
                    return config
        # Nothing near the best is left: elsewhere is the only place that may be better.
        return self._space.at(self._rng.random(len(self._space.parameters)))

    def _height(self, trial: Trial) -> float:
        return self._sign * trial.evaluation.validation

    def _round(self) -> list[tuple[int, float]]:
        moves = list(product(range(len(self._space.parameters)), (1.0, -1.0)))
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
    """Return, for each step, the test score of the trial with the best validation score so far.

    Test scores do not influence the selection, because the best of many would be too optimistic.
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
    """Return a run's mean regret, from two or more values, by the trapezoidal rule.

    0 means the best configuration throughout the run, 1 the worst.

    >>> area_under_curve([1.0, 0.5, 0.0])
    0.5
    """
    curve = np.asarray(regret, dtype=np.float64)
    return float(np.trapezoid(curve) / (len(curve) - 1))


def regret_curve(
    trials: Sequence[Trial], best: float, worst: float, *, higher_is_better: bool
) -> Floats:
    """Return the normalised regret, at each step, of the configuration that would be reported."""
    return normalised_regret(
        reported_scores(trials, higher_is_better=higher_is_better), best, worst
    )
