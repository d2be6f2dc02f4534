"""A fitted curve that only falls: what the scores say of the mean, and what is read from it.

Not in reports yet, which read `fitted_curve`: benchmarks/falling_caps.py compares the two caps.
Caps at every tolerance, where a share of the baseline is lost, the drop, its midpoint, the drawn
line and its band come from one posterior (`falling_process`), so that they cannot contradict each
other: a chance that grows with length and shrinks with the share that is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.cells import merge_cells
from contextcliff_dagster.analysis.curves.falling_process import LEVELS, falling_posterior
from contextcliff_dagster.analysis.curves.fitted_curve import Estimate
from contextcliff_dagster.analysis.statistics.overdispersion import local_dispersion

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.cells import Cells
    from contextcliff_dagster.analysis.curves.falling_process import FallingPosterior
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.contracts.arrays import Floats


@dataclass(frozen=True, eq=False)
class FallingCurve:
    """The posterior over the cells of one sample; ``dispersion`` of each cell (G)."""

    cells: Cells
    dispersion: Floats
    posterior: FallingPosterior

    def chance_lost(self, share: float) -> Floats:
        """Chance that at least ``share`` of the baseline is lost, per cell beyond it (G - B)."""
        at_most = np.cumsum(self.posterior.kept[:, ::-1], axis=1)
        ascending = LEVELS[::-1]
        lower = int(np.clip(np.searchsorted(ascending, 1.0 - share) - 1, 0, len(LEVELS) - 2))
        on = (1.0 - share - ascending[lower]) / (ascending[lower + 1] - ascending[lower])
        on = min(max(on, 0.0), 1.0)
        chance: Floats = (1.0 - on) * at_most[:, lower] + on * at_most[:, lower + 1]
        return chance

    def first_cell(self, share: float, chance: float) -> int:
        """The first cell in which ``share`` is lost with more than ``chance``; G where in none."""
        likely = np.flatnonzero(self.chance_lost(share) > chance)
        return self.cells.baseline_cells + int(likely[0]) if len(likely) else len(self.cells.n)

    def drop(self, confidence: float) -> Estimate:
        """What is lost of the baseline at the longest length: the median and an interval."""
        at_most = np.cumsum(self.posterior.kept[-1, ::-1])
        tail = 0.5 * (1.0 - confidence)
        low, value, high = np.interp([1.0 - tail, 0.5, tail], at_most, LEVELS[::-1])
        return Estimate(1.0 - float(value), 1.0 - float(low), 1.0 - float(high))

    def lost_at(self, share: float, confidence: float) -> Estimate:
        """Length (tokens) at which ``share`` is lost; infinite where it may never be."""
        tail = 0.5 * (1.0 - confidence)
        value, low, high = (self.first_cell(share, at) for at in (0.5, tail, 1.0 - tail))
        between = np.append(np.exp(self.cells.edges), np.inf)
        after = np.append(self.cells.low, np.inf)
        return Estimate(
            float(between[value - 1]), float(self.cells.high[low - 1]), float(after[high])
        )

    def midpoint(self, confidence: float) -> Estimate:
        """Length (tokens) at which half of the drop has happened, within the measured lengths."""
        drop, longest = self.drop(confidence), float(self.cells.high[-1])
        value, low, high = (
            min(at, longest)
            for at in (
                self.lost_at(0.5 * drop.value, confidence).value,
                self.lost_at(0.5 * max(drop.low, 0.0), confidence).low,
                self.lost_at(0.5 * drop.high, confidence).high,
            )
        )
        return Estimate(value, min(low, value), max(high, value))

    def mean(self, quantile: float | None = None) -> Floats:
        """The mean score in every cell (G), or a quantile of what it may be."""
        values, chance = self.posterior.mean, self.posterior.chance
        if quantile is None:
            return chance @ values
        reached = (np.cumsum(chance, axis=1) < quantile).sum(axis=1)
        out: Floats = values[np.minimum(reached, len(values) - 1)]
        return out


def fit_falling_curve(documents: Documents, baseline_share: float) -> FallingCurve:
    """The curve of these documents."""
    cells = merge_cells(documents, baseline_share=baseline_share)
    phi = local_dispersion(documents, cells.high)
    posterior = falling_posterior(cells.n, cells.s, phi, cells.baseline_cells)
    return FallingCurve(cells, phi, posterior)
