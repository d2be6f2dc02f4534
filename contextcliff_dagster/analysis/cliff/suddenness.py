"""Does a score fall suddenly or gradually: a step against slopes over all lengths.

Each shape has the mean before and the mean after it free, and is fitted by weighted least squares,
which leaves for each what it explains. A step may lie anywhere beyond the baseline region, a slope
be straight in the logarithm of length, in the rank of length, or in length. The evidence of either
kind is the mean of exp(explained / 2) over its shapes, so that many places to choose from are no
advantage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts import Verdict

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.falling_curve import FallingCurve
    from contextcliff_dagster.contracts.arrays import Floats

SUDDEN, GRADUAL = 1.0, 0.0
"""Twice the log evidence of a step over a slope: a cliff from the first on, a gradual decline up to
the second; chosen by benchmarks/suddenness.py."""
_LEAST_AFTER = 0.04
_LEAST, _MOST = 0.05, 0.95
"""Means in the variance of a score, so that a flawless cell does not decide alone."""


def kind_of_drop(curve: FallingCurve) -> Verdict:
    """``cliff``, ``gradual_decline``, or ``decline`` where neither explains the scores better."""
    evidence = step_over_slope(curve)
    if evidence >= SUDDEN:
        return Verdict.CLIFF
    return Verdict.GRADUAL_DECLINE if evidence <= GRADUAL else Verdict.DECLINE


def step_over_slope(curve: FallingCurve) -> float:
    """Twice the log evidence of a step over that of a slope."""
    cells = curve.cells
    reached = np.cumsum(cells.n) / cells.n.sum()
    cut = np.arange(cells.baseline_cells, len(cells.n))
    cut = cut[(1.0 - reached[cut - 1] >= _LEAST_AFTER - 1e-9) | (cut == cut[0])]
    steps = np.arange(len(cells.n)) >= cut[:, None]
    slopes = np.array([cells.x, reached - 0.5 * cells.n / cells.n.sum(), np.exp(cells.x)])
    mean = curve.mean().clip(_LEAST, _MOST)
    weight = cells.n / (curve.dispersion * mean * (1.0 - mean))
    score = cells.s / cells.n

    def evidence(shapes: Floats) -> float:
        centred = shapes - (shapes @ weight)[:, None] / weight.sum()
        spread = np.maximum(np.square(centred) @ weight, 1e-12)
        fall = np.maximum(-centred @ (weight * score), 0.0)
        explained = np.square(fall) / spread
        most = float(explained.max())
        return most + 2.0 * float(np.log(np.exp(0.5 * (explained - most)).mean()))

    return evidence(steps.astype(np.float64)) - evidence(slopes)
