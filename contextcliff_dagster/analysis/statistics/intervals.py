"""Intervals for means of scores whose units are documents."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts.results.fields import BinMean, MeanScore

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.arrays import Floats

_MOST_UNITS = 1_000
"""More documents than this are summed with their neighbours first: the interval is the same, the
cost is not."""


def chi_square_quantile(confidence: float) -> float:
    """Quantile of chi-square with one degree of freedom.

    >>> round(chi_square_quantile(0.95), 2)
    3.84
    """
    return NormalDist().inv_cdf(0.5 + 0.5 * confidence) ** 2


def document_interval(
    n: Floats, s: Floats, settings: AnalysisSettings, *key: int
) -> tuple[float, float] | tuple[None, None]:
    """Percentile interval of sum(s) / sum(n) by resampling documents; nulls without any.

    Single 0/1 scores, one a document, have Clopper and Pearson's exact interval instead. Where all
    documents have the same mean a bootstrap sees no variation and would claim certainty: then that
    exact interval is given for means of 0 or 1, and Wilson's, which is conservative for any score
    in [0, 1], for means between; both with n = documents.

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
    """Mean score of ``examples``, its interval over documents."""
    per_document = examples.groupby("document")["score"].agg(["size", "sum"])
    counts, sums = (per_document[of].to_numpy(np.float64) for of in ("size", "sum"))
    low, high = document_interval(counts, sums, settings, *key)
    n = len(examples)
    return MeanScore(n, float(examples["score"].mean()) if n else None, low, high)


def bin_means(
    bins: Sequence[LengthBin], examples: pd.DataFrame, settings: AnalysisSettings, *key: int
) -> list[BinMean]:
    """The same of each bin; its number ends the ``key``."""
    rows = []
    for i, length_bin in enumerate(bins):
        score = mean_score(examples[examples["bin_index"] == i], settings, *key, i)
        rows.append(BinMean(length_bin.bin, score.n, score.mean, score.ci_low, score.ci_high))
    return rows


def exact_interval(hits: float, count: float, confidence: float) -> tuple[float, float]:
    """Interval of a chance of which ``hits`` of ``count`` independent trials came true.

    Both tails hold at most half of 1 - ``confidence``, whatever the chance (Clopper and Pearson
    1934, Biometrika 26, 404-413; by quantiles of the beta distribution): exact and a little wide.

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
    """The fewest hits of ``count`` trials that at most so many have with ``probability``.

    As ``scipy.stats.binom.ppf``, whose module takes half a second and 22 MB to load.

    >>> binomial_quantile(0.025, 20, 0.5)
    6
    """
    from scipy.special import bdtr

    return int(np.searchsorted(bdtr(np.arange(count + 1), count, chance), probability))


def agreeing_interval(mean: float, count: int, confidence: float) -> tuple[float, float]:
    """Interval of a mean on which ``count`` units agree: exact at 0 and 1, Wilson's between.

    >>> low, high = agreeing_interval(0.5, 10, 0.95)
    >>> round(low, 3), round(high, 3)
    (0.237, 0.763)
    """
    tail = 0.5 * (1.0 - confidence)
    if mean <= 1e-12:
        return 0.0, 1.0 - tail ** (1.0 / count)
    if mean >= 1.0 - 1e-12:
        return tail ** (1.0 / count), 1.0
    z2 = chi_square_quantile(confidence)
    middle = (mean + z2 / (2 * count)) / (1 + z2 / count)
    half = np.sqrt(z2 * (mean * (1 - mean) / count + z2 / (4 * count**2))) / (1 + z2 / count)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def ratio_interval(
    low_n: float, low_s: float, high_n: float, high_s: float, dispersion: float, quantile: float
) -> tuple[float, float]:
    """Interval of the drop 1 - (S0 / N0) / (S1 / N1) by the log ratio (Katz et al. 1978).

    Half a point is added to sums and 1 to counts, so that a sum of 0 has an interval; the variance
    is ``dispersion`` times the binomial one, ``quantile`` that of the squared standard error.

    >>> low, high = ratio_interval(100, 45, 100, 90, 1.0, chi_square_quantile(0.95))
    >>> round(low, 2), round(high, 2)
    (0.37, 0.6)
    """
    p0, p1 = (low_s + 0.5) / (low_n + 1), (high_s + 0.5) / (high_n + 1)
    variance = dispersion * ((1 - p0) / (low_n * p0) + (1 - p1) / (high_n * p1))
    half = np.sqrt(quantile * variance)
    ratio = p0 / p1
    return float(1 - ratio * np.exp(half)), float(1 - ratio * np.exp(-half))
