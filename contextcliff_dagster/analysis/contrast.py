"""Examples that two measurements share, and tests of the difference between them.

Tests and intervals take documents as units. Paired: under the hypothesis that nothing changed, a
document's difference is as likely to have the other sign, so signs are flipped per document (Fisher
1935, The Design of Experiments). Unpaired: documents change sides within their length bin. All
statistics (overall and per bin) see the same flips, and a p-value is the share of flips whose
largest statistic reaches the observed one: so all of them together are wrong with at most the
stated probability (single-step max-T, Westfall and Young 1993, Resampling-Based Multiple Testing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.records import clean_records
from contextcliff_dagster.contracts import LengthBin

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats, Ints


@dataclass(frozen=True)
class Side:
    """One measurement's documents, shortest first; arrays of length D.

    ``n`` examples and ``s``, the sum of their scores; ``binary``: every score is 0 or 1.
    """

    length_tokens: Ints
    n: Floats
    s: Floats
    bin_index: Ints
    binary: bool


@dataclass(frozen=True)
class Pairs:
    """Two measurements of the same documents, or of different ones.

    Attributes:
        paired: both answered the same examples; then ``a`` and ``b`` are aligned, document by
            document, and hold only the examples that both answered.
        bins: in order of length.
        examples_a, examples_b: scores per example, aligned (E), where paired.
        example_document: row of its document (E), where paired.
        only_a, only_b: examples that the other has no answer to, or does not know.
        averaged: each document's answers were averaged, since they do not name their examples.
    """

    paired: bool
    a: Side
    b: Side
    bins: list[LengthBin]
    examples_a: Floats
    examples_b: Floats
    example_document: Ints
    only_a: int
    only_b: int
    averaged: bool = False


def pair_records(a: pd.DataFrame, b: pd.DataFrame, bins: Sequence[LengthBin]) -> Pairs:
    """Pair eval records of two measurements by example; lengths and bins are those of ``a``.

    Where a side names no examples, and both name documents, a document's answers count as answers
    to one example. Where a side names no documents, examples are paired by their own names, if
    those are unique. Without a shared example the two are compared unpaired.

    Raises:
        ContextCliffError: records that cannot be analysed (see `records.clean_records`).
    """
    import pandas as pd

    a, b, averaged = _by_document(a, b)
    sample_a = clean_records(a, bins)
    # Studies name their bins alike, whatever lengths they have: B's names say nothing of A's.
    sample_b = clean_records(b.drop(columns="bin", errors="ignore"), sample_a.bins)
    one, other = _named(sample_a.examples), _named(sample_b.examples)
    keys = ["document_id", "example_id"]
    named = [side[side["example_id"] != ""] for side in (one, other)]
    unique = not any(side["example_id"].duplicated().any() for side in named)
    if unique and sample_a.documents_known != sample_b.documents_known:
        keys = ["example_id"]
    both = pd.merge(
        named[0], named[1][[*keys, "document", "score"]], on=keys, suffixes=("_a", "_b")
    )
    only_b_names = sample_b.documents_known and not sample_a.documents_known
    both["document"] = both["document_b" if only_b_names else "document_a"]
    both = both.sort_values(["length_tokens", *keys], ignore_index=True)
    paired = len(both) > 0
    return Pairs(
        paired,
        _side(both, both["score_a"]) if paired else _side(one, one["score"]),
        _side(both, both["score_b"]) if paired else _side(other, other["score"]),
        sample_a.bins,
        both["score_a"].to_numpy(np.float64),
        both["score_b"].to_numpy(np.float64),
        _rows(both),
        only_a=len(one) - len(both),
        only_b=len(other) - len(both),
        averaged=averaged,
    )


def _by_document(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, bool]:
    """Both with documents for examples, where that pairs them; whether any had several answers."""
    if all(_has(frame, "example_id") for frame in (a, b)):
        return a, b, False
    if not all(_has(frame, "document_id") for frame in (a, b)):
        return a, b, False
    if not set(a["document_id"].dropna()) & set(b["document_id"].dropna()):
        return a, b, False
    several = any(frame["document_id"].dropna().duplicated().any() for frame in (a, b))
    one, other = (frame.assign(example_id=frame["document_id"]) for frame in (a, b))
    return one, other, several


def _has(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(frame[column].notna().any())


def _named(examples: pd.DataFrame) -> pd.DataFrame:
    columns = ["document", "document_id", "example_id", "length_tokens", "score", "bin_index"]
    return examples[columns].astype({"document_id": str, "example_id": str})


def _rows(frame: pd.DataFrame) -> Ints:
    """Row of each example's document, documents in order of length."""
    first = frame.groupby("document", sort=False)["length_tokens"].transform("min")
    order = np.lexsort((frame["document"].to_numpy(), first.to_numpy()))
    documents = frame["document"].to_numpy()[order]
    change = np.concatenate([[0], np.cumsum(documents[1:] != documents[:-1])])
    rows = np.empty(len(frame), dtype=np.int64)
    rows[order] = change
    return rows


def _side(frame: pd.DataFrame, score: pd.Series[float]) -> Side:
    row = _rows(frame)
    count = int(row.max()) + 1 if len(row) else 0
    n = np.bincount(row).astype(np.float64)
    s = np.bincount(row, weights=score.to_numpy(np.float64)).astype(np.float64)
    length = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(length, row, frame["length_tokens"].to_numpy(np.int64))
    place = np.full(count, -1, dtype=np.int64)
    place[row] = frame["bin_index"].to_numpy(np.int64)
    return Side(length, n, s, place, bool(score.isin((0.0, 1.0)).all()))


_AT_ONCE = 2_000_000
"""Random numbers in memory at a time."""


def adjusted_p_values(pairs: Pairs, permutations: int, rng: np.random.Generator) -> Floats:
    """Two-sided p-values of the overall difference and of each bin's, adjusted for all of them.

    (1 + bins,); NaN where a bin has no document. The least possible is 1 / (permutations + 1).
    """
    flips = _sign_flips if pairs.paired else _exchanges
    observed, drawn = flips(pairs, permutations, rng)
    largest = np.nanmax(np.abs(drawn), axis=1)
    # Equal up to rounding counts as reached: the observed order is one of the flips.
    reached = (largest[:, None] >= np.abs(observed)[None, :] - 1e-9).sum(axis=0)
    p: Floats = (1.0 + reached) / (permutations + 1.0)
    return np.where(np.isnan(observed), np.nan, p)


def _sign_flips(pairs: Pairs, permutations: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """T = sum of differences over the root of their sum of squares, per group; and under flips."""
    in_bin = pairs.a.bin_index[:, None] == np.arange(len(pairs.bins))
    groups = np.column_stack([np.ones(len(in_bin)), in_bin])  # overall, then bins (D, 1 + bins)
    change = pairs.b.s - pairs.a.s
    scale = np.sqrt(groups.T @ change**2)
    # No document changed: no evidence of a difference, unlike no document at all.
    scale = np.where((scale == 0) & (groups.sum(axis=0) > 0), 1.0, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        weighted = groups * change[:, None] / scale
    observed = weighted.sum(axis=0)
    weighted = np.nan_to_num(weighted)
    drawn = []
    step = max(1, _AT_ONCE // max(len(change), 1))
    for start in range(0, permutations, step):
        size = (min(step, permutations - start), len(change))
        drawn.append((2.0 * rng.integers(0, 2, size=size) - 1.0) @ weighted)
    return observed, np.concatenate(drawn)


def _exchanges(pairs: Pairs, permutations: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The same for documents that change sides within their bin, standardised by their own
    permutation variance."""
    bins = len(pairs.bins)
    sums = np.zeros((permutations + 1, 1 + bins))
    variance = np.zeros(1 + bins)
    for place in range(bins):
        one, other = (side.bin_index == place for side in (pairs.a, pairs.b))
        if not one.any() or not other.any():
            sums[:, 1 + place] = np.nan
            continue
        n = np.concatenate([pairs.a.n[one], pairs.b.n[other]])
        s = np.concatenate([pairs.a.s[one], pairs.b.s[other]])
        residual = s - n * (s.sum() / n.sum())
        in_b = np.arange(len(n)) >= int(one.sum())
        exchanged = np.empty(permutations + 1)
        exchanged[0] = residual[in_b].sum()
        chosen = int(in_b.sum())
        step = max(1, _AT_ONCE // len(n))
        for start in range(0, permutations, step):
            rows = min(step, permutations - start)
            order = np.argsort(rng.random((rows, len(n))), axis=1)[:, :chosen]
            exchanged[1 + start : 1 + start + rows] = residual[order].sum(axis=1)
        spread = float(exchanged[1:].var())
        sums[:, 1 + place] = exchanged
        sums[:, 0] += exchanged
        variance[1 + place] = spread
        variance[0] += spread
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    return sums[0] / scale, sums[1:] / scale


def at_same_lengths(
    sums: Sequence[Floats], drawn: Sequence[Floats], places: Sequence[Ints]
) -> tuple[list[Floats], list[Floats]]:
    """Two samples of other documents, weighted to the same mix of lengths.

    A bin counts as n_a n_b / (n_a + n_b), as in the statistic of the test (Mantel and Haenszel
    1959, Journal of the National Cancer Institute 22, 719-748); in each resample as well.

    Args:
        sums: (2, D) for each side: examples and summed scores per document.
        drawn: weights of the documents per resample (D, B), for each side.
        places: bins of the documents (D), for each side; the same bins occur on both.
    """
    bins = int(max(place.max() for place in places)) + 1
    each = [np.bincount(p, of[0], bins) for of, p in zip(sums, places, strict=True)]
    counts = each[0] * each[1] / np.maximum(each[0] + each[1], 1e-9)
    mixed, resampled = [], []
    for of, weights, place, count in zip(sums, drawn, places, each, strict=True):
        even = of * (counts / np.maximum(count, 1e-9))[place]
        weights = weights.copy()
        for bin in np.unique(place):
            rows = place == bin
            size = even[0, rows] @ weights[rows]
            with np.errstate(divide="ignore", invalid="ignore"):
                weights[rows] = np.where(size > 0, weights[rows] * (counts[bin] / size), 1.0)
        mixed.append(even)
        resampled.append(weights)
    return mixed, resampled


def difference_interval(
    one: Floats, other: Floats, weights: tuple[Floats, Floats], confidence: float
) -> tuple[float, float]:
    """Percentile bootstrap interval of mean(b) - mean(a), widened where documents are few or agree.

    By Student's t for few (`student`).
    Where no document changed, a bootstrap would claim certainty: the interval then is that of a
    share with no hits, +-(1 - tail^(1/D)) (Clopper and Pearson 1934).

    Args:
        one, other: (2, D): examples and summed scores per document.
        weights: of the documents per resample (D, B), for either side.
    """
    from scipy.special import ndtri

    first, second = weights
    mean_a = (one[1] @ first) / np.maximum(one[0] @ first, 1e-9)
    mean_b = (other[1] @ second) / np.maximum(other[0] @ second, 1e-9)
    drawn = mean_b - mean_a
    tail = 0.5 * (1.0 - confidence)
    low, high = np.quantile(drawn, (tail, 1.0 - tail))
    documents = np.array([max(min(one.shape[1], other.shape[1]), 2)], np.float64)
    normal = float(ndtri(1.0 - tail))
    wider = float(student(normal, documents)[0]) / normal
    low, high = (drawn[0] + wider * (end - drawn[0]) for end in (low, high))
    if np.ptp(drawn) < 1e-12:
        room = 1.0 - tail ** (1.0 / max(one.shape[1], 1))
        low, high = drawn[0] - room, drawn[0] + room
    return max(float(low), -1.0), min(float(high), 1.0)


def difference_curve(
    one: Side, other: Side, weights: tuple[Floats, Floats], confidence: float
) -> tuple[Ints, Floats, Floats, Floats]:
    """Smoothed difference over length with a simultaneous band: tokens, difference, low, high (P).

    A moving mean over 30% of the examples (tricube weights over their ranks, Cleveland 1979, JASA
    74, 829-836). The band holds the smoothed difference at all lengths at once: the quantile of the
    bootstrap's largest deviation in units of its SD, which is at least one document's, as one of
    Student's t (`student`).
    """
    lengths = np.concatenate([one.length_tokens, other.length_tokens])
    n = np.concatenate([one.n, other.n])
    order = np.argsort(lengths, kind="stable")
    rank = np.cumsum(n[order]) / n.sum()
    points = np.linspace(0.02, 0.98, 49)
    tokens = np.unique(np.interp(points, rank, lengths[order]).round().astype(np.int64))
    at = np.interp(tokens, lengths[order], rank)

    def smooth(side: Side, drawn: Floats) -> tuple[Floats, Floats]:
        side_rank = np.interp(side.length_tokens, lengths[order], rank)
        distance = np.abs(side_rank[None, :] - at[:, None]) / _HALF_SPAN
        kernel = np.where(distance < 1, (1 - np.minimum(distance, 1) ** 3) ** 3, 0.0)
        total = (kernel * side.n) @ drawn
        inside = kernel.sum(axis=1) ** 2 / np.maximum((kernel**2).sum(axis=1), 1e-9)
        return (kernel * side.s) @ drawn / np.maximum(total, 1e-9), inside

    mean_a, inside_a = smooth(one, weights[0])
    mean_b, inside_b = smooth(other, weights[1])
    drawn = mean_b - mean_a
    difference, resampled = drawn[:, 0], drawn[:, 1:]
    documents = np.maximum(np.minimum(inside_a, inside_b), 2.0)
    sd = np.maximum(resampled.std(axis=1), 1.0 / documents)
    deviation = np.abs(resampled - difference[:, None]) / sd[:, None]
    quantile = max(float(np.quantile(deviation.max(axis=0), confidence)), 2.0)
    half = student(quantile, documents) * sd
    low, high = np.maximum(difference - half, -1.0), np.minimum(difference + half, 1.0)
    return tokens, difference, low, high


def student(quantile: float, documents: Floats) -> Floats:
    """The normal ``quantile`` as one of Student's t, where the SD is of so few documents (P).

    A bootstrap of m documents takes their spread for the truth: it is sqrt((m - 1) / m) too small
    on average, and sometimes much smaller.
    """
    from scipy.special import ndtr, stdtrit

    t = np.asarray(stdtrit(documents - 1.0, ndtr(quantile)), np.float64)
    return t * np.sqrt(documents / (documents - 1.0))


_HALF_SPAN = 0.15
