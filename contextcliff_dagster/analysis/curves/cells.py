"""Neighbouring documents summed to cells, on which all curves are fitted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.length_at_loss import rank_groups

if TYPE_CHECKING:
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
