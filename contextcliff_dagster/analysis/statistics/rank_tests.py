"""Tests within strata, documents as units: exchanges, and the area under the ROC curve.

Restricted permutation (`exchanges`): documents of similar length exchange a property of their
examples. A document gives its examples' values to another document of its length bin with as many
examples, in any order. Questions on one document may be as alike as they like: they stay together.

Area under the ROC curve from pairs within strata (`stratified_auc`), its interval over clusters and
its p-value. AUC = sum over strata of [wins of positives over negatives, ties half] / sum of pairs.
A pair never crosses strata, so a property that differs between strata alone gives .5.

Means at an equal mix (`standardise`): direct standardisation over categories. A mean over lengths
compares unlike things where long documents come with other kinds of questions than short ones.
Standardised, every group of lengths is given the same mix w of the categories (Fleiss, Levin and
Paik 2003, Statistical Methods for Rates and Proportions, chapter 19):

    mean = sum_k w_k m_k,   m_k = the group's mean score in category k.

Its variance is that of a sum over documents, so that questions on one document count together
(linearised; Cochran 1977, Sampling Techniques, section 11.8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

_AT_ONCE = 2_000_000


def holm(
    p_values: Sequence[float | None], weights: Sequence[float] | None = None
) -> list[float | None]:
    """Holm's adjusted p-values (1979, Scandinavian Journal of Statistics 6, 65-70); None stays.

    ``weights``: how much of the error rate each test has, above 0; only their ratios matter. All
    are alike when None.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    >>> [round(p, 3) for p in holm([0.02, 0.02], [3.0, 1.0])]
    [0.027, 0.027]
    """
    of = [1.0] * len(p_values) if weights is None else weights
    known = sorted((p / of[i], i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (scaled, i) in enumerate(known):
        left = sum(of[j] for _, j in known[rank:])
        least = max(least, min(left * scaled, 1.0))
        adjusted[i] = least
    return adjusted


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Blocks of examples, rows of which documents may exchange: (documents, questions each)."""

    blocks: list[Ints]
    count: int
    rng: np.random.Generator

    def sums(self, residual: Floats, group: Ints, groups: int) -> Floats:
        """Sums of ``residual`` by group: as it is, then under each exchange (1 + count, groups)."""
        out = np.zeros((1 + self.count, groups))
        out[0] = np.bincount(group, weights=residual, minlength=groups)
        for block in self.blocks:
            flat = block.ravel()
            step = max(1, _AT_ONCE // len(flat))
            for first in range(0, self.count, step):
                size = min(step, self.count - first)
                documents = np.tile(np.arange(len(block)), (size, 1))
                moved = block[self.rng.permuted(documents, axis=1)]
                if block.shape[1] > 1:
                    moved = self.rng.permuted(moved, axis=2)
                taken = group[moved.reshape(size, -1)]
                for g in range(groups):
                    out[1 + first : 1 + first + size, g] += (taken == g) @ residual[flat]
        return out


def exchanges(document: Ints, index: Ints, count: int, rng: np.random.Generator) -> Exchanges:
    """Documents of one length bin (``index``) with as many questions, as blocks."""
    order = np.argsort(document, kind="stable")
    first = np.flatnonzero(np.diff(document[order], prepend=-1))
    sizes = np.diff(first, append=len(order))
    bins = index[order[first]]
    blocks = []
    for key in np.unique(np.column_stack([bins, sizes]), axis=0):
        mine = np.flatnonzero((bins == key[0]) & (sizes == key[1]))
        blocks.append(order[first[mine][:, None] + np.arange(key[1])[None, :]])
    return Exchanges(blocks, count, rng)


_NO_SPREAD = 1e-9


def stratified_auc(
    predictor: Floats, positive: Bools, stratum: Ints, cluster: Ints, confidence: float
) -> tuple[float, float, float]:
    """The area and its interval.

    The variance is that of the pairs' linear parts, summed over clusters (DeLong, DeLong and
    Clarke-Pearson 1988, Biometrics 44, 837-845; clusters: Obuchowski 1997, Biometrics 53, 567-578),
    the interval Student's on the logit scale with the clusters of the rarer class less one degrees
    of freedom. It needs no resamples, in which a stratum could lose its only positive.

    Args:
        predictor, positive, stratum, cluster: of the examples (N); each stratum has both classes.
    """
    wins, others = np.zeros(len(predictor)), np.zeros(len(predictor))
    for label in np.unique(stratum):
        mine = np.flatnonzero(stratum == label)
        a, b = mine[positive[mine]], mine[~positive[mine]]
        won = 0.5 + 0.5 * np.sign(predictor[a][:, None] - predictor[b][None, :])
        wins[a], wins[b] = won.sum(axis=1), won.sum(axis=0)
        others[a], others[b] = len(b), len(a)
    pairs = others[positive].sum()
    value = float(wins[positive].sum() / pairs)
    _, unit = np.unique(cluster, return_inverse=True)
    parts = np.bincount(unit, weights=wins - value * others) / pairs
    count = len(parts)
    rarer = min(len(np.unique(unit[positive])), len(np.unique(unit[~positive])))
    error = math.sqrt(float(parts @ parts) * count / max(count - 1, 1))
    if error < _NO_SPREAD or not 0.0 < value < 1.0:
        return value, *agreeing_interval(value, rarer, confidence)
    from scipy.special import expit, logit, stdtrit

    half = float(stdtrit(max(rarer - 1, 1), 0.5 + 0.5 * confidence)) * error
    middle, half = float(logit(value)), half / (value * (1.0 - value))
    return value, float(expit(middle - half)), float(expit(middle + half))


def permuted_auc(
    predictor: Floats,
    positive: Bools,
    stratum: Ints,
    cluster: Ints,
    permutations: int,
    rng: np.random.Generator,
) -> float:
    """Two-sided p-value of an area of .5: clusters of one stratum exchange their examples' classes.

    Only clusters with as many examples exchange (`exchanges`).
    """
    rank = np.empty(len(predictor))
    for label in np.unique(stratum):
        mine = np.flatnonzero(stratum == label)
        _, place, size = np.unique(predictor[mine], return_inverse=True, return_counts=True)
        rank[mine] = (np.cumsum(size) - 0.5 * (size - 1))[place]
    drawn = exchanges(cluster, stratum, permutations, rng)
    sums = drawn.sums(rank, positive.astype(np.int64), 2)[:, 1]
    expected = sum(positive[block].sum() * rank[block].mean() for block in drawn.blocks)
    far = np.abs(sums - expected)
    return float(np.mean(far >= far[0] - 1e-9))


@dataclass(frozen=True, slots=True)
class Cells:
    """Examples by group of lengths (G) and category (K).

    ``n`` examples, ``s``, the sum of their scores, and ``documents``, each G x K; ``group``,
    ``category``, ``document`` and ``score`` are of the examples in a group (N).
    """

    n: Floats
    s: Floats
    documents: Floats
    group: Ints
    category: Ints
    document: Ints
    score: Floats


@dataclass(frozen=True, slots=True)
class Standardised:
    """By group (G): ``mean`` (nan without any), its ``variance``, and ``covered``, the share of
    the mix whose categories the group has; the mean is that of these alone."""

    mean: Floats
    variance: Floats
    covered: Floats


def cells_of(
    group: Ints, category: Ints, document: Ints, score: Floats, shape: tuple[int, int]
) -> Cells:
    """Count examples into ``shape`` = (G, K) cells, without examples of a group below 0."""
    inside = group >= 0
    group, category, document = (x[inside] for x in (group, category, document))
    score = score[inside]
    count = shape[0] * shape[1]
    cell = group * shape[1] + category
    distinct = cell if _alone(document) else _distinct(document * count + cell)[1] % count
    n, s, documents = (
        np.bincount(of, weights, minlength=count).astype(np.float64).reshape(shape)
        for of, weights in ((cell, None), (cell, score), (distinct, None))
    )
    return Cells(n, s, documents, group, category, document, score)


def standardise(cells: Cells, mix: Floats, least_documents: int) -> Standardised:
    """Each group's mean at the mix ``mix`` (K, sums to 1).

    A category with fewer than ``least_documents`` documents in a group (at least 2, or it has no
    variance) is left out there, and the others' shares are enlarged alike.
    """
    used = (cells.documents >= max(least_documents, 2)) & (mix > 0)
    weights = np.where(used, mix, 0.0)
    covered = weights.sum(axis=1)
    weights = weights / np.where(covered > 0, covered, 1.0)[:, None]
    n, documents = np.where(used, cells.n, 1.0), np.where(used, cells.documents, 2.0)
    means = np.where(used, cells.s / n, 0.0)
    # Half a right and half a wrong document more, so that cells that agree are not certain.
    doubt = 0.5 * ((1.0 - means) ** 2 + means**2) / documents**2
    at = cells.group, cells.category
    factor = weights / n * np.sqrt(documents / (documents - 1.0))
    influence = factor[at] * (cells.score - means[at])
    variance = _squares(influence, cells, len(covered))
    variance = variance + (weights**2 * doubt).sum(axis=1)
    mean = np.where(covered > 0, (weights * means).sum(axis=1), np.nan)
    return Standardised(mean, variance, covered)


def _squares(influence: Floats, cells: Cells, groups: int) -> Floats:
    """Sums over a group's documents of the squared sum of their examples' influence."""
    unit, at = cells.group, influence
    if not _alone(cells.document):
        place, keys = _distinct(cells.document * groups + unit)
        at = np.bincount(place, weights=influence, minlength=len(keys)).astype(np.float64)
        unit = keys % groups
    return np.bincount(unit, weights=at**2, minlength=groups).astype(np.float64)


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Each key's number, and the distinct keys; by hashing, many times faster than by sorting."""
    import pandas as pd

    numbers, distinct = pd.factorize(keys)
    return np.asarray(numbers, np.int64), np.asarray(distinct, np.int64)


def _alone(document: Ints) -> bool:
    """Whether no document has two examples."""
    return not len(document) or int(np.bincount(document).max()) == 1
