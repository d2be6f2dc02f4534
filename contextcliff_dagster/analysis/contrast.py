"""Differences of two measurements: the examples they share, with intervals and tests.

Tests and intervals use documents as units. Paired: under the hypothesis that nothing changed, a
document's difference is equally likely to have either sign, so signs are flipped per document
(Fisher 1935, The Design of Experiments). Unpaired: documents change sides within their length bin.
All statistics (overall and per bin) use the same flips, and a p-value is the part of flips whose
largest statistic reaches the observed one, which controls the familywise error rate (single-step
max-T, Westfall and Young 1993, Resampling-Based Multiple Testing).

Experiments use clusters of pairs as units, in strata: `ClusterMeans` gives the mean with interval
and limit, `sign_flip_p_value` and `studentized_flips` test it, `units_needed` plans sample size.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.records import clean_records
from contextcliff_dagster.contracts import LengthBin
from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Side:
    """One measurement's documents, shortest first; arrays of length D.

    ``n``: number of examples; ``s``: sum of their scores; ``binary``: every score is 0 or 1.
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
        paired: whether both answered the same examples; if so, ``a`` and ``b`` are aligned by
            document and contain only the examples that both answered.
        bins: in order of length.
        examples_a, examples_b: aligned scores per example (E), if paired.
        example_document: row of each example's document (E), if paired.
        only_a, only_b: number of examples that only one side answered.
        averaged: whether each document's answers were averaged for lack of example ids.
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
    """Pair the records of two measurements by example; ``a`` provides lengths and bins.

    If a side has no example ids but both have document ids, all answers on a document count as
    one example. If a side has no document ids, examples are paired by their own ids, if unique.
    If no example is shared, the two sides are compared unpaired.

    Raises:
        ContextCliffError: records that cannot be analysed (see `records.clean_records`).
    """
    import pandas as pd

    a, b, averaged = _by_document(a, b)
    sample_a = clean_records(a, bins)
    # Studies use the same bin names for different lengths: B's names are unrelated to A's.
    sample_b = clean_records(b.drop(columns="bin", errors="ignore"), sample_a.bins)
    one, other = _named(sample_a.examples), _named(sample_b.examples)
    keys = ["document_id", "example_id"]
    named = [side[side["example_id"] != ""] for side in (one, other)]
    unique = not any(side["example_id"].duplicated().any() for side in named)
    if unique and sample_a.documents_known != sample_b.documents_known:
        keys = ["example_id"]
    common = pd.merge(
        named[0], named[1][[*keys, "document", "score"]], on=keys, suffixes=("_a", "_b")
    )
    only_b_names = sample_b.documents_known and not sample_a.documents_known
    common["document"] = common["document_b" if only_b_names else "document_a"]
    common = common.sort_values(["length_tokens", *keys], ignore_index=True)
    paired = len(common) > 0
    return Pairs(
        paired,
        _side(common, common["score_a"]) if paired else _side(one, one["score"]),
        _side(common, common["score_b"]) if paired else _side(other, other["score"]),
        sample_a.bins,
        common["score_a"].to_numpy(np.float64),
        common["score_b"].to_numpy(np.float64),
        _rows(common),
        only_a=len(one) - len(common),
        only_b=len(other) - len(common),
        averaged=averaged,
    )


def _by_document(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, bool]:
    """Return both sides, with documents as examples if needed, and whether any were averaged."""
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
    """Return the row number of each example's document, with documents in order of length."""
    first = frame.groupby("document")["length_tokens"].min().sort_values(kind="stable")
    row_of = {document: row for row, document in enumerate(first.index)}
    return frame["document"].map(row_of).to_numpy(np.int64)


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
"""Maximum number of random numbers held in memory at a time."""


def adjusted_p_values(pairs: Pairs, permutations: int, rng: np.random.Generator) -> Floats:
    """Return adjusted two-sided p-values for the overall difference and for each bin's.

    (1 + bins,); NaN for a bin without documents. The smallest possible is 1 / (permutations + 1).
    """
    flips = _sign_flips if pairs.paired else _exchanges
    observed, drawn = flips(pairs, permutations, rng)
    largest = np.nanmax(np.abs(drawn), axis=1)
    # Equality up to rounding counts as reached: the observed order is one of the flips.
    reached = (largest[:, None] >= np.abs(observed)[None, :] - 1e-9).sum(axis=0)
    p: Floats = (1.0 + reached) / (permutations + 1.0)
    return np.where(np.isnan(observed), np.nan, p)


def _sign_flips(pairs: Pairs, permutations: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return T = sum of differences / root of their sum of squares, as observed and per flip."""
    in_bin = pairs.a.bin_index[:, None] == np.arange(len(pairs.bins))
    groups = np.column_stack([np.ones(len(in_bin)), in_bin])  # overall, then bins (D, 1 + bins)
    change = pairs.b.s - pairs.a.s
    scale = np.sqrt(groups.T @ change**2)
    # No changed document means no evidence of a difference, unlike no document at all.
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
    """Return each group's statistic, observed and under exchanges of documents within bins,
    standardised by its permutation variance."""
    bins = len(pairs.bins)
    sums = np.zeros((permutations + 1, 1 + bins))
    variance = np.zeros(1 + bins)
    for place in range(bins):
        one, other = (side.bin_index == place for side in (pairs.a, pairs.b))
        if not one.any() or not other.any():
            sums[:, 1 + place] = np.nan
            continue
        sides = (pairs.a.n[one], pairs.a.s[one]), (pairs.b.n[other], pairs.b.s[other])
        exchanged = exchanged_sums(*sides, permutations, rng)
        spread = float(exchanged[1:].var())
        sums[:, 1 + place] = exchanged
        sums[:, 0] += exchanged
        variance[1 + place] = spread
        variance[0] += spread
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    return sums[0] / scale, sums[1:] / scale


def exchanged_sums(
    one: tuple[Floats, Floats],
    other: tuple[Floats, Floats],
    permutations: int,
    rng: np.random.Generator,
) -> Floats:
    """Return the summed excess of ``other`` over the common mean (1 + permutations).

    The first value is the observed one; the others come from permuted sides.

    Args:
        one, other: examples and summed scores of each document of a side.
    """
    n, s = (np.concatenate(both) for both in zip(one, other, strict=True))
    residual = s - n * (s.sum() / n.sum())
    exchanged = np.empty(permutations + 1)
    exchanged[0] = residual[len(one[0]) :].sum()
    chosen = len(other[0])
    step = max(1, _AT_ONCE // len(n))
    for start in range(0, permutations, step):
        rows = min(step, permutations - start)
        order = np.argsort(rng.random((rows, len(n))), axis=1)[:, :chosen]
        exchanged[1 + start : 1 + start + rows] = residual[order].sum(axis=1)
    return exchanged


def at_same_lengths(
    sums: Sequence[Floats], drawn: Sequence[Floats], places: Sequence[Ints]
) -> tuple[list[Floats], list[Floats]]:
    """Weight two samples of different documents to the same mix of lengths.

    The weight of a bin is n_a n_b / (n_a + n_b), as in the test statistic (Mantel and Haenszel
    1959, Journal of the National Cancer Institute 22, 719-748), also in each resample.

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
    """Return the bootstrap interval of mean(b) - mean(a), widened for few or agreeing documents.

    Few documents widen it by Student's t (`student`).
    If no document changed, a bootstrap would claim certainty; then it is the interval of a share
    with no hits, +-(1 - tail^(1/D)) (Clopper and Pearson 1934).

    Args:
        one, other: (2, D): examples and summed scores per document.
        weights: weights of the documents in each resample (D, B), for each side.
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
    """Return the smoothed difference with a simultaneous band: tokens, difference, low, high (P).

    Uses a moving mean over 30% of the examples (tricube weights over their ranks, Cleveland 1979,
    JASA 74, 829-836). The band covers the smoothed difference at all lengths at once. It uses the
    quantile of the bootstrap's largest deviation in units of its SD, which is at least that of one
    document, adjusted to Student's t (`student`).
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
    """Return the normal ``quantile`` converted to Student's t for few documents (P).

    A bootstrap of m documents underestimates the spread, by sqrt((m - 1) / m) on average and
    sometimes by much more.
    """
    from scipy.special import ndtr, stdtrit

    t = np.asarray(stdtrit(documents - 1.0, ndtr(quantile)), np.float64)
    return t * np.sqrt(documents / (documents - 1.0))


_HALF_SPAN = 0.15


AGREE = 1e-9
"""A standard error below this is a rounding error and counts as 0."""


@dataclass(frozen=True, eq=False, slots=True)
class ClusterMeans:
    """Means of at least one cluster (C), each with a stratum and a weight.

    >>> means = ClusterMeans(np.array([0.1, 0.3, 0.5, 0.7]), np.array([0, 0, 1, 1]))
    >>> round(means.mean, 3), round(means.standard_error, 3), round(means.degrees, 3)
    (0.4, 0.071, 2.0)
    """

    values: Floats
    stratum: Ints
    weight: Floats | float = 1.0

    @classmethod
    def of(cls, values: Floats, cluster: Ints) -> ClusterMeans | None:
        """Return the cluster means of the pairs' values (P, NaN if missing), weighted by pairs.

        All clusters are in one stratum. None if no pair has a value.
        """
        known = ~np.isnan(values)
        if not known.any():
            return None
        _, place, n = np.unique(cluster[known], return_inverse=True, return_counts=True)
        means = np.bincount(place, weights=values[known]) / n
        return cls(means, np.zeros(len(n), np.int64), n.astype(np.float64))

    @property
    def mean(self) -> float:
        """Return the weighted mean over clusters."""
        return float(np.average(self.values, weights=self._weights))

    @property
    def standard_error(self) -> float:
        """Return the SE of the mean, a ratio of sums over clusters; nan with a single cluster."""
        return math.sqrt(self._parts.sum()) / float(self._weights.sum())

    @property
    def degrees(self) -> float:
        """Return Welch-Satterthwaite degrees of freedom (1946, Biometrics Bulletin 2, 110-114)."""
        parts = self._parts
        sizes = np.array([mask.sum() for mask in _strata(self.stratum)])
        if parts.sum() < AGREE**2:
            return float(len(self.values) - len(sizes))
        return float(parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum())

    def interval(
        self, confidence: float, within: tuple[float, float] = (-1.0, 1.0)
    ) -> tuple[float, float] | tuple[None, None]:
        """Return the two-sided interval of the mean, limited to ``within``; None for one cluster.

        If all clusters agree, others might still differ, so the interval is that of a share with
        no hits, +-(1 - tail^(1/C)) (Clopper and Pearson 1934, Biometrika 26, 404-413).
        """
        if len(self.values) < 2:
            return None, None
        tail = 0.5 * (1.0 - confidence)
        if self.standard_error < AGREE:
            half = float(1.0 - tail ** (1.0 / len(self.values)))
        else:
            half = self._quantile(1.0 - tail) * self.standard_error
        return max(self.mean - half, within[0]), min(self.mean + half, within[1])

    def upper(self, probability: float, whole: float) -> float | None:
        """Return the upper limit, at most 1, with the variance of half a cluster at ``whole``.

        So clusters that agree do not count as proof, and a rare difference as large as ``whole`` is
        not ruled out because none was seen. None for a single cluster.

        Args:
            probability: coverage of the limit: .95 one-sided, .975 for a 95% interval.
        """
        if len(self.values) < 2:
            return None
        variance = self.standard_error**2 + 0.5 * whole**2 / len(self.values) ** 2
        return min(self.mean + self._quantile(probability) * math.sqrt(variance), 1.0)

    @property
    def _weights(self) -> Floats:
        return np.broadcast_to(np.asarray(self.weight, np.float64), self.values.shape)

    @property
    def _parts(self) -> Floats:
        """Return each stratum's contribution to the variance of the weighted sum."""
        apart = self._weights * (self.values - self.mean)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.array(
                [mask.sum() * np.var(apart[mask], ddof=1) for mask in _strata(self.stratum)]
            )

    def _quantile(self, probability: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.degrees, probability))


def _strata(stratum: Ints) -> list[np.ndarray]:
    """Return each stratum's clusters (S x C), merging all strata if one has a single cluster."""
    names, sizes = np.unique(stratum, return_counts=True)
    if (sizes < 2).any():
        return [np.ones(len(stratum), bool)]
    return [stratum == name for name in names]


MOST_EXACT = 20
"""Maximum number of differing units for which all sign flips are enumerated."""
_MOST_WHOLE = 100_000


def sign_flip_p_value(
    change: Floats, permutations: int, rng: np.random.Generator, *, one_sided: bool = False
) -> tuple[float, bool]:
    """Return the p-value of a sum of differences, one per unit (D), and whether it is exact.

    If conditions do not differ, a unit's difference is equally likely to have either sign (Fisher
    1935, The Design of Experiments). Exact for whole numbers, by the distribution of their sum, and
    for up to `MOST_EXACT` differing units, over all signs; otherwise by ``permutations`` random
    flips and the observed signs, (1 + reached) / (1 + drawn).

    Args:
        one_sided: count only sums at least as large as the observed one, not the opposite ones.

    >>> change = np.array([0.1, 0.2, 0.3])
    >>> sign_flip_p_value(change, 99, np.random.default_rng(0))
    (0.25, True)
    >>> sign_flip_p_value(change, 99, np.random.default_rng(0), one_sided=True)
    (0.125, True)
    """
    size, observed = np.sort(np.abs(change[change != 0.0])), float(change.sum())

    def reached(sums: Floats) -> Bools:
        if one_sided:
            return sums >= observed - 1e-9
        return np.abs(sums) >= abs(observed) - 1e-9

    if (size == np.round(size)).all() and size.sum() <= _MOST_WHOLE:
        whole = size.astype(np.int64)
        total = int(whole.sum())
        chance = np.zeros(2 * total + 1)
        chance[total] = 1.0
        for step in whole:
            chance = 0.5 * (np.roll(chance, step) + np.roll(chance, -step))
        return min(float(chance[reached(np.arange(-total, total + 1.0))].sum()), 1.0), True
    if len(size) <= MOST_EXACT:
        sums = np.zeros(1)
        for step in size:
            sums = np.concatenate([sums - step, sums + step])
        return float(reached(sums).mean()), True
    reached_by = 0
    at_once = max(1, _AT_ONCE // len(size))
    for first in range(0, permutations, at_once):
        rows = min(at_once, permutations - first)
        drawn = (2.0 * rng.integers(0, 2, size=(rows, len(size))) - 1.0) @ size
        reached_by += int(reached(drawn).sum())
    return (1.0 + reached_by) / (1.0 + permutations), False


MOST_STUDENTISED = 14
"""Maximum number of differing pairs for which all flips are enumerated."""


def studentized_flips(
    change: Floats, cluster: Ints, stratum: Ints, draws: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """Return the two-sided p-value of no mean difference, and whether it uses all flips.

    If not, it uses ``draws`` random flips, (1 + reached) / (1 + drawn). Pairs without a
    difference count in the mean and are not flipped; if no pair differs, p is 1.

    Args:
        change: difference of each pair (P); clusters have equal weight.
        cluster: cluster of each pair, 0 to C - 1, none empty; at least two.
        stratum: stratum of each cluster (C), as in `ClusterMeans`.

    >>> change, cluster = np.array([0.1, 0.2, 0.3, 0.1]), np.array([0, 0, 1, 1])
    >>> studentized_flips(change, cluster, np.zeros(2, int), 99, np.random.default_rng(0))
    (0.125, True)
    """
    differs = change != 0.0
    if not differs.any():
        return 1.0, True
    clusters = int(cluster.max()) + 1
    weights = np.zeros((int(differs.sum()), clusters))
    weights[np.arange(len(weights)), cluster[differs]] = 1.0
    weights *= change[differs][:, None] / np.bincount(cluster, minlength=clusters)[None, :]
    weights /= np.abs(change).max()
    masks = _strata(stratum)
    observed = _studentised(weights.sum(axis=0)[None, :], masks)[0]
    exact = len(weights) <= MOST_STUDENTISED
    total = 2 ** len(weights) if exact else draws
    reached = 0
    at_once = max(1, _AT_ONCE // len(weights))
    for first in range(0, total, at_once):
        rows = min(at_once, total - first)
        if exact:
            number = np.arange(first, first + rows)[:, None]
            up = (number >> np.arange(len(weights))[None, :]) & 1
        else:
            up = rng.integers(0, 2, size=(rows, len(weights)), dtype=np.int8)
        drawn = _studentised((2.0 * up - 1.0) @ weights, masks)
        reached += int((drawn >= observed * (1.0 - 1e-6)).sum())
    return (reached / total, True) if exact else ((1.0 + reached) / (1.0 + total), False)


def _studentised(means: Floats, masks: list[np.ndarray]) -> Floats:
    """Return |mean| / standard error of cluster means (B, C)."""
    clusters = means.shape[1]
    variance = np.zeros(len(means))
    for mask in masks:
        variance += mask.sum() * np.var(means[:, mask], axis=1, ddof=1)
    # Agreeing clusters have no spread: the larger mean is the more extreme.
    error = np.sqrt(variance) / clusters + AGREE
    mean = np.abs(means.mean(axis=1))
    mean[mean < AGREE] = 0.0  # the sum of fractions that cancel is rarely 0
    return np.asarray(mean / error)


def units_needed(
    effect: float,
    variance: float,
    level: float,
    power: float,
    *,
    strata: int = 1,
    pairs: float = 1.0,
    two_sided: bool = True,
    most: int = 10_000,
) -> int | None:
    """Return the units per stratum needed to detect a mean difference ``effect`` with ``power``.

    Uses the noncentral t distribution with strata x (units - 1) degrees of freedom, which
    approximates the power of sign flips. The result is never too small to reach the significance
    level. None if more than ``most`` are needed.

    Args:
        variance: variance of a unit's difference, within its stratum.
        level: significance level of the one- or two-sided test.
        pairs: pairs per unit, whose signs are flipped separately.
    """
    from scipy.special import nctdtr, stdtrit

    tail = 0.5 * level if two_sided else level

    def enough(units: int) -> bool:
        degrees = float(strata * (units - 1))
        critical = stdtrit(degrees, 1.0 - tail)
        # Beyond a shift of 35 the distribution function may fail, and the power is 1.
        shift = min(effect * math.sqrt(strata * units / max(variance, 1e-12)), 37.0)
        missed = float(nctdtr(degrees, shift, critical))
        powerful = math.isnan(missed) or 1.0 - missed >= power
        return powerful and 0.5 ** (strata * units * pairs) <= tail

    if not enough(most):
        return None
    return 2 + bisect_left(range(2, most), True, key=enough)
