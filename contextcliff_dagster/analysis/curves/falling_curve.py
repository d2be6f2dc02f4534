"""The fitted curve: what the scores say of the mean at every length, and all that is read from it.

Caps at every tolerance, where a share of the baseline is lost, the drop, its midpoint, the drawn
line and its band come from one posterior (`falling_process`), so that they cannot contradict each
other: a chance that grows with length and shrinks with the share that is lost.

Neighbouring documents summed to cells, on which all curves are fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.falling_process import (
    LEVELS,
    falling_posterior,
    kept_of,
    part_reached,
)
from contextcliff_dagster.analysis.statistics.intervals import chi_square_quantile
from contextcliff_dagster.analysis.statistics.length_at_loss import rank_groups
from contextcliff_dagster.analysis.statistics.overdispersion import local_dispersion
from contextcliff_dagster.contracts.results.cliffs import CurvePoint

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.falling_process import FallingPosterior
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints


MAX_CELLS = 200
"""Cells of neighbouring documents: finer ones cost time and move a cap by under 0.5% of ranks."""
BASELINE_SHARE = 0.15
"""Share of the samples, shortest first, that is the baseline; no decline is placed inside it."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Neighbouring documents summed; all arrays of length G, shortest first.

    ``x`` is the mean log length, ``low`` and ``high`` the shortest and longest length in tokens,
    ``baseline_share`` the share of the samples that is the baseline.
    """

    x: Floats
    low: Ints
    high: Ints
    n: Floats
    s: Floats
    baseline_share: float = BASELINE_SHARE

    @cached_property
    def edges(self) -> Floats:
        """Log lengths between neighbouring cells (G - 1)."""
        return 0.5 * (np.log(self.high[:-1]) + np.log(self.low[1:]))

    @cached_property
    def baseline_cells(self) -> int:
        """How many cells make the baseline region (at least one)."""
        reached = np.searchsorted(np.cumsum(self.n), self.baseline_share * self.n.sum() - 1e-9)
        return int(min(reached + 1, len(self.n)))


def merge_cells(
    documents: Documents, at_most: int = MAX_CELLS, baseline_share: float = BASELINE_SHARE
) -> Cells:
    """Sum documents to at most ``at_most`` cells of similar n; equal lengths stay together."""
    lengths, group = np.unique(documents.length_tokens, return_inverse=True)
    n = np.bincount(group, weights=documents.n)
    s = np.bincount(group, weights=documents.s)
    cell = rank_groups(n, at_most) if len(lengths) > at_most else np.arange(len(lengths))
    _, first = np.unique(cell, return_index=True)
    last = np.append(first[1:], len(lengths)) - 1
    total: Floats = np.add.reduceat(n, first)
    x = np.add.reduceat(n * np.log(lengths), first) / total
    summed = np.add.reduceat(s, first)
    return Cells(x, lengths[first], lengths[last], total, summed, baseline_share)


LEAST_DROP = 0.10
"""The place of a drop is that of one by at least so much."""
_INSIDE = 0.2
_POINTS = 60
_TAIL = 0.25
"""Of the error rate, beyond each end of the drop's interval and of the drawn band: at a half they
held the truth in .84 to .98 of data sets (benchmarks/graded_coverage.py, curve_bands.py)."""


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


@dataclass(frozen=True, eq=False)
class FallingCurve:
    """The posterior over the cells of one sample; ``dispersion`` of each cell (G)."""

    documents: Documents
    cells: Cells
    dispersion: Floats
    posterior: FallingPosterior

    @property
    def beyond_baseline(self) -> bool:
        """Whether any cell lies beyond the baseline region; else nothing can be read."""
        return self.cells.baseline_cells < len(self.cells.n)

    @cached_property
    def tail(self) -> Tail:
        cells = self.cells
        phi = self.dispersion[np.searchsorted(cells.high, self.documents.length_tokens)]
        return tail_of(self.documents, phi, int(cells.high[cells.baseline_cells - 1]))

    @property
    def baseline_mean(self) -> float:
        """The baseline's mean, by the posterior."""
        return float(self.posterior.baseline @ self.posterior.baseline_chance)

    def supported(
        self, share: float, confidence: float, baseline: float | None = None
    ) -> int | None:
        """The longest length (tokens) that the answers beyond it allow to pass; ``None``: any.

        Args:
            share: of the baseline, that is not to be lost.
            baseline: its mean; by default that of the posterior.
        """
        baseline = self.baseline_mean if baseline is None else baseline
        least = kept_of(baseline, 1.0 - share, self.documents.chance)
        return self.tail.supported(least, confidence)

    def chance_lost(self, share: float) -> Floats:
        """Chance that at least ``share`` of the baseline is lost, per cell beyond it (G - B)."""
        return self.posterior.chance_lost(share)

    def first_cell(self, share: float, chance: float) -> int:
        """The first cell in which ``share`` is lost with more than ``chance``; G where in none."""
        likely = np.flatnonzero(self.chance_lost(share) > chance)
        return self.cells.baseline_cells + int(likely[0]) if len(likely) else len(self.cells.n)

    def drop(self, confidence: float) -> Estimate:
        """What is lost of the baseline at the longest length: the median and an interval."""
        at_most = np.cumsum(self.posterior.kept[-1, ::-1])
        tail = _TAIL * (1.0 - confidence)
        low, value, high = np.interp([1.0 - tail, 0.5, tail], at_most, LEVELS[::-1])
        # A drop between two levels is known to half a step at best.
        width = 0.5 * np.interp([low, high], LEVELS[::-1], np.abs(np.gradient(LEVELS))[::-1])
        low, high = min(low + width[0], 1.0), max(high - width[1], 0.0)
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

    @cached_property
    def _half_reached(self) -> Floats:
        return part_reached(self.posterior, 0.5, LEAST_DROP)

    @property
    def drop_may_be_in_baseline(self) -> bool:
        """Half of the drop may have happened before the first cell beyond the baseline region."""
        several = self.cells.low[0] < self.cells.high[self.cells.baseline_cells - 1]
        return bool(several and self._half_reached[0] > _INSIDE)

    def drop_place(self, confidence: float) -> Estimate:
        """Length (tokens) at which half of the drop has happened, within the measured lengths."""
        tail = 0.5 * (1.0 - confidence)
        first = self.cells.baseline_cells
        at = np.exp(self.cells.edges)[first - 1 :]
        before, after = self.cells.high[first - 1 : -1], self.cells.low[first:]

        def cell(least: float) -> int:
            return min(int(np.searchsorted(self._half_reached, least)), len(after) - 1)

        value = at[cell(0.5)]
        # One document whose score is off by itself must not part the interval from the place.
        low = before[max(cell(tail) - 1, 0)]
        high = after[min(cell(1.0 - tail) + 1, len(after) - 1)]
        return Estimate(float(value), float(min(low, value)), float(max(high, value)))

    def mean(self, quantile: float | None = None) -> Floats:
        """The mean score in every cell (G), or a quantile of what it may be."""
        values, chance = self.posterior.mean, self.posterior.chance
        if quantile is None:
            return chance @ values
        reached = (np.cumsum(chance, axis=1) < quantile).sum(axis=1)
        out: Floats = values[np.minimum(reached, len(values) - 1)]
        return out


def fit_falling_curve(documents: Documents, baseline_share: float) -> FallingCurve:
    """The curve of these documents.

    >>> lengths = np.arange(100, 4_100, 100)
    >>> right = np.where(lengths <= 2_000, 1.0, 0.0)
    >>> from contextcliff_dagster.analysis.records.samples import Documents
    >>> curve = fit_falling_curve(Documents(lengths, np.ones(40), right, True), 0.15)
    >>> round(curve.lost_at(0.3, 0.95).value)
    2049
    """
    cells = merge_cells(documents, baseline_share=baseline_share)
    phi = local_dispersion(documents, cells.high)
    posterior = falling_posterior(
        cells.n, cells.s, phi, cells.baseline_cells, guessing=documents.chance
    )
    return FallingCurve(documents, cells, phi, posterior)


def fitted_mean(curve: FallingCurve, tokens: Ints, dip: tuple[int, int] | None = None) -> Floats:
    """The mean score at lengths ``tokens`` (P): the curve, or the means around and in a dip.

    ``dip``: its first length and the first after it.
    """
    if dip is None:
        return np.interp(np.log(tokens), curve.cells.x, curve.mean(0.5))
    return _window_bounds(curve, tokens, dip, 0.0)[0]


def curve_points(
    curve: FallingCurve, confidence: float, dip: tuple[int, int] | None = None
) -> list[CurvePoint]:
    """The ``curve`` of ``cliffs.json``: at each length the median and an interval of the mean."""
    cells = curve.cells
    low, high = int(cells.low[0]), int(cells.high[-1])
    tokens = np.unique(np.geomspace(low, high, _POINTS).round().astype(np.int64))
    if dip is not None:
        lines = _window_bounds(curve, tokens, dip, chi_square_quantile(confidence))
    else:
        tail, at = _TAIL * (1.0 - confidence), np.log(tokens)
        middle, lower, upper = (
            np.interp(at, cells.x, curve.mean(q)) for q in (0.5, tail, 1.0 - tail)
        )
        lines = middle, np.minimum(lower, curve.tail.lower(tokens, tail)), upper
    return [
        CurvePoint(int(t), *(min(max(float(v), 0.0), 1.0) for v in of))
        for t, *of in zip(tokens, *lines, strict=True)
    ]


def _window_bounds(
    curve: FallingCurve, tokens: Ints, dip: tuple[int, int], z2: float
) -> tuple[Floats, Floats, Floats]:
    """Mean of the cells before, in and beyond ``dip`` with Wilson's limits, at ``tokens`` (P)."""
    of_cell = np.searchsorted(dip, curve.cells.low, side="right")
    n = np.bincount(of_cell, curve.cells.n, 3)
    s = np.bincount(of_cell, curve.cells.s, 3)
    phi = np.bincount(of_cell, curve.cells.n * curve.dispersion, 3)
    mean, trials = s / np.maximum(n, 1e-9), np.maximum(n**2 / np.maximum(phi, 1e-9), 1e-9)
    middle = (mean + 0.5 * z2 / trials) / (1.0 + z2 / trials)
    reach = np.sqrt(z2 * mean * (1.0 - mean) / trials + (0.5 * z2 / trials) ** 2)
    reach /= 1.0 + z2 / trials
    at = np.searchsorted(dip, tokens, side="right")
    return mean[at], (middle - reach)[at], (middle + reach)[at]


ANSWERS, SHARE = 40.0, 0.2
"""So many of the longest, counted over their dispersion, and at most this share of all. What is
expected of a curve certifies no more than them (benchmarks/accept.py); a drop before them is for
the posterior to place."""


@dataclass(frozen=True, eq=False)
class Tail:
    """What the answers on the longest documents say by themselves, whatever is expected of a curve.

    A drop within the last few per cent of the answers is unlikely before anything is measured, so
    that a posterior excludes it with hardly an answer there: one right answer at 64,000 tokens
    would carry a cap from 4,000 to 64,000. A length near the end is therefore passed only where the
    answers at or beyond it refute the loss alone.

    Attributes:
        low: lengths of the last answers, ascending, tokens (T).
        before: the longest scored length before each (T).
        n, s: answers at or beyond each and their summed scores, over the dispersion (T).
    """

    low: Ints
    before: Ints
    n: Floats
    s: Floats

    def supported(self, mean: float, confidence: float) -> int | None:
        """The longest length (tokens) before the first that is not supported; ``None``: all are.

        A length is supported where the answers at or beyond it refute that their mean is at most
        ``mean``: by the binomial tail, one-sided, continued to fractions. From the short side, each
        at full level, up to the first that fails: so no chance adds up over the lengths (Maurer,
        Hothorn and Lehmacher 1995, Biometrie in der chemisch-pharmazeutischen Industrie 6, 3-18).
        """
        from scipy.special import betainc

        wrong = np.maximum(self.n - self.s, 0.0)
        as_many = betainc(np.maximum(self.s, 1e-9), wrong + 1.0, mean)
        failed = np.flatnonzero(as_many > 1.0 - confidence)
        return int(self.before[failed[0]]) if len(failed) else None

    def lower(self, tokens: Ints, quantile: float) -> Floats:
        """Lower limit of the mean of the answers at or beyond ``tokens`` (P); 1 before the tail."""
        from scipy.special import betaincinv

        wrong = np.maximum(self.n - self.s, 0.0)
        limit = betaincinv(np.maximum(self.s, 1e-9), wrong + 1.0, quantile)
        at = np.searchsorted(np.append(self.before[:1], self.low), tokens)
        return np.append(1.0, np.append(np.minimum.accumulate(limit), 0.0))[at]


def tail_of(documents: Documents, dispersion: Floats, after: int) -> Tail:
    """The tail of ``documents`` of length (tokens) beyond ``after``; ``dispersion`` of each (D)."""
    lengths, start = np.unique(documents.length_tokens, return_index=True)
    worth = np.add.reduceat(documents.n / dispersion, start)
    right = np.add.reduceat(documents.s / dispersion, start)
    n, s = np.cumsum(worth[::-1])[::-1], np.cumsum(right[::-1])[::-1]
    beyond = np.searchsorted(lengths, after, side="right")
    worth_seen = min(ANSWERS, SHARE * float(n[0]))
    kept = slice(int(max(beyond, np.searchsorted(-n, -worth_seen - 1e-9))), None)
    return Tail(lengths[kept], np.append(0, lengths[:-1])[kept], n[kept], s[kept])
