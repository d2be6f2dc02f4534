"""The difference between two conditions on some documents: interval, band, tests.

Tests of whole documents next to sign flips are exchanges, McNemar and Student.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.comparison.difference_tests import difference_interval
from contextcliff_dagster.analysis.statistics.proportions import band_quantile
from contextcliff_dagster.analysis.statistics.sign_flips import sign_flip_p_value
from contextcliff_dagster.contracts.results.fields import nulls
from contextcliff_dagster.extensions.utilization.analysis.score_intervals import difference_limits
from contextcliff_dagster.extensions.utilization.results import DifferenceTest, McNemar, PairedT

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.extensions.utilization.analysis.matching import Matched, Side
    from contextcliff_dagster.extensions.utilization.analysis.score_intervals import Likeness

RESAMPLES = 1_000
PERMUTATIONS = 4_999


@dataclass(frozen=True, slots=True)
class Estimate:
    """Means, their difference with a score interval and a bootstrap, and a permutation test."""

    mean_a: float
    mean_b: float
    ci_low: float
    ci_high: float
    bootstrap: tuple[float, float] | None
    p_value: float | None
    p_exact: bool

    @property
    def difference(self) -> float:
        """``mean_a`` less ``mean_b``."""
        return self.mean_a - self.mean_b


def estimate_difference(
    matched: Matched, likeness: Likeness, settings: AnalysisSettings, *key: int
) -> Estimate | None:
    """The difference over all questions of ``matched``; None where a side has no answer.

    Each question counts alike; documents are resampled and permuted whole, within their strata.
    The interval is that of `difference_limits`; the bootstrap's (`difference_interval`) is None
    where no document has another difference than the rest.

    Args:
        likeness: pooled over all scales that the question is about.
        key: names the random stream, together with the seed of ``settings``; where paired it is
            the same whichever side is named first.
    """
    a, b = matched.a, matched.b
    if not len(a.score) or not len(b.score):
        return None
    rng = np.random.default_rng((settings.seed, 18, *key))
    sides = a.by_document(), b.by_document()
    first = bootstrap_weights(sides[0][2], RESAMPLES, rng)
    p_value: float | None
    if matched.paired:
        second = first
        p_value, exact = sign_flip_p_value(sides[0][1] - sides[1][1], PERMUTATIONS, rng)
    else:
        second = bootstrap_weights(sides[1][2], RESAMPLES, rng)
        p_value, exact = exchange_p_value(a, b, PERMUTATIONS, rng), False
    mean_a, mean_b = float(a.score.mean()), float(b.score.mean())
    difference = mean_a - mean_b
    low, high = difference_limits(matched, likeness, band_quantile(settings.confidence, 1))
    return Estimate(
        mean_a,
        mean_b,
        min(low, difference),
        max(high, difference),
        _bootstrap(sides[0], sides[1], (first, second), settings.confidence, matched.paired),
        p_value,
        exact,
    )


def _bootstrap(
    a: tuple[Floats, Floats, Ints],
    b: tuple[Floats, Floats, Ints],
    weights: tuple[Floats, Floats],
    confidence: float,
    paired: bool,
) -> tuple[float, float] | None:
    of_a, of_b = a[1] / a[0], b[1] / b[0]
    apart = [of_a - of_b] if paired else [of_a, of_b]
    if all(np.ptp(one) < 1e-12 for one in apart):
        return None
    return difference_interval(np.array(b[:2]), np.array(a[:2]), weights[::-1], confidence)


def difference_test(
    matched: Matched,
    likeness: Likeness,
    z: float,
    dropped: int,
    settings: AnalysisSettings,
    *key: int,
) -> DifferenceTest:
    """The difference over all questions of ``matched``, with all of its tests.

    Args:
        z: quantile of the simultaneous band (`score_intervals.band_quantile`).
        dropped: questions that were left out.
        key: as in `estimate_difference`.
    """
    found = estimate_difference(matched, likeness, settings, *key)
    if found is None:
        return nulls(DifferenceTest, n=0, n_documents=0, dropped=dropped, p_exact=False)
    a, b, paired = matched.a, matched.b, matched.paired
    difference = found.difference
    low, high = difference_limits(matched, likeness, z)
    documents = min(int(side.document.max()) + 1 for side in (a, b))
    binary = paired and bool(np.isin([a.score, b.score], (0.0, 1.0)).all())
    n_a, s_a, _ = a.by_document()
    resampled = found.bootstrap or (None, None)
    return DifferenceTest(
        n=min(len(a.score), len(b.score)),
        n_documents=documents,
        dropped=dropped,
        mean_a=found.mean_a,
        mean_b=found.mean_b,
        difference=difference,
        ci_low=found.ci_low,
        ci_high=found.ci_high,
        band_low=min(low, difference),
        band_high=max(high, difference),
        bootstrap_low=resampled[0],
        bootstrap_high=resampled[1],
        only_a=int((a.score > b.score).sum()) if binary else None,
        only_b=int((b.score > a.score).sum()) if binary else None,
        p_value=found.p_value,
        p_exact=found.p_exact,
        p_holm=None,
        mcnemar=mcnemar_test(matched) if paired else None,
        t_test=paired_t_test((s_a - b.by_document()[1]) / n_a) if paired else None,
    )


ASSUMES = (
    "Means of documents' differences are normal with one variance; with 0/1 answers and few "
    "documents that holds only roughly, so the exact tests decide."
)


def exchange_p_value(
    one: Side, other: Side, permutations: int, rng: np.random.Generator
) -> float | None:
    """Two-sided p-value of the difference in means where documents change sides in their stratum.

    The statistic is the sum over strata of what the first side's documents score above the
    stratum's mean; by ``permutations`` drawn exchanges and the observed one. None where no stratum
    has documents of both.
    """
    (n_a, s_a, of_a), (n_b, s_b, of_b) = one.by_document(), other.by_document()
    observed, drawn = 0.0, np.zeros(permutations)
    shared = np.intersect1d(of_a, of_b)
    for stratum in shared:
        in_a, in_b = of_a == stratum, of_b == stratum
        n = np.concatenate([n_a[in_a], n_b[in_b]])
        s = np.concatenate([s_a[in_a], s_b[in_b]])
        excess = s - n * (s.sum() / n.sum())
        count = int(in_a.sum())
        observed += float(excess[:count].sum())
        places = rng.permuted(np.tile(np.arange(len(n)), (permutations, 1)), axis=1)[:, :count]
        drawn += excess[places].sum(axis=1)
    if not len(shared):
        return None
    reached = int((np.abs(drawn) >= abs(observed) - 1e-9).sum())
    return (1.0 + reached) / (1.0 + permutations)


def mcnemar_test(matched: Matched) -> McNemar | None:
    """The exact test on one question a document; None where a score of it is not 0 or 1.

    The question is number seed modulo the questions of the document that both sides answered, in
    the order of their numbers, so that kinds of question take turns and no outcome decides.
    """
    a, b = matched.a, matched.b
    order = np.lexsort((a.question, a.document))
    document = a.document[order]
    first = np.flatnonzero(np.diff(document, prepend=-1))
    count = np.diff(first, append=len(document))
    chosen = order[first + a.seed[order][first] % count]
    right_a, right_b = a.score[chosen], b.score[chosen]
    if not len(chosen) or not np.isin([right_a, right_b], (0.0, 1.0)).all():
        return None
    only_a, only_b = int((right_a > right_b).sum()), int((right_b > right_a).sum())
    return McNemar(
        n=len(chosen), only_a=only_a, only_b=only_b, p_value=binomial_p_value(only_a, only_b)
    )


def binomial_p_value(one: int, other: int) -> float:
    """Twice the smaller tail of ``one`` and ``other`` at even chances, at most 1.

    >>> binomial_p_value(0, 5)
    0.0625
    """
    from scipy.special import bdtr

    return min(2.0 * float(bdtr(min(one, other), one + other, 0.5)), 1.0)


def paired_t_test(change: Floats) -> PairedT | None:
    """Student's test of documents' mean differences (D); None for a single document."""
    from scipy.special import stdtr

    if len(change) < 2:
        return None
    degrees, spread = len(change) - 1, float(change.std(ddof=1))
    if spread < 1e-12:
        return PairedT(t=None, degrees=degrees, p_value=None, assumes=ASSUMES)
    t = float(change.mean()) / (spread / len(change) ** 0.5)
    p_value = min(2.0 * float(stdtr(degrees, -abs(t))), 1.0)
    return PairedT(t=t, degrees=degrees, p_value=p_value, assumes=ASSUMES)


def bootstrap_weights(strata: Ints, resamples: int, rng: np.random.Generator) -> Floats:
    """How often each document is in each resample, drawn within strata; first the sample itself
    (D, 1 + resamples).

    Of several strata each draws one document less than it has, weighted up to as many: else those
    of few documents would scatter too little (Rao and Wu 1988, JASA 83, 231-241). Those of a single
    document are one stratum.
    """
    _, place, size = np.unique(strata, return_inverse=True, return_counts=True)
    place = np.where(size[place] == 1, -1, place)
    groups = np.unique(place)
    weights = np.ones((len(strata), 1 + resamples))
    for group in groups:
        inside = np.flatnonzero(place == group)
        count = len(inside)
        draws = count if len(groups) == 1 else max(count - 1, 1)
        drawn = rng.multinomial(draws, np.full(count, 1.0 / count), size=resamples).T
        weights[inside, 1:] = drawn * (count / draws)
    return weights
