"""Drawing the sample: stratified by bin, nested, balanced over documents, from a seed alone.

A document's place in its bin's order is ``SHA-256(seed, document id)``, a question's within its
document ``SHA-256(seed, example id)``. A bin is drawn in rounds: one question of each document, in
document order, then a second of each, up to ``questions_per_document``. So the order depends on
nothing but the seed and the ids, not on the source's order or the sample's size: n = 20 begins with
the n = 5 sample, and in every prefix no document has given two questions more than another that had
one left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts import CorpusError, LengthBin
from contextcliff_dagster.corpora.corpus import seeded_place
from contextcliff_dagster.sampling.bins import active_bins, assign_bin

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.contracts.arrays import Ints

_NAMES_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """How much to draw. ``questions_per_document`` is a limit: documents are used up first."""

    samples_per_bin: int = 20
    seed: int = 0
    questions_per_document: int = 1
    min_tokens: int = 0


def draw_sample(length_map: pa.Table, bins: Sequence[LengthBin], spec: SampleSpec) -> pa.Table:
    """At most ``spec.samples_per_bin`` examples of each active bin, in order of (bin, rank).

    A bin with fewer examples gives what it has.

    Returns:
        The columns of ``length_map``, ``bin`` (key) and ``rank`` (0, 1, ... in each bin).

    Raises:
        CorpusError: a document of at least ``spec.min_tokens`` lies outside the bins, or no
            document is that long.
    """
    import pyarrow as pa

    lengths: Ints = length_map["length_tokens"].to_numpy()
    rows = np.flatnonzero(lengths >= spec.min_tokens)
    if not len(rows):
        raise CorpusError(
            f"No document has at least {spec.min_tokens} tokens; lower sampling.min_tokens."
        )
    of_bin = _bins_of(lengths[rows], bins)
    named = length_map["document_id"].take(rows).combine_chunks().dictionary_encode()
    count = len(named.dictionary)
    # A document's questions in a bin, and the document's turn among those of its bin.
    group = of_bin * count + named.indices.to_numpy(zero_copy_only=False)
    groups, of_row = np.unique(group, return_inverse=True)
    first, second = _places(spec.seed, "document", named.dictionary)
    turn = _numbered(groups // count, first[groups % count], second[groups % count])[of_row]

    # Documents beyond the sample's size are never reached in the first round, nor later.
    near = turn < spec.samples_per_bin
    rows, of_bin, group, turn = rows[near], of_bin[near], group[near], turn[near]
    first, second = _places(spec.seed, "example", length_map["example_id"].take(rows))
    round_of = _numbered(group, first, second)
    asked = round_of < spec.questions_per_document
    rows, of_bin = rows[asked], of_bin[asked]
    rank = _numbered(of_bin, round_of[asked], turn[asked])
    drawn = np.flatnonzero(rank < spec.samples_per_bin)
    drawn = drawn[np.lexsort((rank[drawn], of_bin[drawn]))]
    keys = pa.array([b.bin for b in active_bins(bins)], pa.string())
    sample = length_map.take(rows[drawn]).append_column("bin", keys.take(of_bin[drawn]))
    return sample.append_column("rank", pa.array(rank[drawn]))


def _bins_of(lengths: Ints, bins: Sequence[LengthBin]) -> Ints:
    """The number of the active bin that holds each length."""
    active = active_bins(bins)
    for length in (int(lengths.min()), int(lengths.max())):
        assign_bin(length, bins)  # raises where it lies outside
    return np.searchsorted([b.edge_low for b in active], lengths, side="right") - 1


def _places(seed: int, kind: str, names: pa.Array | pa.ChunkedArray) -> tuple[Ints, Ints]:
    """The order that the seed gives to names: the first 16 bytes of each place, as two numbers."""
    digests = bytearray()
    for start in range(0, len(names), _NAMES_AT_ONCE):
        for name in names.slice(start, _NAMES_AT_ONCE).to_pylist():
            digests += seeded_place(seed, kind, name)[:16]
    both = np.frombuffer(digests, ">u8").reshape(-1, 2)
    return both[:, 0].astype(np.uint64), both[:, 1].astype(np.uint64)


def _numbered(within: Ints, *by: Ints) -> Ints:
    """The number of each item among those of the same ``within``, in the order of ``by``."""
    order = np.lexsort((*reversed(by), within))
    grouped = within[order]
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]])
    numbers = np.empty(len(within), np.int64)
    numbers[order] = np.arange(len(within)) - np.repeat(
        starts, np.diff(np.append(starts, len(within)))
    )
    return numbers
