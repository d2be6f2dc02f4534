"""Tests within strata with documents as units: exchanges, and the area under the ROC curve.

Restricted permutation (`exchanges`): documents of similar length exchange a property of their
examples. A document gives its examples' values to another document of its length bin with as many
examples, in any order. Questions on one document stay together, so they may be correlated.

Area under the ROC curve from pairs within strata (`stratified_auc`), its interval over clusters and
its p-value. AUC = sum over strata of [wins of positives over negatives, ties half] / sum of pairs.
A pair never crosses strata, so a property that differs only between strata gives .5.

Means at an equal mix (`standardise`): direct standardisation over categories. Means over lengths
are not comparable if long documents come with other kinds of questions than short ones.
Standardisation gives every group of lengths the same mix w of the categories (Fleiss, Levin and
Paik 2003, Statistical Methods for Rates and Proportions, chapter 19):

    mean = sum_k w_k m_k,   m_k = the group's mean score in category k.

The variance treats the mean as a sum over documents, so that questions on one document count
together (linearised; Cochran 1977, Sampling Techniques, section 11.8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval
from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

_AT_ONCE = 2_000_000


def holm(
    p_values: Sequence[float | None], weights: Sequence[float] | None = None
) -> list[float | None]:
    """Return p-values adjusted by Holm (1979, Scandinavian Journal of Statistics 6, 65-70).

    None stays None. ``weights``: relative share of the error rate for each test, above 0; equal by
    default.

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
    """Blocks of examples whose documents (rows) may be exchanged: (documents, questions each)."""

    blocks: list[Ints]
    count: int
    rng: np.random.Generator

    def sums(self, residual: Floats, group: Ints, groups: int) -> Floats:
        """Return sums of ``residual`` by group: observed, then per exchange (1 + count, groups)."""
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
    """Return blocks of documents with the same length bin (``index``) and number of questions."""
    order = np.argsort(document, kind="stable")
    first = np.flatnonzero(np.diff(document[order], prepend=-1))
    sizes = np.diff(first, append=len(order))
    bins = index[order[first]]
    blocks = []
    for key in np.unique(np.column_stack([bins, sizes]), axis=0):
        members = np.flatnonzero((bins == key[0]) & (sizes == key[1]))
        blocks.append(order[first[members][:, None] + np.arange(key[1])[None, :]])
    return Exchanges(blocks, count, rng)


_NO_SPREAD = 1e-9


def stratified_auc(
    predictor: Floats, positive: Bools, stratum: Ints, cluster: Ints, confidence: float
) -> tuple[float, float, float]:
    """Return the area under the ROC curve and its interval.

    The variance comes from the pairs' linear parts, summed over clusters (DeLong, DeLong and
    Clarke-Pearson 1988, Biometrics 44, 837-845; clusters: Obuchowski 1997, Biometrics 53, 567-578);
    the interval is Student's on the logit scale, with one degree of freedom fewer than clusters of
    the rarer class. No resampling is needed, in which a stratum could lose its only positive.

    Args:
        predictor, positive, stratum, cluster: of each example (N); each stratum has both classes.
    """
    wins, others = np.zeros(len(predictor)), np.zeros(len(predictor))
    for label in np.unique(stratum):
        members = np.flatnonzero(stratum == label)
        a, b = members[positive[members]], members[~positive[members]]
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
    """Return the two-sided p-value of an area of .5, by exchanging classes between clusters.

    Only clusters of equal size in the same stratum are exchanged (`exchanges`).
    """
    rank = np.empty(len(predictor))
    for label in np.unique(stratum):
        members = np.flatnonzero(stratum == label)
        _, place, size = np.unique(predictor[members], return_inverse=True, return_counts=True)
        rank[members] = (np.cumsum(size) - 0.5 * (size - 1))[place]
    permuted = exchanges(cluster, stratum, permutations, rng)
    sums = permuted.sums(rank, positive.astype(np.int64), 2)[:, 1]
    expected = sum(positive[block].sum() * rank[block].mean() for block in permuted.blocks)
    far = np.abs(sums - expected)
    return float(np.mean(far >= far[0] - 1e-9))


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts of examples by group of lengths (G) and category (K).

    ``n``: examples; ``s``: sum of their scores; ``documents``: each G x K. ``group``,
    ``category``, ``document`` and ``score`` describe the examples that are in a group (N).
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
    """Standardised means by group (G): ``mean`` (nan if empty), its ``variance``, and ``covered``,
    the fraction of the mix whose categories the group has. The mean uses only these categories."""

    mean: Floats
    variance: Floats
    covered: Floats


def cells_of(
    group: Ints, category: Ints, document: Ints, score: Floats, shape: tuple[int, int]
) -> Cells:
    """Count examples in ``shape`` = (G, K) cells, leaving out those with a negative group."""
    in_group = group >= 0
    group, category, document = (x[in_group] for x in (group, category, document))
    score = score[in_group]
    count = shape[0] * shape[1]
    cell = group * shape[1] + category
    distinct = cell if _alone(document) else _distinct(document * count + cell)[1] % count
    n, s, documents = (
        np.bincount(of, weights, minlength=count).astype(np.float64).reshape(shape)
        for of, weights in ((cell, None), (cell, score), (distinct, None))
    )
    return Cells(n, s, documents, group, category, document, score)


def standardise(cells: Cells, mix: Floats, least_documents: int) -> Standardised:
    """Return each group's mean at the category mix ``mix`` (K, sums to 1).

    In each group, a category with fewer than ``least_documents`` documents is left out and the
    shares of the others are scaled up. A variance needs at least 2.
    """
    used = (cells.documents >= max(least_documents, 2)) & (mix > 0)
    weights = np.where(used, mix, 0.0)
    covered = weights.sum(axis=1)
    weights = weights / np.where(covered > 0, covered, 1.0)[:, None]
    n, documents = np.where(used, cells.n, 1.0), np.where(used, cells.documents, 2.0)
    means = np.where(used, cells.s / n, 0.0)
    # Adds half a right and half a wrong document, so that unanimous cells have a variance.
    doubt = 0.5 * ((1.0 - means) ** 2 + means**2) / documents**2
    at = cells.group, cells.category
    factor = weights / n * np.sqrt(documents / (documents - 1.0))
    influence = factor[at] * (cells.score - means[at])
    variance = _squares(influence, cells, len(covered))
    variance = variance + (weights**2 * doubt).sum(axis=1)
    mean = np.where(covered > 0, (weights * means).sum(axis=1), np.nan)
    return Standardised(mean, variance, covered)


def _squares(influence: Floats, cells: Cells, groups: int) -> Floats:
    """Return, per group, the sum over documents of the squared sum of their examples' influence."""
    unit, at = cells.group, influence
    if not _alone(cells.document):
        place, keys = _distinct(cells.document * groups + unit)
        at = np.bincount(place, weights=influence, minlength=len(keys)).astype(np.float64)
        unit = keys % groups
    return np.bincount(unit, weights=at**2, minlength=groups).astype(np.float64)


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Return each key's number, and the distinct keys, using hashing, as sorting is slower."""
    import pandas as pd

    numbers, distinct = pd.factorize(keys)
    return np.asarray(numbers, np.int64), np.asarray(distinct, np.int64)


def _alone(document: Ints) -> bool:
    """Return whether every document has a single example."""
    return not len(document) or int(np.bincount(document).max()) == 1
