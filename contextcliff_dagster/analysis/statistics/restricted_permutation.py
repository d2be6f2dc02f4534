"""Restricted permutation: documents of similar length exchange a property of their examples.

A document gives what its examples have to another document of its length bin with as many
examples, in any order. Questions on one document may be as alike as they like: they stay together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Blocks of examples, rows of which documents may exchange: (documents, questions each)."""

    blocks: list[Ints]
    count: int
    rng: np.random.Generator

    def sums(self, residual: Floats, group: Ints, groups: int) -> Floats:
        """Sums of ``residual`` by group: as it is, then under each exchange (1 + count, groups)."""
        out = np.zeros((1 + self.count, groups))
        out[0] = np.bincount(group, weights=residual, minlength=groups)
        for block in self.blocks:
            flat = block.ravel()
            step = max(1, _AT_ONCE // len(flat))
            for first in range(0, self.count, step):
                size = min(step, self.count - first)
                documents = np.tile(np.arange(len(block)), (size, 1))
                moved = block[self.rng.permuted(documents, axis=1)]
                if block.shape[1] > 1:
                    moved = self.rng.permuted(moved, axis=2)
                taken = group[moved.reshape(size, -1)]
                for g in range(groups):
                    out[1 + first : 1 + first + size, g] += (taken == g) @ residual[flat]
        return out


def exchanges(document: Ints, index: Ints, count: int, rng: np.random.Generator) -> Exchanges:
    """Documents of one length bin (``index``) with as many questions, as blocks."""
    order = np.argsort(document, kind="stable")
    first = np.flatnonzero(np.diff(document[order], prepend=-1))
    sizes = np.diff(first, append=len(order))
    bins = index[order[first]]
    blocks = []
    for key in np.unique(np.column_stack([bins, sizes]), axis=0):
        mine = np.flatnonzero((bins == key[0]) & (sizes == key[1]))
        blocks.append(order[first[mine][:, None] + np.arange(key[1])[None, :]])
    return Exchanges(blocks, count, rng)
