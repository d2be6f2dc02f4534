"""Where a loss is first reached, as a window of the lengths that could be asked.

The lengths of all examples that could be asked are cut into about 100 cells of equal rank, and the
scores so far give the posterior of `curves.falling_process` over them: the same curves, stairs and
ramps among them, from which the cap will be read. Cells that nothing was asked in only pass on what
their neighbours say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.falling_curve import BASELINE_SHARE
from contextcliff_dagster.analysis.curves.falling_process import (
    draw_curves,
    falling_posterior,
    kept_of,
)
from contextcliff_dagster.analysis.statistics.length_at_loss import rank_groups
from contextcliff_dagster.analysis.statistics.overdispersion import local_dispersion

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints

CELLS = 100
_CURVES = 500
_CERTAIN = 1e-4
"""Chance below which a cell is not part of a window."""


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
    """In cells ``first`` to ``last`` the loss is first reached, with probability ``mass``.

    ``from_tokens`` to ``to_tokens``: from the longest length before them to their longest.
    """

    first: int
    last: int
    mass: float
    from_tokens: int
    to_tokens: int


@dataclass(frozen=True)
class LossPlace:
    """What scores say of the place of a loss.

    Attributes:
        place: probability that the loss is first reached in a cell (G).
        none: that it is nowhere.
        first, mean: of curves drawn from the posterior, the cell in which each has first reached it
            (P; G where none) and the mean score in every cell (P, G).
    """

    cells: RankCells
    place: Floats
    none: float
    first: Ints
    mean: Floats

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
        inside = first + np.flatnonzero(self.place[first : last + 1] > _CERTAIN)
        if len(inside):
            first, last = int(inside[0]), int(inside[-1])
        low = self.cells.low[first] if first == 0 else self.cells.high[first - 1]
        return Window(first, last, float(mass.max()), int(low), int(self.cells.high[last]))


def locate_loss(
    documents: Documents, cells: RankCells, share: float, baseline_share: float = BASELINE_SHARE
) -> LossPlace:
    """Where ``share`` of the baseline is first lost, after ``documents``; without any, the prior.

    Args:
        cells: at least two.
        baseline_share: of all examples, shortest first: no place lies inside.
    """
    count = len(cells.share)
    baseline = int(np.searchsorted(cells.starts, baseline_share - 1e-9))
    baseline = max(min(baseline, count - 1), 1)
    cell = cells.of(documents.length_tokens)
    n, s = (np.bincount(cell, of, count).astype(np.float64) for of in (documents.n, documents.s))
    phi = local_dispersion(documents, cells.high) if len(cell) else np.ones(count)
    posterior = falling_posterior(n, s, phi, baseline, cells.share, documents.chance)
    lost = posterior.chance_lost(share)
    level, kept = draw_curves(posterior, _CURVES, np.random.default_rng(0))
    reached = kept <= 1.0 - share
    first = np.where(reached.any(axis=1), baseline + reached.argmax(axis=1), count)
    kept = np.concatenate([np.ones((_CURVES, baseline)), kept], axis=1)
    mean = kept_of(level[:, None], kept, documents.chance)
    place = np.append(np.zeros(baseline), np.diff(lost, prepend=0.0))
    return LossPlace(cells, place, float(1.0 - lost[-1]), first, mean)
