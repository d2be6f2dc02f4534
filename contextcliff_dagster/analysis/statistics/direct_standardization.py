"""Means at an equal mix: direct standardisation over categories, documents as the units.

A mean over lengths compares unlike things where long documents come with other kinds of questions
than short ones. Standardised, every group of lengths is given the same mix w of the categories
(Fleiss, Levin and Paik 2003, Statistical Methods for Rates and Proportions, chapter 19):

    mean = sum_k w_k m_k,   m_k = the group's mean score in category k.

Its variance is that of a sum over documents, so that questions on one document count together
(linearised; Cochran 1977, Sampling Techniques, section 11.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints


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
    """Count examples into ``shape`` = (G, K) cells; those of a group below 0 are left out."""
    inside = group >= 0
    group, category, document = (x[inside] for x in (group, category, document))
    score = score[inside]
    count = shape[0] * shape[1]
    cell = group * shape[1] + category
    own = cell if _alone(document) else _distinct(document * count + cell)[1] % count
    n, s, documents = (
        np.bincount(of, weights, minlength=count).astype(np.float64).reshape(shape)
        for of, weights in ((cell, None), (cell, score), (own, None))
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
