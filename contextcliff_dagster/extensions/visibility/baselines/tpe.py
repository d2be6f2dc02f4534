"""Tree-structured Parzen estimators (Bergstra et al. 2011), by optuna."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.baselines.search import Trial
from contextcliff_dagster.extensions.visibility.tasks.parameters import Choice, Config, Space

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
