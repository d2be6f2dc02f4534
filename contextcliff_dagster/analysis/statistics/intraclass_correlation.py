"""How alike the scores of two questions on one document are: the intraclass correlation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

LEAST_REPEATED = 10
"""Documents with several questions that an estimate needs."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """``value`` 0..1 with its 95% interval, from ``documents`` documents, of which ``repeated``
    have several questions."""

    value: float
    low: float
    high: float
    documents: int
    repeated: int


def intraclass_correlation(document: Ints, score: Floats, stratum: Ints) -> Correlation | None:
    """The ANOVA estimator for groups of unequal size, within strata, clipped at 0.

    (F - 1) / (F + n0 - 1), F = MSB / MSW the ratio of the mean squares between and within documents
    and n0 = (N - sum of n_d^2 / N) / (D - 1), as in Donner 1986 (International Statistical Review
    54, 67-82). Means are taken within strata (bins of length), and sums of squares and n0 pooled
    over them: else a curve that falls with length would count as likeness of documents. The
    interval puts F's limits in (Searle 1971, Linear Models, chapter 9: exact for normal scores and
    equal groups); with 0/1 scores on 80 documents of 1-7 questions it held .92 to .98 of simulated
    correlations up to .3, and .79 of .6.

    Args:
        document, score, stratum: per example (N); a document lies in one stratum.

    Returns:
        ``None`` with fewer than 10 documents of several questions, or where no score differs.
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
