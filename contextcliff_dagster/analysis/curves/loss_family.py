"""The family of losses: steps, ramps and dips, each with its onset, its end and its depth.

Members are mu(x) = m0 h(x), x = log tokens, with

    step    h = 1 - d from the onset on
    ramp    h = 1 - d clip((x - onset) / (end - onset), 0, 1)
    dip     h = 1 - d from the onset to the end, 1 outside

and d = 0 a flat curve. Every member's plateau m0 is profiled out, all members of a kind at once.
The fit is the quasi-binomial likelihood of summed scores, l = sum S log mu + (N - S) log(1 - mu),
scaled by a dispersion that is robust to the correlation of questions on one document (Liang and
Zeger 1986). Onsets lie beyond the baseline region: within it no loss could be told from a lower
plateau.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.cells import BASELINE_SHARE, merge_cells
from contextcliff_dagster.analysis.curves.logistic_family import cluster_dispersion
from contextcliff_dagster.analysis.curves.profiled_plateau import profiled, two_levels
from contextcliff_dagster.analysis.statistics.intervals import deviance_quantile
from contextcliff_dagster.analysis.statistics.overdispersion import known_dispersion

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.cells import Cells
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints


RAMP_KNOTS = 36
"""Places, at equal steps of rank, where ramps begin and end; steps and dips do so at any cell."""
LEAST_DIP, DIP_SHARE = 6, 0.12
"""A dip holds at least so many of the examples, and this share: nothing refutes a shorter one."""
DIP_PENALTY = 3.0
"""Deviance by which a dip must explain the scores better than a loss that stays: it has one place
more, and where there is none the best of all dips follows noise."""
_SHALLOWER = (1 / 3, 2 / 3)
_DEEPER = 8
_DEEPEST = 0.98


@dataclass(frozen=True)
class Members:
    """Members of one kind; places of length P, fits (P, depths).

    Attributes:
        onset, end: log tokens (P); equal for steps.
        first: the first cell beyond the onset (P).
        depths: shares of the plateau lost (depths).
        plateau: m0 (P, depths). q: quasi log-likelihood over the dispersion (P, depths).
        penalty: deviance by which members of this kind must explain the scores better.
    """

    onset: Floats
    end: Floats
    first: Ints
    depths: Floats
    plateau: Floats
    q: Floats
    penalty: float = 0.0

    @property
    def weighed(self) -> Floats:
        """``q`` less half of the penalty: what members of different kinds are compared by."""
        return self.q - 0.5 * self.penalty

    @property
    def best(self) -> tuple[int, int]:
        """Place and depth of the likeliest member."""
        place, depth = np.unravel_index(int(np.argmax(self.q)), self.q.shape)
        return int(place), int(depth)


@dataclass(frozen=True)
class Losses:
    """The whole family fitted to one sample.

    Attributes:
        steps, ramps, dips: by kind. flat_q: of the curve without a loss.
        dispersion: at the likeliest member. degrees: of freedom it was estimated with, ``None``
            where it is known.
    """

    cells: Cells
    steps: Members
    ramps: Members
    dips: Members
    flat_q: float
    dispersion: float
    degrees: int | None

    @property
    def kinds(self) -> tuple[Members, Members, Members]:
        return self.steps, self.ramps, self.dips

    @cached_property
    def best_q(self) -> float:
        """Quasi log-likelihood of the likeliest member."""
        return max(self.flat_q, *(float(kind.weighed.max()) for kind in self.kinds if kind.q.size))

    def least_deviance(self, at_most: float) -> float:
        """Twice the log-likelihood ratio of the likeliest member to one that loses ``at_most``."""
        shallow = [
            float(kind.weighed[:, kind.depths <= at_most + 1e-9].max())
            for kind in self.kinds
            if kind.q.size
        ]
        return 2.0 * (self.best_q - max(self.flat_q, *shallow))

    def quantile(self, confidence: float) -> float:
        """What a deviance of one parameter stays within."""
        return deviance_quantile(confidence, self.degrees)


def depths_for(tolerance: float) -> Floats:
    """Two depths below the tolerance, then evenly in the log of what remains, down to 2%."""
    remains = np.geomspace(1.0 - tolerance, 1.0 - _DEEPEST, _DEEPER)
    return np.concatenate([np.array(_SHALLOWER) * tolerance, 1.0 - remains])


def fit_losses(
    documents: Documents, tolerance: float, baseline_share: float = BASELINE_SHARE
) -> Losses:
    """Fit the family, its depths laid around ``tolerance``, to at least two distinct lengths."""
    cells = merge_cells(documents, baseline_share=baseline_share)
    count, depths = len(cells.n), depths_for(tolerance)
    starts = np.arange(min(cells.baseline_cells, count - 1), count)
    edges = np.append(cells.edges, cells.x[-1])  # edges[i - 1] lies right before cell i

    def members(first: Ints, last: Ints, fitted: tuple[Floats, Floats]) -> Members:
        return Members(edges[first - 1], edges[last - 1], first, depths, *fitted)

    steps = members(starts, starts, _two_levels(cells, starts, np.full(len(starts), count), depths))
    i, j = _pairs(starts, starts)
    before = np.concatenate([[0.0], np.cumsum(cells.n)])
    wide = before[j] - before[i] >= max(LEAST_DIP, DIP_SHARE * before[-1]) - 1e-9
    i, j = i[wide], j[wide]
    dips = replace(members(i, j, _two_levels(cells, i, j, depths)), penalty=DIP_PENALTY)
    knots = np.linspace(0, len(starts) - 1, RAMP_KNOTS).round().astype(np.int64)
    knots = starts[np.unique(knots)]
    i, j = _pairs(knots, np.append(knots, count))
    width = np.maximum(edges[j - 1] - edges[i - 1], 1e-9)[:, None]
    lost = np.clip((cells.x[None, :] - edges[i - 1][:, None]) / width, 0.0, 1.0)
    ramps = members(i, j, profiled(lost, depths, cells.n, cells.s, (i, j)))
    none = np.array([count])
    flat = float(_two_levels(cells, none, none, np.zeros(1))[1][0, 0])
    return _scaled(documents, cells, steps, ramps, dips, flat)


def _pairs(firsts: Ints, lasts: Ints) -> tuple[Ints, Ints]:
    i, j = (side.ravel() for side in np.meshgrid(firsts, lasts, indexing="ij"))
    return i[i < j], j[i < j]


def _two_levels(cells: Cells, first: Ints, last: Ints, depths: Floats) -> tuple[Floats, Floats]:
    """m0 and likelihood where cells ``first`` to ``last`` - 1 have lost each depth: (P, depths)."""
    cum_n, cum_s = (np.concatenate([[0.0], np.cumsum(of)]) for of in (cells.n, cells.s))
    inside_n, inside_s = cum_n[last] - cum_n[first], cum_s[last] - cum_s[first]
    return two_levels(inside_n, inside_s, float(cum_n[-1]), float(cum_s[-1]), depths)


def _scaled(
    documents: Documents, cells: Cells, steps: Members, ramps: Members, dips: Members, flat: float
) -> Losses:
    """The family with likelihoods over the dispersion at its likeliest member."""
    kinds = (steps, ramps, dips)
    best = max((kind for kind in kinds if kind.q.size), key=lambda kind: float(kind.weighed.max()))
    place, depth = best.best
    x = np.log(documents.length_tokens)
    onset, end = best.onset[place], best.end[place]
    if best is ramps:
        lost = np.clip((x - onset) / max(end - onset, 1e-9), 0.0, 1.0)
    else:
        lost = ((x >= onset) & ((x < end) | (best is steps))).astype(np.float64)
    mean = best.plateau[place, depth] * (1.0 - best.depths[depth] * lost)
    phi = cluster_dispersion(documents, mean)
    degrees = None if known_dispersion(documents) else max(len(documents.n) - 3, 1)

    def over(kind: Members) -> Members:
        return replace(kind, q=kind.q / phi)

    return Losses(cells, over(steps), over(ramps), over(dips), flat / phi, phi, degrees)
