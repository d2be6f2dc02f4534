"""What a run reached by each of its steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from contextcliff_dagster.experiments.visibility.baselines.search import Trial
from contextcliff_dagster.experiments.visibility.landscape.table import normalised_regret
from contextcliff_dagster.experiments.visibility.tasks.parameters import Floats


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
