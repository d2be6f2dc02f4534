"""Where a loss begins, as a posterior over places: what targeted sampling steers by.

The lengths of all examples that could be asked are cut into about 100 cells of equal rank. Members
are steps: a mean before and a lower mean after an onset at the lower edge of a cell, or one mean
throughout. The prior: 20% no loss; else every cell beyond the baseline region alike, and every pair
of means on a grid alike, the second lower by at least the loss that counts. The likelihood is the
quasi-binomial one of summed scores,

    l = sum over cells of S log mu + (N - S) log(1 - mu), divided by phi,

with the dispersion phi of the likeliest member, robust to the correlation of questions on one
document (Liang and Zeger 1986, Biometrika 73, 13-22) and shrunk towards .8, since at the
start there is little to estimate it from; single 0/1 scores have phi = 1.

The posterior says where to look and when to stop. It is no verdict: that, the cap and its
confidence come from `conclusion.conclude`, whatever has been sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.decline import BASELINE_SHARE, known_dispersion

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from contextcliff_dagster.analysis.units import Documents

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

CELLS = 100
NO_LOSS = 0.20
"""Prior mass of a curve without a loss."""
LEVELS = np.concatenate([[0.02], np.arange(0.05, 0.96, 0.05), [0.98]])
"""Means before the onset."""
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
        found = np.searchsorted(self.high, length_tokens)
        out: Ints = np.minimum(found, len(self.high) - 1)
        return out


def rank_cells(length_tokens: Ints, at_most: int = CELLS) -> RankCells:
    """Cells of equal numbers of the examples with these lengths (tokens); equal lengths share one.

    Raises:
        ValueError: there is no length.
    """
    if not len(length_tokens):
        raise ValueError("no length to cut into cells")
    lengths, counts = np.unique(length_tokens, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * counts
    cell = np.minimum((middle / counts.sum() * at_most).astype(np.int64), at_most - 1)
    _, first = np.unique(cell, return_index=True)
    last = np.append(first[1:], len(lengths)) - 1
    total = np.add.reduceat(counts, first)
    cost = np.add.reduceat(counts * lengths, first) / total
    return RankCells(lengths[first], lengths[last], total / counts.sum(), cost.astype(np.float64))


@dataclass(frozen=True)
class Window:
    """Cells ``first`` to ``last`` hold the onset with probability ``mass``.

    ``from_tokens`` to ``to_tokens``: from the longest length before them to their longest.
    """

    first: int
    last: int
    mass: float
    from_tokens: int
    to_tokens: int


@dataclass(frozen=True)
class Posterior:
    """What scores say of the onset.

    Attributes:
        onset: probability that the loss begins in a cell (G). none: that there is none.
        before, after: expected score on either side, given the onset (G). level: without a loss.
        dispersion: phi.
    """

    cells: RankCells
    onset: Floats
    none: float
    before: Floats
    after: Floats
    level: float
    dispersion: float

    def window(self, half_width: float) -> Window:
        """The window of at most twice ``half_width`` (share of the examples) with most mass."""
        starts = self.cells.starts
        summed = np.concatenate([[0.0], np.cumsum(self.onset)])
        # The onset lies somewhere in its cell: a window is as wide as its cells together.
        end = np.searchsorted(starts, starts[:-1] + 2.0 * half_width + 1e-9, side="right") - 1
        end = np.maximum(end, np.arange(len(self.onset)) + 1)
        mass = summed[end] - summed[:-1]
        first = int(np.argmax(mass))
        last = int(end[first]) - 1
        # Cells without mass at its ends only blur what is known.
        inside = first + np.flatnonzero(self.onset[first : last + 1] > 1e-6)
        if len(inside):
            first, last = int(inside[0]), int(inside[-1])
        low = self.cells.low[first] if first == 0 else self.cells.high[first - 1]
        return Window(first, last, float(mass.max()), int(low), int(self.cells.high[last]))


def locate_onset(
    documents: Documents,
    cells: RankCells,
    least_drop: float,
    baseline_share: float = BASELINE_SHARE,
    no_loss: float = NO_LOSS,
) -> Posterior:
    """The posterior after ``documents``; without any it is the prior.

    Args:
        least_drop: relative loss from which on a step counts, 0..1.
        baseline_share: of all examples, shortest first: no onset lies inside.
        no_loss: prior mass of a curve without a loss.
    """
    g = len(cells.share)
    place = cells.of(documents.length_tokens)
    n = np.bincount(place, weights=documents.n, minlength=g)
    s = np.bincount(place, weights=documents.s, minlength=g)
    kept = np.linspace(1.0 - least_drop, 1.0 - max(_DEEPEST, least_drop), DEPTHS)
    before = np.repeat(LEVELS, DEPTHS)
    after = np.maximum((LEVELS[:, None] * kept).ravel(), 1e-3)
    n0, s0 = (np.concatenate([[0.0], np.cumsum(of)[:-1]]) for of in (n, s))
    n1, s1 = n.sum() - n0, s.sum() - s0
    q = np.outer(s0, np.log(before)) + np.outer(n0 - s0, np.log1p(-before))
    q += np.outer(s1, np.log(after)) + np.outer(n1 - s1, np.log1p(-after))
    flat = s.sum() * np.log(LEVELS) + (n - s).sum() * np.log1p(-LEVELS)
    phi = _dispersion(documents, place, q, flat, before, after)
    allowed = cells.starts[:-1] >= baseline_share - 1e-9
    if not allowed.any():
        allowed[-1] = True
    prior = np.where(allowed, cells.share, 0.0)
    prior *= (1.0 - no_loss) / prior.sum()
    top = max(float(q.max()), float(flat.max()))
    steps = np.exp((q - top) / phi) * (prior / len(before))[:, None]
    none = np.exp((flat - top) / phi) * (no_loss / len(LEVELS))
    onset = steps.sum(axis=1)
    total = float(onset.sum() + none.sum())
    # Where a place is as good as impossible its levels do not matter; they only must be numbers.
    weight = np.maximum(onset, 1e-300)
    return Posterior(
        cells,
        onset / total,
        float(none.sum()) / total,
        steps @ before / weight,
        steps @ after / weight,
        float(none @ LEVELS / max(float(none.sum()), 1e-300)),
        phi,
    )


def _dispersion(
    documents: Documents, place: Ints, q: Floats, flat: Floats, before: Floats, after: Floats
) -> float:
    """Pearson's, over documents at the likeliest member, shrunk as if 40 documents had said .8."""
    if not len(documents.n) or known_dispersion(documents):
        return 1.0 if len(documents.n) else _PRIOR_DISPERSION
    if flat.max() >= q.max():
        mean = np.full(len(place), LEVELS[int(np.argmax(flat))])
    else:
        cell, member = np.unravel_index(int(np.argmax(q)), q.shape)
        mean = np.where(place >= cell, after[member], before[member])
    mean = np.clip(mean, 0.01, 0.99)
    expected = float((documents.n * mean * (1.0 - mean)).sum())
    found = float(((documents.s - documents.n * mean) ** 2).sum()) / expected
    count = len(documents.n)
    return (_PRIOR_DOCUMENTS * _PRIOR_DISPERSION + count * found) / (_PRIOR_DOCUMENTS + count)
