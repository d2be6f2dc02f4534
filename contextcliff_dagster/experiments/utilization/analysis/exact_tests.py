"""Tests of whole documents next to sign flips: exchanges, McNemar, Student; and resamples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.experiments.utilization.results import McNemar, PairedT

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.experiments.utilization.analysis.matching import Matched, Side

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
