"""The fitted curve with its band, and where and how far it falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.confidence_band import curve_limits
from contextcliff_dagster.analysis.curves.logistic_family import retained_at
from contextcliff_dagster.analysis.curves.permutation_scan import SPLIT_LIMIT
from contextcliff_dagster.analysis.statistics.intervals import chi_square_quantile
from contextcliff_dagster.contracts.results.cliffs import CurvePoint

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.cells import Cells
    from contextcliff_dagster.analysis.curves.logistic_family import DeclineFit
    from contextcliff_dagster.contracts.arrays import Floats, Ints

_POINTS = 60
_LOCATION_FACTOR = SPLIT_LIMIT / chi_square_quantile(0.95)
_DROP_FACTOR = 1.4
"""The place of the fall is free and chosen where the drop looks largest: at the plain quantile 95%
intervals of the drop hold the truth in 87% of samples (benchmarks/graded_coverage.py)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float

    @property
    def tokens(self) -> tuple[int, int, int]:
        """The three as whole tokens, the interval rounded outwards."""
        return round(self.value), int(self.low), int(np.ceil(self.high))


@dataclass(frozen=True, slots=True)
class Fall:
    """Where and how far the curve falls over the measured lengths.

    ``location`` is the length (tokens) at which half of the fall from the baseline to the longest
    length has happened, ``drop`` the whole fall relative to the baseline, ``complete_tokens`` the
    length at which 90% of it has.
    """

    location: Estimate
    drop: Estimate
    complete_tokens: float


def curve_band(
    fit: DeclineFit, confidence: float, dip: tuple[int, int] | None, visible: bool
) -> list[CurvePoint]:
    """The ``curve`` of ``cliffs.json``: the best member, and a band that holds the whole curve.

    The band is simultaneous over all lengths and assumes no shape (``band``); where the member's
    own shape is refuted it is held inside. ``dip``, first and last length of a window: the mean is
    that of the cells before, in and after it. Without a ``visible`` loss it is that of all cells;
    the best member would show the noise of the longest few.
    """
    cells = fit.cells
    low, high = int(cells.low[0]), int(cells.high[-1])
    tokens = np.unique(np.geomspace(low, high, _POINTS).round().astype(np.int64))
    mean = np.full(len(tokens), cells.s.sum() / cells.n.sum())
    if visible:
        mean = fitted_mean(fit, tokens, dip)
    lower, upper = curve_limits(
        cells, tokens, fit.dispersion, confidence, fit.degrees, recovers=dip is not None
    )
    return [
        CurvePoint(int(t), *(float(min(max(v, 0.0), 1.0)) for v in of))
        for t, *of in zip(tokens, mean.clip(lower, upper), lower, upper, strict=True)
    ]


def fitted_mean(fit: DeclineFit, tokens: Ints, dip: tuple[int, int] | None = None) -> Floats:
    """The best member at lengths ``tokens`` (P); with ``dip`` the means around and in it."""
    if dip is not None:
        return _window_means(fit.cells, tokens, *dip)
    best = np.array([fit.best])
    out: Floats = fit.plateau[fit.best] * retained_at(fit, best, np.log(tokens))[0]
    return out


def _window_means(cells: Cells, tokens: Ints, first: int, end: int) -> Floats:
    """Mean of the cells before ``first``, from there to below ``end``, and beyond (P)."""
    edges = np.array([first, end])
    of_cell = np.searchsorted(edges, cells.low, side="right")
    n = np.bincount(of_cell, weights=cells.n, minlength=3)
    s = np.bincount(of_cell, weights=cells.s, minlength=3)
    return (s / np.maximum(n, 1e-9))[np.searchsorted(edges, tokens, side="right")]


def fall_of(fit: DeclineFit, confidence: float) -> Fall | None:
    """The fall of the best member with profile-likelihood intervals; ``None`` where it has none."""
    limit = fit.limit(confidence)
    within = int((fit.deviance <= limit * _LOCATION_FACTOR).sum())
    members = np.argsort(fit.deviance, kind="stable")[: max(1, within)]  # the best first
    near = fit.deviance[members] <= limit * _DROP_FACTOR
    ends = np.array([np.log(fit.cells.low[0]), np.log(fit.cells.high[-1])])
    end = retained_at(fit, members, ends)[:, 1]
    start = fit.baseline[members]
    drop = 1.0 - end / start
    if drop[0] <= 1e-6:
        return None
    half = _length_where(fit, members, 0.5 * (start + end))
    complete = _length_where(fit, members[:1], start[:1] - 0.9 * (start[:1] - end[:1]))
    falling = (drop > 1e-6) & np.isfinite(half)
    half = np.clip(half, ends[0], ends[1])
    inside = half[falling]
    # Between two depths of the grid lies the true end: outwards, or intervals were too short.
    depths = np.unique(fit.depth)
    outwards = float(np.diff(depths).min()) if len(depths) > 1 else 0.0
    least, most = float(drop[near].min()) - outwards, float(drop[near].max()) + outwards
    return Fall(
        Estimate(*(float(np.exp(v)) for v in (half[0], inside.min(), inside.max()))),
        Estimate(float(drop[0]), max(least, 0.0), min(most, 1.0)),
        float(np.exp(np.clip(complete[0], *ends))),
    )


def _length_where(fit: DeclineFit, members: Ints, level: Floats) -> Floats:
    """Log length at which h of each member reaches ``level``; NaN where it never does."""
    depth = fit.depth[members]
    share = (1.0 - level) / np.where(depth > 0, depth, np.nan)
    share = np.where((share > 0) & (share < 1), share, np.nan)
    return fit.centre[members] + fit.width[members] * np.log(share / (1.0 - share))
