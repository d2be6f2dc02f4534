"""Distribution audit, before any inference: can the corpus support a study of these lengths?

The audit returns a verdict with advice; it raises no errors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.contracts import LengthBin
from contextcliff_dagster.contracts.arrays import Ints

if TYPE_CHECKING:
    import pyarrow as pa

CELLS = 18
"""Number of equal parts of the 5-95 % range that should each contain a document: one per 5 %."""
LEAST_COVERAGE = 0.5
GOOD_COVERAGE = 0.9
LEAST_SPREAD = 1.25
"""Minimum ratio of the 95th to the 5th percentile of document lengths; below it, the lengths are
too alike to show a difference. Below ``GOOD_SPREAD``, a cliff may lie outside them."""
GOOD_SPREAD = 4.0
BARS = 24


@dataclass(frozen=True, slots=True)
class HistogramBar:
    """Documents and examples with ``low <= tokens < high``; equal widths in log tokens."""

    low: int
    high: int
    documents: int
    examples: int


@dataclass(frozen=True, slots=True)
class DistributionAudit:
    """The audit's results.

    ``coverage``: fraction of the 18 equal parts of the 5-95 % length range with a document. The
    range runs from 5 % to 95 % of the way between the target's shortest and longest length, or,
    without a target, the corpus's own lengths up to the window. ``duplicates``: examples that
    repeat a question about the same document. ``documents_per_bin``: distinct documents by bin key.
    ``over_window``: documents longer than the window (None: window unknown).
    """

    verdict: Literal["ok", "warn", "refuse"]
    advice: str
    documents: int
    examples: int
    min_tokens: int
    p05_tokens: int
    median_tokens: int
    p95_tokens: int
    max_tokens: int
    target: tuple[int, int] | None
    coverage: float
    uncovered: tuple[tuple[int, int], ...]
    starved_below: int
    starved_bins: tuple[str, ...]
    documents_per_bin: Mapping[str, int]
    duplicates: int
    window_tokens: int | None
    over_window: int | None
    histogram: tuple[HistogramBar, ...]


@dataclass(frozen=True, slots=True)
class Requirements:
    """The study's requirements: the fewest documents of a bin, the lengths that it is about, and
    the smallest window of its models, in tokens."""

    starved_below: int
    target: tuple[int, int] | None = None
    window_tokens: int | None = None


def audit_lengths(
    length_map: pa.Table,
    examples: Iterable[pa.RecordBatch] | None,
    bins: Sequence[LengthBin],
    required: Requirements,
    *,
    manufactured: Mapping[str, str] | None = None,
    cautions: Sequence[str] = (),
) -> DistributionAudit:
    """Audit a corpus's lengths.

    ``examples``: rows in which duplicates are looked for. ``bins``: as cut, before starved ones
    are merged. ``manufactured``: tasks whose documents' lengths were manufactured, and how.
    ``cautions``: the corpus's own warnings for every reader, as clauses.
    """
    window, target = required.window_tokens, required.target
    documents_by_row = length_map["document_id"].combine_chunks().dictionary_encode()
    by_example = length_map["length_tokens"].to_numpy()
    _, first = np.unique(documents_by_row.indices.to_numpy(zero_copy_only=False), return_index=True)
    lengths = np.sort(by_example[first])
    p05, median, p95 = (int(x) for x in np.quantile(lengths, (0.05, 0.5, 0.95), method="lower"))
    low, high = int(lengths[0]), int(lengths[-1])
    coverage, uncovered = _coverage(lengths, *(target or (low, min(high, window or high))))
    audit = DistributionAudit(
        verdict="ok",
        advice=f"The {len(lengths):,} documents from {low:,} to {high:,} tokens support this "
        "study.",
        documents=len(lengths),
        examples=length_map.num_rows,
        min_tokens=low,
        p05_tokens=p05,
        median_tokens=median,
        p95_tokens=p95,
        max_tokens=high,
        target=target,
        coverage=coverage,
        uncovered=uncovered,
        starved_below=required.starved_below,
        starved_bins=tuple(b.bin for b in bins if b.n_documents < required.starved_below),
        documents_per_bin={b.bin: b.n_documents for b in bins},
        duplicates=_duplicates(examples) if examples is not None else 0,
        window_tokens=window,
        over_window=int((lengths > window).sum()) if window is not None else None,
        histogram=_histogram(lengths, by_example),
    )
    refusals = _refusals(audit)
    if refusals:
        advice = f"This corpus does not support the study: {'; '.join(refusals)}."
        return replace(audit, verdict="refuse", advice=advice)
    made = [
        f"the lengths of {task!r} were manufactured ({how}): a fall over them says little "
        "about documents of natural length"
        for task, how in (manufactured or {}).items()
    ]
    on_lengths, on_counts = _warnings(audit)
    if warnings := [*on_lengths, *made, *cautions, *on_counts]:
        return replace(audit, verdict="warn", advice=f"Usable, with care: {'; '.join(warnings)}.")
    return audit


def _refusals(audit: DistributionAudit) -> list[str]:
    """Return the reasons why the corpus does not support the study, most important first."""
    refusals: list[str] = []
    low, high, target = audit.min_tokens, audit.max_tokens, audit.target
    margin = 0.05 * (target[1] - target[0]) if target else 0.0
    if low == high:
        refusals.append(
            f"all documents have the same length ({low:,} token{'' if low == 1 else 's'}) and show "
            "no effect of length: add documents of other lengths"
        )
    elif target and (low > target[0] + margin or high < target[1] - margin):
        refusals.append(
            f"the documents ({low:,} to {high:,} tokens) do not span the target range of "
            f"{target[0]:,} to {target[1]:,} tokens: add documents at the missing end, or narrow "
            "the target"
        )
    elif target and audit.coverage < LEAST_COVERAGE:
        refusals.append(
            f"documents cover only {audit.coverage:.0%} of the 5-95 % length range of the target "
            f"(none at {_gaps(audit.uncovered)}): add documents there, or narrow the target"
        )
    elif audit.p95_tokens < LEAST_SPREAD * audit.p05_tokens:
        refusals.append(
            f"nine in ten documents have {audit.p05_tokens:,} to {audit.p95_tokens:,} tokens, too "
            "narrow a range to see a cliff: add documents several times as long"
        )
    if audit.window_tokens is not None and audit.over_window == audit.documents:
        refusals.append(f"{_over_window(audit)}: none could be sent; add shorter documents")
    if audit.documents < audit.starved_below:
        refusals.append(
            f"there are {audit.documents} distinct documents, fewer than one bin needs "
            f"({audit.starved_below}): add documents"
        )
    return refusals


def _warnings(audit: DistributionAudit) -> tuple[list[str], list[str]]:
    """Return the warnings about a usable corpus: those on its lengths, and those on its counts."""
    lengths: list[str] = []
    counts: list[str] = []
    if audit.p95_tokens < GOOD_SPREAD * audit.p05_tokens:
        lengths.append(
            f"nine in ten documents have {audit.p05_tokens:,} to {audit.p95_tokens:,} tokens: a "
            "cliff outside that range cannot be seen"
        )
    if audit.uncovered and audit.coverage < GOOD_COVERAGE:
        lengths.append(
            f"documents cover {audit.coverage:.0%} of the 5-95 % length range (none at "
            f"{_gaps(audit.uncovered)}): add documents there to place a cliff more closely"
        )
    if audit.over_window:
        text = _over_window(audit)
        lengths.append(f"{text}: they will be counted as context_overflow and never sent")
    if starved := audit.starved_bins:
        counts.append(
            f"{len(starved)} of {len(audit.documents_per_bin)} bins hold fewer than "
            f"{audit.starved_below} distinct documents ({', '.join(starved)}): add documents of "
            "those lengths, or use fewer bins"
        )
    if audit.duplicates:
        counts.append(
            f"{audit.duplicates} example{'s repeat' if audit.duplicates > 1 else ' repeats'} a "
            "question about the same document: drop the "
            "repeats"
        )
    return lengths, counts


def _over_window(audit: DistributionAudit) -> str:
    documents = f"{audit.over_window:,} of {audit.documents:,} documents"
    return f"{documents} exceed the window of {audit.window_tokens:,} tokens"


def _coverage(lengths: Ints, low: int, high: int) -> tuple[float, tuple[tuple[int, int], ...]]:
    """Return the fraction of the 5-95 % range's parts with a document, and the empty stretches."""
    if high <= low:
        return 0.0, ()
    edges = low + (high - low) * np.linspace(0.05, 0.95, CELLS + 1)
    # The last part is closed above, like np.histogram's.
    counts, _ = np.histogram(lengths, edges)
    gaps: list[tuple[int, int]] = []
    for part in np.flatnonzero(counts == 0).tolist():
        start, end = math.ceil(edges[part]), math.ceil(edges[part + 1])
        if gaps and gaps[-1][1] == start:
            gaps[-1] = (gaps[-1][0], end)
        else:
            gaps.append((start, end))
    return float((counts > 0).mean()), tuple(gaps)


def _gaps(uncovered: Sequence[tuple[int, int]]) -> str:
    widest = max(uncovered, key=lambda gap: gap[1] - gap[0])
    n_others = len(uncovered) - 1
    others = f" and in {n_others} other stretch{'es' if n_others > 1 else ''}" if n_others else ""
    return f"{widest[0]:,} to {widest[1]:,} tokens{others}"


def _duplicates(examples: Iterable[pa.RecordBatch]) -> int:
    """Count examples that repeat a (document, question), ignoring blanks and case."""
    digests = bytearray()
    for batch in examples:
        for row in batch.to_pylist():
            question = " ".join(row["question"].split()).lower()
            digests += hashlib.sha256(f"{row['document_id']}\n{question}".encode()).digest()[:16]
    hashes = np.frombuffer(digests, "S16")
    return len(hashes) - len(np.unique(hashes))


def _histogram(lengths: Ints, by_example: Ints) -> tuple[HistogramBar, ...]:
    low, high = int(lengths[0]), int(lengths[-1])
    exact = np.geomspace(max(low, 1), high + 1, BARS + 1)
    # Whole tokens; a narrow range has fewer distinct edges than bars.
    edges = np.unique(np.concatenate([[low], np.round(exact[1:-1]), [high + 1]]).astype(np.int64))
    edges = edges[(edges >= low) & (edges <= high + 1)]
    documents = np.diff(np.searchsorted(lengths, edges))
    examples = np.diff(np.searchsorted(np.sort(by_example), edges))
    bars = zip(edges[:-1], edges[1:], documents, examples, strict=True)
    return tuple(HistogramBar(*(int(x) for x in bar)) for bar in bars)
