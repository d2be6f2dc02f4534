"""Drawing the sample: stratified by bin, nested, balanced over documents, from a seed alone.

A document's place in its bin's order is ``SHA-256(seed, document id)``, a question's within its
document ``SHA-256(seed, example id)``. A bin is drawn in rounds: one question of each document, in
document order, then a second of each, up to ``questions_per_document``. So the order depends on
nothing but the seed and the ids, not on the source's order or the sample's size: n = 20 begins with
the n = 5 sample, and in every prefix no document has given two questions more than another that had
one left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.contracts import CorpusError, LengthBin
from contextcliff_dagster.corpora.corpus import seeded_place
from contextcliff_dagster.sampling.bins import active_bins, assign_bin

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """How much to draw. ``questions_per_document`` is a limit: documents are used up first."""

    samples_per_bin: int = 20
    seed: int = 0
    questions_per_document: int = 1
    min_tokens: int = 0


class DrawnExample(NamedTuple):
    """An example's place in the sample."""

    example_id: str
    document_id: str
    length_tokens: int
    bin: str
    rank: int


def draw_sample(
    length_map: pa.Table, bins: Sequence[LengthBin], spec: SampleSpec
) -> list[DrawnExample]:
    """At most ``spec.samples_per_bin`` examples of each active bin, in order of (bin, rank).

    A bin with fewer examples gives what it has.

    Raises:
        CorpusError: a document of at least ``spec.min_tokens`` lies outside the bins, or no
            document is that long.
    """
    pools = _pools(length_map, bins, spec.min_tokens)
    drawn: list[DrawnExample] = []
    for b in active_bins(bins):
        documents = pools.get(b.bin, {})
        order = sorted(documents, key=lambda name: seeded_place(spec.seed, "document", name))
        # Documents beyond the sample's size are never reached in the first round, nor later.
        questions = [
            sorted(documents[name], key=lambda item: seeded_place(spec.seed, "example", item[0]))
            for name in order[: spec.samples_per_bin]
        ]
        rounds = (
            (name, *asked[turn])
            for turn in range(spec.questions_per_document)
            for name, asked in zip(order, questions, strict=False)
            if turn < len(asked)
        )
        for rank, (name, example_id, length) in zip(
            range(spec.samples_per_bin), rounds, strict=False
        ):
            drawn.append(DrawnExample(example_id, name, length, b.bin, rank))
    if not drawn:
        raise CorpusError(
            f"No document has at least {spec.min_tokens} tokens; lower sampling.min_tokens."
        )
    return drawn


def _pools(
    length_map: pa.Table, bins: Sequence[LengthBin], min_tokens: int
) -> dict[str, dict[str, list[tuple[str, int]]]]:
    """bin -> document id -> its examples as (example id, tokens)."""
    active = active_bins(bins)
    starts = [b.edge_low for b in active]
    pools: dict[str, dict[str, list[tuple[str, int]]]] = {b.bin: {} for b in active}
    for batch in length_map.to_batches(max_chunksize=65_536):
        columns = (batch.column(name).to_pylist() for name in length_map.schema.names[:3])
        for example_id, document_id, length in zip(*columns, strict=True):
            if length < min_tokens:
                continue
            if not active or not starts[0] <= length <= active[-1].edge_high:
                assign_bin(length, bins)  # raises, saying so
            key = active[bisect_right(starts, length) - 1].bin
            pools[key].setdefault(document_id, []).append((example_id, length))
    return pools
