"""Scores of predictions, each with its direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Score:
    """How predictions are judged.

    Attributes:
        name: as it is known.
        higher_is_better: its direction.
        of: targets and predictions to the score.
        predictions: which ones: values or classes, or a probability of each class.
        relative: whether differences are in shares of a constant prediction's score. Errors have
            the unit of their target; a share of rows has none.
    """

    name: str
    higher_is_better: bool
    of: Callable[[Array, Array], float]
    predictions: Literal["values", "probabilities"] = "values"
    relative: bool = False

    def unit(self, targets: Array) -> float:
        """Return what a difference of 1 is: 1, or the score of predicting the mean everywhere."""
        if not self.relative:
            return 1.0
        return self.of(targets, np.full(len(targets), targets.mean())) or 1.0


def _accuracy(targets: Array, classes: Array) -> float:
    return float(np.mean(targets == classes))


def _rmse(targets: Array, values: Array) -> float:
    return float(np.sqrt(np.mean((targets - values) ** 2)))


def _rmsle(targets: Array, values: Array) -> float:
    return _rmse(np.log1p(targets), np.log1p(np.clip(values, 0, None)))


def _mean_auc(targets: Array, probabilities: Array) -> float:
    """Mean area under the ROC curve of the columns whose targets have both classes; else nan."""
    from sklearn.metrics import roc_auc_score

    both = [k for k in range(targets.shape[1]) if 0 < targets[:, k].mean() < 1]
    areas = [roc_auc_score(targets[:, k], probabilities[:, k]) for k in both]
    return float(np.mean(areas)) if areas else float("nan")


def _log_loss(targets: Array, probabilities: Array) -> float:
    """Mean -log of the probability of the right class; classes are numbered from 0."""
    right = probabilities[np.arange(len(targets)), targets]
    return float(-np.log(np.clip(right, 1e-15, 1.0)).mean())


ACCURACY = Score("accuracy", True, _accuracy)
RMSE = Score("RMSE", False, _rmse, relative=True)
RMSLE = Score("RMSLE", False, _rmsle, relative=True)
MEAN_AUC = Score("mean column-wise ROC AUC", True, _mean_auc, "probabilities")
LOG_LOSS = Score("log loss", False, _log_loss, "probabilities")
