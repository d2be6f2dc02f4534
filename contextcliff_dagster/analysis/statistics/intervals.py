"""Intervals of means, of fractions and of the length at which a fraction is lost.

Intervals of means are computed by resampling documents, or exactly for single 0/1 scores.

Limits of fractions and their differences allow for correlated outcomes: counts are divided by
the design effect 1 + (m - 1) rho for m outcomes per unit (Rao and Scott 1992, Biometrics 48,
577-585). These limits have a width even if all outcomes agree. The intraclass correlation rho
measures how similar the scores of two questions on one document are.

The length at which the mean has fallen by a tolerance (`loss_lengths`), for many resamples at once.
A certified cap is a confidence bound for this length and depends on n, so models are compared by
the length itself. The curve is one of

    mu(x) = m0 (1 - d s((x - c) / w)),   x = log length, s the logistic function or a step,

on a grid of centres c, widths w, depths d and plateaus m0, by quasi-binomial likelihood. On a grid
the likelihood of all members for all resamples is one matrix product, so that a bootstrap takes
about a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts.results.json_form import BinMean, MeanScore

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Crossing:
    """The length (tokens) at which a curve first passes a threshold, with its interval.

    ``tokens`` is None if outside the measured lengths; ``low`` if below the smallest, ``high`` if
    beyond the largest.
    """

    tokens: int | None
    low: int | None
    high: int | None


def crossing_of(
    drawn: Floats, lengths: Sequence[int], bar: float | Floats, tail: float
) -> Crossing:
    """Return the crossing of sampled curves (draws, lengths); ``tail``: share beyond either end.

    Curves are piecewise linear in log length; the ends are rounded outwards to ``lengths``, because
    nothing between them was measured.

    Args:
        bar: threshold of all curves, or of each curve (draws).
    """
    count = len(lengths)
    bars = np.broadcast_to(np.asarray(bar, np.float64), len(drawn))
    beyond = drawn > bars[:, None]
    index = np.where(beyond.any(axis=1), beyond.argmax(axis=1), count)
    reached = np.cumsum(np.bincount(index, minlength=count + 1)) / len(index)
    first = int(np.searchsorted(reached, tail, side="right"))
    last = int(np.searchsorted(reached, 1.0 - tail))
    x = np.log(lengths)
    inside = np.flatnonzero((index > 0) & (index < count))
    at, now = index[inside], drawn[inside, index[inside]]
    before = drawn[inside, at - 1]
    place = np.full(len(drawn), -np.inf)
    place[index == count] = np.inf
    place[inside] = x[at - 1] + (x[at] - x[at - 1]) * (bars[inside] - before) / (now - before)
    middle = float(np.quantile(place, 0.5, method="inverted_cdf"))
    return Crossing(
        round(float(np.exp(middle))) if np.isfinite(middle) else None,
        lengths[first - 1] if first > 0 else None,
        lengths[last] if last < count else None,
    )


_MOST_UNITS = 1_000
"""Above this number, neighbouring documents are summed first, which gives the same interval at a
lower cost."""


def chi_square_quantile(confidence: float) -> float:
    """Return the quantile of the chi-square distribution with one degree of freedom.

    >>> round(chi_square_quantile(0.95), 2)
    3.84
    """
    return NormalDist().inv_cdf(0.5 + 0.5 * confidence) ** 2


def document_interval(
    n: Floats, s: Floats, settings: AnalysisSettings, *key: int
) -> tuple[float, float] | tuple[None, None]:
    """Return the percentile interval of sum(s) / sum(n) by resampling documents; None if empty.

    Single 0/1 scores, one per document, get Clopper and Pearson's exact interval instead. If all
    documents have the same mean, a bootstrap sees no variation and would claim certainty. Then
    means of 0 or 1 get the exact interval and means in between get Wilson's, which is conservative
    for any score in [0, 1]; both use n = documents.

    Args:
        n, s: examples and summed scores per document (D).
        key: names the random stream, together with the seed of ``settings``.
    """
    confidence = settings.confidence
    if not len(n):
        return None, None
    if (n == 1).all() and np.isin(s, (0.0, 1.0)).all():
        return exact_interval(int(s.sum()), len(n), confidence)
    means = s / n
    if np.ptp(means) < 1e-12:
        return agreeing_interval(float(means[0]), len(n), confidence)
    if len(n) > _MOST_UNITS:
        unit = np.arange(len(n)) * _MOST_UNITS // len(n)
        first = np.flatnonzero(np.diff(unit, prepend=-1))
        n, s = np.add.reduceat(n, first), np.add.reduceat(s, first)
    rng = np.random.default_rng((settings.seed, *key))
    drawn = rng.integers(0, len(n), size=(settings.resamples, len(n)))
    resampled = s[drawn].sum(axis=1) / n[drawn].sum(axis=1)
    tail = 0.5 * (1.0 - confidence)
    low, high = np.quantile(resampled, (tail, 1.0 - tail))
    return float(low), float(high)


def mean_score(examples: pd.DataFrame, settings: AnalysisSettings, *key: int) -> MeanScore:
    """Return the mean score of ``examples``, with its interval over documents."""
    per_document = examples.groupby("document")["score"].agg(["size", "sum"])
    counts, sums = (per_document[of].to_numpy(np.float64) for of in ("size", "sum"))
    low, high = document_interval(counts, sums, settings, *key)
    n = len(examples)
    return MeanScore(n, float(examples["score"].mean()) if n else None, low, high)


def bin_means(
    bins: Sequence[LengthBin], examples: pd.DataFrame, settings: AnalysisSettings, *key: int
) -> list[BinMean]:
    """Return the `mean_score` of each bin; the bin's number is appended to ``key``."""
    rows = []
    for i, length_bin in enumerate(bins):
        score = mean_score(examples[examples["bin_index"] == i], settings, *key, i)
        rows.append(BinMean(length_bin.bin, score.n, score.mean, score.ci_low, score.ci_high))
    return rows


def exact_interval(hits: float, count: float, confidence: float) -> tuple[float, float]:
    """Return the exact interval of a probability, given ``hits`` in ``count`` independent trials.

    Each tail holds at most half of 1 - ``confidence``, for every probability (Clopper and Pearson
    1934, Biometrika 26, 404-413; by quantiles of the beta distribution): slightly conservative.

    >>> low, high = exact_interval(9, 10, 0.95)
    >>> round(low, 3), round(high, 3)
    (0.555, 0.997)
    """
    from scipy.special import betaincinv

    tail = 0.5 * (1.0 - confidence)
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1.0 - tail)) if hits < count else 1.0
    return low, high


def binomial_quantile(probability: float, count: int, chance: float) -> int:
    """Return the ``probability`` quantile of the hits in ``count`` trials with chance ``chance``.

    Equals ``scipy.stats.binom.ppf``, whose module takes half a second and 22 MB to load.

    >>> binomial_quantile(0.025, 20, 0.5)
    6
    """
    from scipy.special import bdtr

    return int(np.searchsorted(bdtr(np.arange(count + 1), count, chance), probability))


def agreeing_interval(mean: float, count: int, confidence: float) -> tuple[float, float]:
    """Return the interval of a mean on which ``count`` units agree: exact at 0 or 1, else Wilson.

    >>> low, high = agreeing_interval(0.5, 10, 0.95)
    >>> round(low, 3), round(high, 3)
    (0.237, 0.763)
    """
    tail = 0.5 * (1.0 - confidence)
    if mean <= 1e-12:
        return 0.0, 1.0 - tail ** (1.0 / count)
    if mean >= 1.0 - 1e-12:
        return tail ** (1.0 / count), 1.0
    low, high = wilson_limits(mean, count, chi_square_quantile(confidence) ** 0.5)
    return max(0.0, low), min(1.0, high)


def ratio_interval(
    low_n: float, low_s: float, high_n: float, high_s: float, dispersion: float, quantile: float
) -> tuple[float, float]:
    """Return the interval of 1 - (S0 / N0) / (S1 / N1) by the log ratio (Katz et al. 1978).

    Adds half a point to sums and 1 to counts, so that a sum of 0 has an interval. The variance is
    ``dispersion`` times the binomial variance; ``quantile`` is a chi-square quantile.

    >>> low, high = ratio_interval(100, 45, 100, 90, 1.0, chi_square_quantile(0.95))
    >>> round(low, 2), round(high, 2)
    (0.37, 0.6)
    """
    p0, p1 = (low_s + 0.5) / (low_n + 1), (high_s + 0.5) / (high_n + 1)
    variance = dispersion * ((1 - p0) / (low_n * p0) + (1 - p1) / (high_n * p1))
    half = np.sqrt(quantile * variance)
    ratio = p0 / p1
    return float(1 - ratio * np.exp(half)), float(1 - ratio * np.exp(-half))


LEAST_REPEATED = 10
"""Minimum number of documents with several questions for an estimate."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """An intraclass correlation: ``value`` 0..1 with its 95% interval, from ``documents``
    documents; ``repeated`` of them have several questions."""

    value: float
    low: float
    high: float
    documents: int
    repeated: int


def intraclass_correlation(document: Ints, score: Floats, stratum: Ints) -> Correlation | None:
    """Return the intraclass correlation of scores on one document by ANOVA, clipped at 0.

    The estimate is (F - 1) / (F + n0 - 1), with F = MSB / MSW the ratio of the mean squares between
    and within documents and n0 = (N - sum of n_d^2 / N) / (D - 1), as in Donner 1986 (International
    Statistical Review 54, 67-82). Means are taken within strata (length bins), and sums of squares
    and n0 are pooled: otherwise a falling curve would count as similarity within documents. The
    interval inserts the limits of F (Searle 1971, Linear Models, chapter 9: exact for normal scores
    and equal groups); with 0/1 scores on 80 documents of 1-7 questions it covered .92 to .98 of
    simulated correlations up to .3, and .79 at .6.

    Args:
        document, score, stratum: of each example (N); a document lies in one stratum.

    Returns:
        ``None`` with fewer than 10 documents with several questions, or if all scores are equal.
    """
    from scipy.special import fdtri

    _, first, group = np.unique(document, return_index=True, return_inverse=True)
    n = np.bincount(group).astype(np.float64)
    repeated = int((n > 1).sum())
    if repeated < LEAST_REPEATED or np.ptp(score) < 1e-12:
        return None
    mean = np.bincount(group, weights=score) / n
    within = float(((score - mean[group]) ** 2).sum())
    _, place = np.unique(stratum[first], return_inverse=True)
    total = np.bincount(place, weights=n)
    of_stratum = np.bincount(place, weights=n * mean) / total
    between = float((n * (mean - of_stratum[place]) ** 2).sum())
    documents, questions = len(n) - len(total), len(score) - len(n)
    if documents < 1:
        return None
    size = float((total - np.bincount(place, weights=n**2) / total).sum()) / documents
    ratio = (between / documents) / max(within / questions, 1e-12)

    def likeness(f: float) -> float:
        return float(np.clip((f - 1.0) / (f + size - 1.0), 0.0, 1.0))

    least, most = (float(fdtri(documents, questions, tail)) for tail in (0.025, 0.975))
    return Correlation(
        likeness(ratio), likeness(ratio / most), likeness(ratio / least), len(n), repeated
    )


ASSUMED_CORRELATION = 0.2
"""Assumed correlation of two outcomes of one unit if too few answers differ to estimate it."""
_ASSUMED_WEIGHT = 10.0
"""Weight of the assumption, in answers that differ from the majority. An estimate from one or two
is near 0 or 1 by chance and would give 39 right of 40 a narrower interval than 40 of 40."""


def band_quantile(confidence: float, members: int) -> float:
    """Return the normal quantile for ``members`` simultaneous two-sided intervals (Bonferroni).

    >>> round(band_quantile(0.95, 9), 2)
    2.77
    """
    return NormalDist().inv_cdf(1.0 - 0.5 * (1.0 - confidence) / members)


def design_effect(n: Ints, correlation: float) -> float:
    """Return the design effect of correlated outcomes; ``n``: number of outcomes per unit (D)."""
    return float(1.0 + ((n**2).sum() / max(n.sum(), 1) - 1.0) * correlation)


def wilson_limits(share: float, n: float, z: float) -> tuple[float, float]:
    """Return Wilson's limits (1927, JASA 22, 209-212) of a fraction of ``n`` effective outcomes."""
    middle = (share + z**2 / (2.0 * n)) / (1.0 + z**2 / n)
    half = z * (share * (1.0 - share) / n + (z / (2.0 * n)) ** 2) ** 0.5 / (1.0 + z**2 / n)
    return middle - half, middle + half


def newcombe_limits(
    a: tuple[float, float], b: tuple[float, float], z: float
) -> tuple[float, float]:
    """Return limits of the difference of two fractions, each with its effective sample size.

    Squares and adds Wilson's limits (Newcombe 1998, Statistics in Medicine 17, 873-890).
    """
    (low_a, high_a), (low_b, high_b) = wilson_limits(*a, z), wilson_limits(*b, z)
    difference = a[0] - b[0]
    below = ((a[0] - low_a) ** 2 + (high_b - b[0]) ** 2) ** 0.5
    above = ((high_a - a[0]) ** 2 + (b[0] - low_b) ** 2) ** 0.5
    return max(difference - below, -1.0), min(difference + above, 1.0)


def score_correlation(document: Ints, score: Floats, stratum: Ints) -> tuple[float, bool]:
    """Return the correlation of two outcomes of one unit, and whether it is only the default.

    Args:
        document, score, stratum: of each outcome (N); a unit lies in one stratum.
    """
    return shrunk_correlation(
        document, score, stratum, float(min(score.sum(), (1.0 - score).sum()))
    )


def shrunk_correlation(
    document: Ints, score: Floats, stratum: Ints, differ: float
) -> tuple[float, bool]:
    """Return the intraclass correlation, shrunk toward the default, and whether it is the default.

    Args:
        differ: sum of the differences from the commoner outcome; the weight of the estimate.
    """
    measured = intraclass_correlation(document, score, stratum) if len(document) else None
    if measured is None:
        return ASSUMED_CORRELATION, True
    known = differ * measured.value + _ASSUMED_WEIGHT * ASSUMED_CORRELATION
    return known / (differ + _ASSUMED_WEIGHT), False


_PARAMETERS = 3
_BANDWIDTH = 0.08
"""SD of the smoothing kernel, as a fraction of the examples."""
_BORROWED = 8.0
"""Weight of the overall dispersion in each neighbourhood, as a number of documents."""
_LEAST_DISPERSION = 0.1


def local_dispersion(documents: Documents, upper: Ints) -> Floats:
    """Return the dispersion of the scores of neighbouring documents, for cells up to ``upper`` (G).

    phi = sum_d (s_d - n_d mu_d)^2 / sum_d n_d mu_d (1 - mu_d) * D / (D - 3) over documents d near
    the cell, with mu the best mean that never rises (isotonic regression). The sums are over whole
    documents, to include the correlation of questions on one document (Liang and Zeger 1986). phi
    is at least .1, and at least 1 for 0/1 scores.
    """
    if documents.binary and documents.n.max() == 1:  # single 0/1 scores are binomial
        return np.ones(len(upper))
    from scipy.optimize import isotonic_regression

    n, s = documents.n, documents.s
    mu = isotonic_regression(s / n, weights=n, increasing=False).x.clip(0.01, 0.99)
    off, expected = (s - n * mu) ** 2, n * mu * (1.0 - mu)
    count = len(n)
    overall = off.sum() / expected.sum()
    borrowed = _BORROWED * expected.mean()
    cell = np.searchsorted(upper, documents.length_tokens)
    size, off, expected = (np.bincount(cell, of, len(upper)) for of in (n, off, expected))
    middle = (np.cumsum(size) - 0.5 * size) / size.sum()
    near = np.exp(-0.5 * np.square((middle[:, None] - middle[None, :]) / _BANDWIDTH))
    phi = (near @ off + borrowed * overall) / (near @ expected + borrowed)
    least = 1.0 if documents.binary else _LEAST_DISPERSION
    out: Floats = np.maximum(phi * count / max(count - _PARAMETERS, 1), least)
    return out


BASELINE_SHARE = 0.15
"""Fraction of the examples, shortest first, that form the baseline of a loss."""
_CELLS = 40
_CENTRES = 32
_WIDTHS = (0.0, 0.05, 0.12, 0.28)
"""Widths of the drop, as shares of the range of log length."""
_DEPTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_PLATEAUS = 9
_LEAST, _MOST = 1e-3, 1.0 - 1e-3


def loss_lengths(
    length_tokens: Ints,
    n: Floats,
    s: Floats,
    weights: Floats,
    tolerance: float | None,
    chance: float,
) -> Floats:
    """Return the log length at which each resample's best curve falls by ``tolerance``.

    Args:
        length_tokens: lengths of the documents, ascending (D).
        n, s: examples and summed scores per document (D).
        weights: count of each document in each resample (D, B).
        tolerance: None for half the drop of each curve, which is at its centre c.
        chance: mean score of guessing; losses are measured above it.

    Returns:
        (B,), ``inf`` if the curve does not fall that far within the measured lengths.
    """
    cell = _cells(length_tokens, n)
    count = int(cell[-1]) + 1
    first = np.searchsorted(cell, np.arange(count))
    total = np.add.reduceat(n, first)
    x = np.add.reduceat(n * np.log(length_tokens), first) / total
    drawn_n = np.add.reduceat(weights * n[:, None], first, axis=0)
    drawn_s = np.add.reduceat(weights * s[:, None], first, axis=0)
    shape, place = _family(x, total, tolerance)
    k = _baseline(total)
    level = float((s @ weights.mean(axis=1)) / max(float(n @ weights.mean(axis=1)), 1e-9))
    base = drawn_s[:k].sum(axis=0) / np.maximum(drawn_n[:k].sum(axis=0), 1e-9)
    plateaus = np.unique(
        np.linspace(min(float(base.min()), level), min(float(base.max()) + 0.02, 1.0), _PLATEAUS)
    ).clip(chance + 0.02, _MOST)
    best = np.full(weights.shape[1], -np.inf)
    lengths = np.full(weights.shape[1], np.inf)
    failed = drawn_n - drawn_s
    for plateau in plateaus:
        mean = np.clip(chance + (plateau - chance) * shape, _LEAST, _MOST)
        likelihood = np.log(mean) @ drawn_s + np.log1p(-mean) @ failed
        top = np.argmax(likelihood, axis=0)
        value = likelihood[top, np.arange(likelihood.shape[1])]
        better = value > best
        best, lengths = np.where(better, value, best), np.where(better, place[top], lengths)
    return lengths


def resample_weights(documents: int, resamples: int, rng: np.random.Generator) -> Floats:
    """Return each document's count per resample (D, B + 1); the first is the sample itself."""
    drawn = rng.multinomial(documents, np.full(documents, 1.0 / documents), size=resamples)
    return np.concatenate([np.ones((1, documents)), drawn.astype(np.float64)]).T


def rank_groups(n: NDArray[Any], count: int) -> Ints:
    """Return each document's group (D); the ``count`` groups are neighbours with similar ``n``."""
    middle = np.cumsum(n) - 0.5 * n
    out: Ints = np.minimum((middle / n.sum() * count).astype(np.int64), count - 1)
    return out


def thinned(values: Ints, most: int) -> Ints:
    """Return at most ``most`` of ``values``, evenly spaced."""
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).round().astype(np.int64)]


def _cells(length_tokens: Ints, n: Floats) -> Ints:
    """Return each document's cell: at most 40 of similar n, never dividing equal lengths."""
    cell = rank_groups(n, _CELLS)
    _, same = np.unique(length_tokens, return_inverse=True)
    first = np.searchsorted(same, np.arange(int(same[-1]) + 1))
    _, dense = np.unique(cell[first][same], return_inverse=True)
    return np.asarray(dense, dtype=np.int64)


def _baseline(total: Floats) -> int:
    reached = np.cumsum(total) >= BASELINE_SHARE * total.sum() - 1e-9
    return min(int(np.argmax(reached)) + 1, len(total))


def _family(x: Floats, total: Floats, tolerance: float | None) -> tuple[Floats, Floats]:
    """Return each member's shape (J, G) and the log length at which it falls by ``tolerance`` (J).

    Without a tolerance, the log length is that of its centre.
    """
    k = _baseline(total)
    span = max(float(x[-1] - x[0]), 1e-6)
    edges = 0.5 * (x[:-1] + x[1:])[max(k - 1, 0) :]
    smooth = np.linspace(float(x[0]), float(x[-1]) + 0.25 * span, _CENTRES)
    shapes, places = [np.ones((1, len(x)))], [np.array([np.inf])]
    for width in _WIDTHS:
        centres = edges if width == 0.0 else smooth
        if not len(centres):
            continue
        c, d = (g.ravel() for g in np.meshgrid(centres, np.array(_DEPTHS[1:]), indexing="ij"))
        w = max(width * span, 1e-9)
        lost = 1.0 / (1.0 + np.exp(-np.clip((x[None, :] - c[:, None]) / w, -35.0, 35.0)))
        shape = 1.0 - d[:, None] * lost
        place = c
        if tolerance is not None:
            base = shape[:, :k] @ (total[:k] / total[:k].sum())
            share = (1.0 - (1.0 - tolerance) * base) / d
            with np.errstate(divide="ignore", invalid="ignore"):
                place = np.where(share < 1.0 - 1e-9, c + w * np.log(share / (1.0 - share)), np.inf)
        shapes.append(shape)
        places.append(np.where(place <= x[-1], np.maximum(place, x[0]), np.inf))
    return np.concatenate(shapes), np.concatenate(places)
