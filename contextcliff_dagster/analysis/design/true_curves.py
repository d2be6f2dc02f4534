"""Planted curves for simulation, and the window of lengths that contains a loss.

A planted curve is a model's mean score over length, for simulation: a function of the *share of the
samples* that are shorter (u, 0..1), so that the same plan fits any corpus. `place` .4 means that
two fifths of the samples are shorter. Logistic ramps are in log length, like the curves of real
models. A calibration plants random curves (`draw_curve`).

A window shows where among the available lengths a loss is first reached (`locate_loss`). The
lengths of all available examples are cut into about 100 cells of equal rank, and the scores so far
give the posterior of `falling_curve.falling_posterior` over them. It covers the same curves that
determine the cap, including stairs and ramps. Cells without answers take their information from
their neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.statistics.falling_curve import (
    BASELINE_SHARE,
    draw_curves,
    falling_posterior,
    kept_of,
)
from contextcliff_dagster.analysis.statistics.intervals import local_dispersion, rank_groups

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records import Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints

Shape = Literal["flat", "step", "dip", "ramp", "stairs", "decay", "logistic"]


@dataclass(frozen=True, slots=True)
class Curve:
    """A planted mean score over length.

    Attributes:
        shape: ``flat``; ``step`` down at ``place``; ``dip`` from ``place`` to ``end``; ``ramp``,
            linear in the fraction of samples from ``place`` to ``end``; ``stairs``, a third of the
            drop at either and in the middle; ``decay``, by exp(-share / place); ``logistic`` in log
            length around ``place`` with ``end`` the place where .9 of the drop has happened.
        baseline: mean before any loss, 0..1.
        drop: fraction of the baseline lost at the deepest point.
        place, end: shares of the samples, 0..1.
        noisy_from: scores from this share of the samples up to ``place`` are 0 or 1 with unchanged
            mean (a zone of inflated variance before the fall); 1: no such zone.
        stretch: factor by which documents from ``place`` on are longer than drawn.
        chance: mean score of guessing; losses are relative to the mean above it.
    """

    shape: Shape
    baseline: float
    drop: float = 0.0
    place: float = 1.0
    end: float = 1.0
    noisy_from: float = 1.0
    stretch: float = 1.0
    chance: float = 0.0

    def mean(self, share: Floats, log_length: Floats | None = None) -> Floats:
        """Return the true mean for samples with the given share of shorter ones (any array shape).

        A logistic curve depends on ``log_length`` of the same samples; the others on ``share``.
        """
        lost: Floats
        if self.shape == "step":
            lost = (share >= self.place).astype(np.float64)
        elif self.shape == "dip":
            lost = ((share >= self.place) & (share < self.end)).astype(np.float64)
        elif self.shape == "ramp":
            width = max(self.end - self.place, 1e-9)
            lost = np.clip((share - self.place) / width, 0.0, 1.0)
        elif self.shape == "stairs":
            cuts = (self.place, 0.5 * (self.place + self.end), self.end)
            lost = np.searchsorted(cuts, share, side="right") / 3.0
        elif self.shape == "decay":
            lost = np.expm1(-share / self.place) / np.expm1(-1.0 / self.place)
        elif self.shape == "logistic":
            x = share if log_length is None else log_length
            centre, late = np.interp([self.place, self.end], share, x)
            width = max(float(late - centre), 1e-9) / np.log(9.0)
            lost = 1.0 / (1.0 + np.exp(-np.clip((x - centre) / width, -50.0, 50.0)))
        else:
            lost = np.zeros_like(share)
        return kept_of(self.baseline, 1.0 - self.drop * lost, self.chance)

    def first_loss(
        self,
        tolerance: float,
        share: Floats,
        log_length: Floats | None = None,
        baseline_share: float = BASELINE_SHARE,
    ) -> float | None:
        """Return the sample quantile at which the baseline's loss first reaches ``tolerance``.

        The baseline is the true mean of the shortest ``baseline_share`` of the samples (if 0, of
        the very first sample). ``None`` if it never does. ``share``, ``log_length``:
        the whole population, ascending.
        """
        mean = self.mean(share, log_length)
        first = max(int(np.searchsorted(share, baseline_share)), 1)
        least = kept_of(mean[:first].mean(), 1.0 - tolerance, self.chance)
        below = np.flatnonzero(mean <= least + 1e-12)
        return float(share[below[0]]) if len(below) else None


FLAT, STEP, STEPS, RAMP, DIP = "flat", "step", "steps", "ramp", "dip"
STAIRS, DECAY, LOGISTIC, LATE, OUTLIERS = "stairs", "decay", "logistic", "late", "outliers"
ORDER = (
    FLAT, STEP, STEPS, FLAT, RAMP, STEP, FLAT, DIP, STEP, STAIRS,
    FLAT, STEP, DECAY, FLAT, RAMP, FLAT, STEP, STAIRS, STEPS, LOGISTIC, LATE, OUTLIERS,
)  # fmt: skip
"""Kinds of curve to plant, in rotation, so that any number of simulations has this mix."""
KINDS = (FLAT, STEP, STEPS, RAMP, STAIRS, DECAY, LOGISTIC, LATE, OUTLIERS, DIP)
FOUND_DROP = 1.5
"""Drop for which power is reported, in multiples of the tolerance: 45% at 30%."""
_DEEP, _MOST = (7 / 6, 8 / 3), 0.9
"""Range of the other drops, in multiples of the tolerance, and their limit: 35-80% at 30%."""


def drops(kind: str, tolerance: float) -> tuple[float, float]:
    """Return the smallest and the largest drop planted for a kind of curve."""
    if kind == FLAT:
        return 0.0, 0.0
    if kind == STEP:
        return FOUND_DROP * tolerance, FOUND_DROP * tolerance
    if kind in (LOGISTIC, DECAY):
        return 0.8, 0.98
    return _DEEP[0] * tolerance, min(_DEEP[1] * tolerance, _MOST)


def draw_curve(kind: str, baseline: float, tolerance: float, rng: np.random.Generator) -> Curve:
    """Return a random curve: steps at 20-85% of the samples, ramps, stairs and dips from 20-60%.

    Late steps are at 85-99%; outliers are the longest .5-6%, 4 to 100 times as long as drawn.
    """
    drop = float(rng.uniform(*drops(kind, tolerance)))
    place = float(rng.uniform(0.20, 0.85 if kind in (STEP, STEPS) else 0.60))
    if kind == FLAT:
        return Curve("flat", baseline)
    if kind in (STEP, STEPS):
        return Curve("step", baseline, drop, place)
    if kind == LATE:
        return Curve("step", baseline, drop, float(rng.uniform(0.85, 0.99)))
    if kind == OUTLIERS:
        place, stretch = rng.uniform(0.94, 0.995), np.exp(rng.uniform(np.log(4.0), np.log(100.0)))
        return Curve("step", baseline, drop, float(place), stretch=float(stretch))
    if kind == LOGISTIC:  # as in real models: a drop within a factor of two
        width = float(rng.uniform(0.08, 0.25))
        # Its slow start loses small tolerances early; keep that outside the baseline.
        early = width * np.log(drop / tolerance - 1.0) / np.log(9.0)
        place = max(place + 0.1, 0.2 + float(early))
        return Curve("logistic", baseline, drop, place, min(place + width, 0.97))
    if kind in (RAMP, STAIRS):
        shape: Shape = "ramp" if kind == RAMP else "stairs"
        return Curve(shape, baseline, drop, place, place + float(rng.uniform(0.10, 0.40)))
    if kind == DECAY:
        return Curve("decay", baseline, drop, float(rng.uniform(0.15, 0.6)))
    return Curve("dip", baseline, drop, place, place + float(rng.uniform(0.15, 0.30)))


CELLS = 100
_CURVES = 500
_CERTAIN = 1e-4
"""Minimum probability of the cells at either end of a window."""


@dataclass(frozen=True)
class RankCells:
    """The available examples, grouped by length into cells; arrays of length G, shortest first.

    ``low``, ``high``: shortest and longest length in tokens. ``share``: fraction of the examples,
    0..1. ``cost``: mean tokens per example.
    """

    low: Ints
    high: Ints
    share: Floats
    cost: Floats

    @cached_property
    def starts(self) -> Floats:
        """Return the fraction of the examples before each cell, then 1 (G + 1)."""
        return np.concatenate([[0.0], np.cumsum(self.share)])

    def of(self, length_tokens: Ints) -> Ints:
        """Return the cell of each length; a length outside all cells belongs to the nearest."""
        index = np.searchsorted(self.high, length_tokens)
        return np.minimum(index, len(self.high) - 1)


def rank_cells(length_tokens: Ints, at_most: int = CELLS) -> RankCells:
    """Return cells of nearly equal size, by length in tokens; equal lengths share a cell.

    Raises:
        ValueError: ``length_tokens`` is empty.
    """
    if not len(length_tokens):
        raise ValueError("no length to cut into cells")
    lengths, counts = np.unique(length_tokens, return_counts=True)
    _, first = np.unique(rank_groups(counts, at_most), return_index=True)
    last = np.append(first[1:], len(lengths)) - 1
    total = np.add.reduceat(counts, first)
    cost = np.add.reduceat(counts * lengths, first) / total
    return RankCells(lengths[first], lengths[last], total / counts.sum(), cost.astype(np.float64))


@dataclass(frozen=True)
class Window:
    """Cells ``first`` to ``last``, in which the loss is first reached with probability ``mass``.

    ``from_tokens``: longest length before these cells; ``to_tokens``: longest length in them.
    """

    first: int
    last: int
    mass: float
    from_tokens: int
    to_tokens: int


@dataclass(frozen=True)
class LossPlace:
    """Posterior distribution of the location of a loss, given the scores.

    Attributes:
        place: probability that the loss is first reached in a cell (G).
        none: probability that there is no loss.
        first, mean: for curves drawn from the posterior, the cell in which each first reaches the
            loss (P; G if in none) and the mean score in every cell (P, G).
    """

    cells: RankCells
    place: Floats
    none: float
    first: Ints
    mean: Floats

    def window(self, half_width: float) -> Window:
        """Return the most probable window at most twice ``half_width`` (share of examples) wide."""
        starts = self.cells.starts
        summed = np.concatenate([[0.0], np.cumsum(self.place)])
        # A place may be anywhere in its cell: a window is as wide as its cells together.
        end = np.searchsorted(starts, starts[:-1] + 2.0 * half_width + 1e-9, side="right") - 1
        end = np.maximum(end, np.arange(len(self.place)) + 1)
        mass = summed[end] - summed[:-1]
        first = int(np.argmax(mass))
        last = int(end[first]) - 1
        # Cells without mass at either end would only widen the window.
        inside = first + np.flatnonzero(self.place[first : last + 1] > _CERTAIN)
        if len(inside):
            first, last = int(inside[0]), int(inside[-1])
        low = self.cells.low[first] if first == 0 else self.cells.high[first - 1]
        return Window(first, last, float(mass.max()), int(low), int(self.cells.high[last]))


def locate_loss(
    documents: Documents, cells: RankCells, share: float, baseline_share: float = BASELINE_SHARE
) -> LossPlace:
    """Return where the score first falls by ``share`` of the baseline; no documents: the prior.

    Args:
        cells: at least two cells.
        baseline_share: fraction of the examples, shortest first, that cannot hold the place.
    """
    count = len(cells.share)
    baseline = int(np.searchsorted(cells.starts, baseline_share - 1e-9))
    baseline = max(min(baseline, count - 1), 1)
    cell = cells.of(documents.length_tokens)
    n, s = (np.bincount(cell, w, count).astype(np.float64) for w in (documents.n, documents.s))
    phi = local_dispersion(documents, cells.high) if len(cell) else np.ones(count)
    posterior = falling_posterior(n, s, phi, baseline, cells.share, documents.chance)
    lost = posterior.chance_lost(share)
    level, share_kept = draw_curves(posterior, _CURVES, np.random.default_rng(0))
    is_lost = share_kept <= 1.0 - share
    first = np.where(is_lost.any(axis=1), baseline + is_lost.argmax(axis=1), count)
    share_kept = np.concatenate([np.ones((_CURVES, baseline)), share_kept], axis=1)
    mean = kept_of(level[:, None], share_kept, documents.chance)
    place = np.append(np.zeros(baseline), np.diff(lost, prepend=0.0))
    return LossPlace(cells, place, float(1.0 - lost[-1]), first, mean)
