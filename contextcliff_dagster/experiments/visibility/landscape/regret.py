"""Regret: how far a score is from the best one known, of what there was to gain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from contextcliff_dagster.experiments.visibility.tasks.parameters import Floats

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.visibility.landscape.table import Landscape


def normalised_regret(scores: ArrayLike, best: float, worst: float) -> Floats:
    """Return (best - score) / (best - worst) within 0 and 1, of the same shape as ``scores``.

    The formula has its own direction: for errors ``best`` is the lower one. Scores beyond the two,
    which a landscape of some configurations allows, have 0 or 1; failed ones (nan) have 1. Where
    best and worst are equal, all have .5.

    >>> normalised_regret([0.9, 0.7, 0.5, 0.95], best=0.9, worst=0.5).round(3).tolist()
    [0.0, 0.5, 1.0, 0.0]
    """
    given = np.asarray(scores, dtype=np.float64)
    if best == worst:
        return np.full(given.shape, 0.5)
    regret = np.clip((best - given) / (best - worst), 0.0, 1.0)
    return np.where(np.isnan(given), 1.0, regret)


def regrets(landscape: Landscape) -> Floats:
    """Return the regret of each configuration's mean test score; nan where it has none."""
    regret = normalised_regret(landscape.means, landscape.best, landscape.worst)
    return np.where(np.isnan(landscape.means), np.nan, regret)
