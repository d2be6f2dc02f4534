"""Length bins: how the axis of document lengths is divided, and what happens to starved bins.

A bin is a half-open range ``[edge_low, edge_high)`` of whole tokens (the last one is closed above),
so that equal lengths always share a bin and every length of the corpus lies in exactly one. A bin
is *starved* when it holds fewer distinct documents than the threshold: examples that share a
document fail together, so statistics rest on distinct documents. A starved bin is refused or merged
with a neighbour, as the study specifies; it is never filled with synthetic, cut or padded texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from contextcliff_dagster.contracts import CorpusError, LengthBin
from contextcliff_dagster.contracts.arrays import Ints


@dataclass(frozen=True, slots=True)
class BinSpec:
    """How to cut bins. ``width`` (tokens) is for ``fixed`` bins; None: equal widths."""

    kind: Literal["quantile", "fixed"] = "quantile"
    count: int = 10
    width: int | None = None
    starved_below: int = 5
    starved: Literal["merge", "refuse"] = "merge"


def make_bins(
    lengths_by_example: Sequence[int] | Ints, document_ids: Sequence[str] | Ints, spec: BinSpec
) -> list[LengthBin]:
    """Return the bins of :func:`cut_bins`, with starved ones refused or merged.

    Merging starts with the emptiest starved bin (on ties the longest, because tails are sparse) and
    joins it to the neighbour with fewer documents (on ties the shorter), until none is starved. A
    merged bin keeps its key and range, has ``n == 0`` and names in ``merged_into`` the bin whose
    range now covers it. ``document_ids`` are names or, to save memory, one number per document.

    Raises:
        CorpusError: no examples, a starved bin that the study refuses, or too few documents.
    """
    document_ids = _numbers(document_ids)
    bins = cut_bins(lengths_by_example, document_ids, spec)
    documents = len(np.unique(document_ids))
    if documents < spec.starved_below:
        raise CorpusError(
            f"The corpus has {_documents(documents)} to sample from, fewer than one bin "
            f"needs (bins.starved_below is {spec.starved_below}); add documents."
        )
    starved = [b for b in bins if b.n_documents < spec.starved_below]
    if starved and spec.starved == "refuse":
        raise CorpusError(_refusal(starved, bins, spec))
    # Each group holds the bins that are merged into one, in order of length.
    groups = [[b] for b in bins]
    # A document has one length, so documents of neighbouring bins add up.
    size = [b.n_documents for b in bins]
    while len(groups) > 1 and min(size) < spec.starved_below:
        at = min(range(len(groups)), key=lambda i: (size[i], -i))
        sides = [i for i in (at - 1, at + 1) if 0 <= i < len(groups)]
        into = min(sides, key=lambda i: (size[i], i))
        first, second = min(at, into), max(at, into)
        groups[first] += groups.pop(second)
        size[first] += size.pop(second)
    result = []
    for group in groups:
        # The bin with most documents keeps its key: it moved least.
        keeper = max(group, key=lambda b: (b.n_documents, b.n, b.bin))
        merged = replace(keeper, edge_low=group[0].edge_low, edge_high=group[-1].edge_high)
        result += [merged if b is keeper else replace(b, merged_into=keeper.bin) for b in group]
    return _filled(result, lengths_by_example, document_ids)


def cut_bins(
    lengths_by_example: Sequence[int] | Ints, document_ids: Sequence[str] | Ints, spec: BinSpec
) -> list[LengthBin]:
    """Cut the axis into ``spec.count`` bins, including starved and empty ones.

    Quantile edges are observed lengths: edge k is the length at rank ``floor(k * n / count)`` of
    the sorted examples. If many examples share a length, neighbouring edges coincide and the bin
    between them is empty: all equal lengths lie in the bin that starts with them. Fixed bins of a
    given width start at 0 tokens, and the last one reaches to the longest document.

    Raises:
        CorpusError: there are no examples.
    """
    n = len(lengths_by_example)
    if not n:
        raise CorpusError("There is no example to bin; check the corpus and sampling.min_tokens.")
    ordered = np.sort(np.asarray(lengths_by_example, np.int64))
    low, high = int(ordered[0]), int(ordered[-1])
    if spec.kind == "quantile":
        edges = [int(ordered[k * n // spec.count]) for k in range(spec.count)]
    elif spec.width is not None:
        edges = [k * spec.width for k in range(spec.count)]
    else:
        edges = [low + k * (high - low + 1) // spec.count for k in range(spec.count)]
    last = high if spec.width is None else max(high, edges[-1] + spec.width)
    ends = [*edges[1:], last]
    empty = [
        LengthBin(f"b{k:02d}", a, b, None, None, None, 0, 0)
        for k, (a, b) in enumerate(zip(edges, ends, strict=True))
    ]
    return _filled(empty, lengths_by_example, _numbers(document_ids))


def active_bins(bins: Sequence[LengthBin]) -> list[LengthBin]:
    """Return the bins that were not merged into another bin; their ranges partition the axis."""
    return [b for b in bins if b.merged_into is None]


def assign_bin(length: int, bins: Sequence[LengthBin]) -> str:
    """Return the key of the bin that contains ``length`` tokens.

    Raises:
        CorpusError: the length lies below the first bin or above the last.
    """
    active = active_bins(bins)
    if not active or not active[0].edge_low <= length <= active[-1].edge_high:
        span = f"{active[0].edge_low}..{active[-1].edge_high}" if active else "none"
        raise CorpusError(f"A document of {length} tokens lies outside the bins ({span} tokens).")
    # If several bins start at the same length, all but the last are empty.
    return active[bisect_right([b.edge_low for b in active], length) - 1].bin


def _numbers(document_ids: Sequence[str] | Ints) -> Ints:
    """Return ``document_ids`` as numbers; equal ids get the same number."""
    if isinstance(document_ids, np.ndarray):
        return document_ids
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in document_ids], np.int64)


def _filled(
    bins: Sequence[LengthBin], lengths: Sequence[int] | Ints, documents: Ints
) -> list[LengthBin]:
    """Return the bins with their counts and lengths recomputed from the examples."""
    active = active_bins(bins)
    by_example = np.asarray(lengths, np.int64)
    at = np.searchsorted([b.edge_low for b in active], by_example, side="right") - 1
    order = np.lexsort((by_example, at))
    ends = np.searchsorted(at[order], np.arange(len(active)), side="right")
    inside = dict(zip((b.bin for b in active), np.split(by_example[order], ends[:-1]), strict=True))
    # A document counts once in each bin.
    held = np.unique(at * (documents.max() + 1) + documents) // (documents.max() + 1)
    counts = np.bincount(held, minlength=len(active)).tolist()
    n_documents = dict(zip(inside, counts, strict=True))
    filled = []
    for b in bins:
        of_bin = inside.get(b.bin, by_example[:0])
        low = median = high = None
        if len(of_bin):
            # The lower median is the length of a real document.
            low, median, high = (int(of_bin[i]) for i in (0, (len(of_bin) - 1) // 2, -1))
        b = replace(b, min_tokens=low, median_tokens=median, max_tokens=high)
        filled.append(replace(b, n=len(of_bin), n_documents=n_documents.get(b.bin, 0)))
    return filled


def _refusal(starved: Sequence[LengthBin], bins: Sequence[LengthBin], spec: BinSpec) -> str:
    worst = min(starved, key=lambda b: (b.n_documents, b.bin))
    n_others = len(starved) - 1
    others = f" ({n_others} more of the {len(bins)} bins hold too few, too)" if n_others else ""
    return (
        f"Bin {worst.bin} ({worst.edge_low} to {worst.edge_high} tokens) holds "
        f"{_documents(worst.n_documents)}, fewer than bins.starved_below ({spec.starved_below})"
        f"{others}; add documents of that length, lower bins.count, or set bins.starved to merge."
    )


def _documents(n: int) -> str:
    return f"{n} document{'' if n == 1 else 's'}"
