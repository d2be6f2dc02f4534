"""Where a loss lies, as a posterior over places: what targeted sampling steers by.

The lengths of all examples that could be asked are cut into about 100 cells of equal rank. Members
fall from one mean to a lower one around a place, at once or evenly over a width, or not at all:

    mu(g) = m0 (1 - d clip((g - c) / w + 1/2, 0, 1)),  g cells from the shortest, w cells wide,

so that half of the drop has happened at the place c whatever the width. The prior: 20% no loss;
else every place beyond the baseline region alike, a step with 60% and three widths with the rest,
and every pair of means on a grid alike, the second lower by at least the loss that counts. The
likelihood is the quasi-binomial one of summed scores,

    l = sum over cells of S log mu + (N - S) log(1 - mu), divided by phi,

with the dispersion phi of the likeliest member, robust to the correlation of questions on one
document (Liang and Zeger 1986, Biometrika 73, 13-22) and shrunk towards .8, since at the start
there is little to estimate it from; single 0/1 scores have phi = 1.

The posterior says where to look and when to stop. It is no verdict: that, the cap and its
confidence come from `conclusion.conclude`, whatever has been sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from contextcliff_dagster.analysis.curves.cells import BASELINE_SHARE
from contextcliff_dagster.analysis.statistics.length_at_loss import rank_groups
from contextcliff_dagster.analysis.statistics.overdispersion import known_dispersion

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints

CELLS = 100
NO_LOSS = 0.20
"""Prior mass of a curve without a loss."""
WIDTHS = ((0.0, 0.6), (0.1, 0.15), (0.2, 0.15), (0.4, 0.1))
"""Share of the examples over which a member falls, and its prior mass; 0 is a step."""
LEVELS = np.concatenate([[0.02], np.arange(0.05, 0.96, 0.05), [0.98]])
"""Means before the loss."""
DEPTHS = 6
_DEEPEST = 0.95
_PRIOR_DISPERSION, _PRIOR_DOCUMENTS = 0.8, 40.0


@dataclass(frozen=True)
class RankCells:
    """The examples that could be asked, by length; arrays of length G, shortest first.

    ``low``, ``high``: shortest and longest length in tokens. ``share``: of the examples, 0..1.
    ``cost``: mean tokens of an example.
    """

    low: Ints
    high: Ints
    share: Floats
    cost: Floats

    @cached_property
    def starts(self) -> Floats:
        """Share of the examples before each cell, and 1 (G + 1)."""
        return np.concatenate([[0.0], np.cumsum(self.share)])

    def of(self, length_tokens: Ints) -> Ints:
        """The cell of each length; one outside belongs to the nearest."""
        index = np.searchsorted(self.high, length_tokens)
        return np.minimum(index, len(self.high) - 1)


def rank_cells(length_tokens: Ints, at_most: int = CELLS) -> RankCells:
    """Cells of equal numbers of the examples with these lengths (tokens); equal lengths share one.

    Raises:
        ValueError: there is no length.
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
    """Cells ``first`` to ``last`` hold the place of the loss with probability ``mass``.

    ``from_tokens`` to ``to_tokens``: from the longest length before them to their longest.
    """

    first: int
    last: int
    mass: float
    from_tokens: int
    to_tokens: int


@dataclass(frozen=True)
class Posterior:
    """What scores say of the place of a loss.

    Attributes:
        place: probability that half of the loss has happened at the beginning of a cell (G).
        none: that there is no loss.
        score: expected score in each cell given the place, times the place's probability
            (places, cells). level: expected score without a loss.
        dispersion: phi.
    """

    cells: RankCells
    place: Floats
    none: float
    score: Floats
    level: float
    dispersion: float

    def window(self, half_width: float) -> Window:
        """The window of at most twice ``half_width`` (share of the examples) with most mass."""
        starts = self.cells.starts
        summed = np.concatenate([[0.0], np.cumsum(self.place)])
        # A place is anywhere in its cell: a window is as wide as its cells together.
        end = np.searchsorted(starts, starts[:-1] + 2.0 * half_width + 1e-9, side="right") - 1
        end = np.maximum(end, np.arange(len(self.place)) + 1)
        mass = summed[end] - summed[:-1]
        first = int(np.argmax(mass))
        last = int(end[first]) - 1
        # Cells without mass at its ends only blur what is known.
        inside = first + np.flatnonzero(self.place[first : last + 1] > 1e-6)
        if len(inside):
            first, last = int(inside[0]), int(inside[-1])
        low = self.cells.low[first] if first == 0 else self.cells.high[first - 1]
        return Window(first, last, float(mass.max()), int(low), int(self.cells.high[last]))


def locate_loss(
    documents: Documents,
    cells: RankCells,
    least_drop: float,
    baseline_share: float = BASELINE_SHARE,
    no_loss: float = NO_LOSS,
) -> Posterior:
    """The posterior after ``documents``; without any it is the prior.

    Args:
        least_drop: relative loss from which on one counts, 0..1.
        baseline_share: of all examples, shortest first: no place lies inside.
        no_loss: prior mass of a curve without a loss.
    """
    g = len(cells.share)
    cell = cells.of(documents.length_tokens)
    n = np.bincount(cell, weights=documents.n, minlength=g)
    s = np.bincount(cell, weights=documents.s, minlength=g)
    means = _means(g, least_drop)
    right, wrong = _shifted(s.astype(np.float64)), _shifted((n - s).astype(np.float64))
    q = np.stack([right @ np.log(mu) + wrong @ np.log1p(-mu) for mu in means])
    flat = s.sum() * np.log(LEVELS) + (n - s).sum() * np.log1p(-LEVELS)
    phi = _dispersion(documents, cell, q, flat, means)
    allowed = cells.starts[:-1] >= baseline_share - 1e-9
    if not allowed.any():
        allowed[-1] = True
    prior = np.where(allowed, cells.share, 0.0)
    prior *= (1.0 - no_loss) / prior.sum()
    width = np.array([mass for _, mass in WIDTHS])[:, None, None]
    top = max(float(q.max()), float(flat.max()))
    weight = np.exp((q - top) / phi) * width * (prior / q.shape[2])[:, None]
    none = np.exp((flat - top) / phi) * (no_loss / len(LEVELS))
    place = weight.sum(axis=(0, 2))
    total = float(place.sum() + none.sum())
    by_offset = sum(w @ mu.T for w, mu in zip(weight, means, strict=True)) / total
    offset = np.arange(g)[None, :] - np.arange(g)[:, None] + g - 1
    return Posterior(
        cells,
        place / total,
        float(none.sum()) / total,
        np.take_along_axis(by_offset, offset, axis=1),
        float(none @ LEVELS / max(float(none.sum()), 1e-300)),
        phi,
    )


def _means(g: int, least_drop: float) -> list[Floats]:
    """Per width, the members' means at each offset from the place: (2 G - 1, pairs of levels)."""
    lost = np.linspace(least_drop, max(_DEEPEST, least_drop), DEPTHS)
    before, drop = np.repeat(LEVELS, DEPTHS), np.tile(lost, len(LEVELS))
    # The middle of a cell lies half a cell beyond the place at its beginning.
    offset = np.arange(1 - g, g) + 0.5
    out = []
    for width, _ in WIDTHS:
        gone = np.clip(offset / max(width * g, 1e-9) + 0.5, 0.0, 1.0)
        out.append(np.maximum(before * (1.0 - drop * gone[:, None]), 1e-3))
    return out


def _shifted(of: Floats) -> Floats:
    """Row c holds ``of`` by offset from cell c, 0 outside: (G, 2 G - 1)."""
    g = len(of)
    padded = np.concatenate([np.zeros(g - 1), of, np.zeros(g - 1)])
    out: Floats = sliding_window_view(padded, 2 * g - 1)
    return np.ascontiguousarray(out)


def _dispersion(
    documents: Documents, cell: Ints, q: Floats, flat: Floats, means: list[Floats]
) -> float:
    """Pearson's, over documents at the likeliest member, shrunk as by 40 documents with .8."""
    if not len(documents.n) or known_dispersion(documents):
        return 1.0 if len(documents.n) else _PRIOR_DISPERSION
    if flat.max() >= q.max():
        mean = np.full(len(cell), LEVELS[int(np.argmax(flat))])
    else:
        width, place, pair = np.unravel_index(int(np.argmax(q)), q.shape)
        mean = means[int(width)][cell - int(place) + q.shape[1] - 1, int(pair)]
    mean = np.clip(mean, 0.01, 0.99)
    expected = float((documents.n * mean * (1.0 - mean)).sum())
    estimate = float(((documents.s - documents.n * mean) ** 2).sum()) / expected
    count = len(documents.n)
    return (_PRIOR_DOCUMENTS * _PRIOR_DISPERSION + count * estimate) / (_PRIOR_DOCUMENTS + count)
