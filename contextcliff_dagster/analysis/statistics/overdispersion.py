"""How much more, or less, scores scatter than single answers of 0 or 1 would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints

_PARAMETERS = 3
_BANDWIDTH = 0.08
"""SD of the kernel, as a share of the examples."""
_BORROWED = 8.0
"""Documents' worth of the overall dispersion that each neighbourhood borrows."""
_LEAST = 0.1


def known_dispersion(documents: Documents) -> bool:
    """Single 0/1 scores are binomial: nothing about their spread is to be estimated."""
    return documents.binary and bool(documents.n.max() == 1)


def local_dispersion(documents: Documents, upper: Ints) -> Floats:
    """Dispersion of the scores of neighbouring documents, for cells that end at ``upper`` (G).

    phi = sum_d (s_d - n_d mu_d)^2 / sum_d n_d mu_d (1 - mu_d) * D / (D - 3) over documents d near
    the cell, with mu the best mean that never rises (isotonic regression). Whole documents are
    summed, so that the correlation of questions on one document counts (Liang and Zeger 1986).
    Never below 1 for 0/1 scores, nor below .1.
    """
    if known_dispersion(documents):
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
    out: Floats = np.maximum(phi * count / max(count - _PARAMETERS, 1), _least(documents))
    return out


def _least(documents: Documents) -> float:
    return 1.0 if documents.binary else _LEAST
