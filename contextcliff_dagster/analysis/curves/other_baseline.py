"""A curve held against the baseline of another: what is lost of what was scored elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.falling_curve import FallingCurve
    from contextcliff_dagster.contracts.arrays import Floats


@dataclass(frozen=True, eq=False)
class LossAgainst:
    """Losses of ``curve`` as shares of the baseline of ``other``.

    The two are taken as independent. Curves of the same documents move together, so that what is
    lost is known better than this says.
    """

    curve: FallingCurve
    other: FallingCurve

    def chance_lost(self, share: float) -> Floats:
        """Chance that the mean is at most 1 - ``share`` of that baseline, in each cell (G)."""
        of_baseline = self.other.posterior
        least = self.curve.posterior.mean / max(1.0 - share, 1e-9)
        chance = of_baseline.baseline_chance
        reached = np.cumsum(chance) - 0.5 * chance
        below = np.interp(least, of_baseline.baseline, reached, left=0.0, right=1.0)
        lost: Floats = self.curve.posterior.chance @ (1.0 - below)
        return np.maximum.accumulate(lost)

    def longest_safe(self, share: float, chance: float) -> int:
        """Longest length (tokens) up to which the chance of that loss is at most ``chance``.

        0 where it is larger at the shortest length already.
        """
        likely = np.flatnonzero(self.chance_lost(share) > chance)
        last = int(likely[0]) if len(likely) else len(self.curve.cells.n)
        return int(self.curve.cells.high[last - 1]) if last else 0

    def lost_at(self, share: float, confidence: float) -> tuple[int | None, int | None, int | None]:
        """Length (tokens) at which that share is lost, with its interval.

        None: not within the measured lengths. The shortest length: from there on, or earlier.
        """
        cells, tail = self.curve.cells, 0.5 * (1.0 - confidence)
        starts = np.exp(np.concatenate([np.log(cells.low[:1]), cells.edges]))
        lost = self.chance_lost(share)

        def first(chance: float) -> int | None:
            likely = np.flatnonzero(lost > chance)
            return round(float(starts[likely[0]])) if len(likely) else None

        return first(0.5), first(tail), first(1.0 - tail)
