"""Is a loss sudden or spread over the whole range?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.curves.logistic_family import log_likelihood

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.logistic_family import DeclineFit

Shape = Literal["step", "slope", "unclear"]

_MARGIN = 2.0
_LEVELS = 41


def shape_of(fit: DeclineFit) -> Shape:
    """The best step of the family against the best straight line in log length.

    Deviances (2 x quasi log-likelihood / dispersion) less than 2 apart cannot tell them apart.
    """
    cells = fit.cells
    step = float(fit.q[fit.width == 0].max())
    levels = np.linspace(0.0, 1.0, _LEVELS)
    first, last = (side.ravel() for side in np.meshgrid(levels, levels, indexing="ij"))
    share = (cells.x - cells.x[0]) / max(float(cells.x[-1] - cells.x[0]), 1e-9)
    lines = first[:, None] * (1.0 - share) + last[:, None] * share
    line = float(log_likelihood(np.ones(len(lines)), lines, cells).max()) / fit.dispersion
    difference = 2.0 * (step - line)
    if abs(difference) < _MARGIN:
        return "unclear"
    return "step" if difference > 0 else "slope"
