"""Whether a landscape has anything to be found: flat ones cannot tell one search from another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.experiments.visibility.landscape.table import Landscape

LEAST_SPREAD = 0.05
LEAST_ERRORS = 3.0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whether a landscape counts, and by what.

    Attributes:
        spread: how much better the best configuration is than the worst, in the score's unit.
        standard_error: of the spread.
        splits: how many it is the mean of.
        failed: configurations that could not be trained on every split.
        refused: why it does not count, one sentence each; empty where it does.
    """

    spread: float
    standard_error: float
    splits: int
    failed: int
    refused: tuple[str, ...]

    @property
    def counts(self) -> bool:
        return not self.refused


def accept(landscape: Landscape) -> Acceptance:
    """Return whether a landscape's configuration means spread by >= .05 and >= 3 standard errors.

    The best and the worst of many means differ by chance alone, by about five standard errors of
    128. So both are chosen on every other split, and compared on the splits between; then the other
    way round. The spread is the mean of these paired differences over all splits.

    Raises:
        ValueError: fewer than four splits.
    """
    splits = len(landscape.splits)
    if splits < 4:
        raise ValueError("a landscape is judged on four splits or more")
    whole = np.isfinite(landscape.test).all(axis=1)
    failed = int((~whole).sum())
    if whole.sum() < 2:
        reason = "fewer than two configurations could be trained"
        return Acceptance(0.0, 0.0, splits, failed, (reason,))
    scores = landscape.test[whole] / landscape.unit
    if not landscape.higher_is_better:
        scores = -scores
    even = np.arange(splits) % 2 == 0
    differences = np.concatenate(
        [_compared(scores[:, chosen], scores[:, ~chosen]) for chosen in (even, ~even)]
    )
    spread = float(differences.mean())
    error = float(differences.std(ddof=1) / math.sqrt(splits))
    refused = []
    if spread < LEAST_SPREAD:
        refused.append(f"its scores spread by {spread:.3f}, less than {LEAST_SPREAD}")
    if spread < LEAST_ERRORS * error:
        refused.append(f"its spread is {spread / error:.1f} standard errors, fewer than 3")
    return Acceptance(spread, error, splits, failed, tuple(refused))


def _compared(chosen: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Best less worst by the means of ``chosen``, on each split of ``scores``."""
    means = chosen.mean(axis=1)
    return np.asarray(scores[means.argmax()] - scores[means.argmin()])
