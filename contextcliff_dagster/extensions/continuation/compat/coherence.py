"""Similarity of neighbouring sentences from their embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | None]
"""Sentences to vectors, in order; None where they cannot be had."""

COHERENCE_KEYS = (
    *("adjacent_coherence", "global_coherence", "local_coherence_3sent", "coherence_variance"),
)
_SINGLE = (1.0, 1.0, 1.0, 0.0)
_UNKNOWN = (0.0, 0.0, 0.0, 0.0)


def coherence(sentences: Sequence[str], embed: Embed | None) -> dict[str, float]:
    """Return the four figures by `COHERENCE_KEYS`, unrounded.

    Mean cosine of neighbours, mean cosine to the centroid, mean over windows of three sentences of
    the mean pairwise cosine, and the sample variance of the neighbours' cosines. Fewer than two
    sentences: 1, 1, 1, 0. Without vectors, or with a wrong number of them: 0, as the reference has
    it, although nothing was measured then.
    """
    return dict(zip(COHERENCE_KEYS, _figures(sentences, embed), strict=True))


def _figures(sentences: Sequence[str], embed: Embed | None) -> tuple[float, float, float, float]:
    if embed is None:
        return _UNKNOWN
    kept = [bare for one in sentences if (bare := one.strip())]
    if len(kept) < 2:
        return _SINGLE
    vectors = embed(kept)
    if vectors is None or len(vectors) != len(kept):
        return _UNKNOWN
    if len({len(vector) for vector in vectors}) > 1:
        return _UNKNOWN
    rows = np.asarray(vectors, dtype=float)
    near = _cosines(rows[:-1], rows[1:])
    centre = _cosines(rows, np.broadcast_to(rows.mean(axis=0), rows.shape))
    adjacent = float(near.mean())
    if len(kept) == 2:
        return adjacent, float(centre.mean()), adjacent, 0.0
    windows = (near[:-1] + near[1:] + _cosines(rows[:-2], rows[2:])) / 3
    variance = float(near.var(ddof=1))
    return adjacent, float(centre.mean()), float(windows.mean()), variance


def _cosines(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Row by row; 0 where a row is zero."""
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = (left * right).sum(axis=1)
    out: NDArray[Any] = np.zeros(len(norms))
    np.divide(products, norms, out=out, where=norms > 0)
    return out
