"""Tests of whole documents: sign flips, exchanges, McNemar, Student; and Holm's adjustment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.experiments.utilization.results import McNemar, PairedT

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.experiments.utilization.analysis.matching import Matched, Side

MOST_FLIPS = 2**16
_AT_ONCE = 2_000_000
_MOST_WHOLE = 100_000
ASSUMES = (
    "Means of documents' differences are normal with one variance; with 0/1 answers and few "
    "documents that holds only roughly, so the exact tests decide."
)


def sign_flip_p_value(
    change: Floats, permutations: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """Two-sided p-value of a sum of differences, one a document (D); whether it is exact.

    Where formats are alike, a document's difference is as likely to have the other sign (Fisher
    1935, The Design of Experiments). Exact for whole numbers, by the distribution of their sum,
    and for up to 16 documents that differ, over all signs; else by ``permutations`` drawn ones,
    (1 + reached) / (1 + drawn), of which the observed one is never missing.
    """
    size, observed = np.sort(np.abs(change[change != 0.0])), abs(float(change.sum())) - 1e-9
    if (size == np.round(size)).all() and size.sum() <= _MOST_WHOLE:
        whole = size.astype(np.int64)
        total = int(whole.sum())
        chance = np.zeros(2 * total + 1)
        chance[total] = 1.0
        for step in whole:
            chance = 0.5 * (np.roll(chance, step) + np.roll(chance, -step))
        reached = np.abs(np.arange(-total, total + 1)) >= observed
        return min(float(chance[reached].sum()), 1.0), True
    if 2 ** len(size) <= MOST_FLIPS:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(size))))
        return float((np.abs(signs @ size) >= observed).mean()), True
    reached_by = 0
    step = max(1, _AT_ONCE // len(size))
    for first in range(0, permutations, step):
        rows = min(step, permutations - first)
        drawn = (2.0 * rng.integers(0, 2, size=(rows, len(size))) - 1.0) @ size
        reached_by += int((np.abs(drawn) >= observed).sum())
    return (1.0 + reached_by) / (1.0 + permutations), False


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


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p-values (1979, Scandinavian Journal of Statistics 6, 65-70); None stays.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min((len(known) - rank) * p, 1.0))
        adjusted[i] = least
    return adjusted


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
