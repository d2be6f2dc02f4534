"""Coherence: how alike the sentences of a text are, by their embeddings."""

from __future__ import annotations

import numpy as np

from contextcliff_dagster.experiments.continuation.prose.embedders import Embedder
from contextcliff_dagster.experiments.continuation.prose.words import Prose

FAR = 5
"""Sentences between which far coherence is measured."""
_LEAST_PAIRS = 2


def sentence_coherence(prose: Prose, embedder: Embedder) -> tuple[float | None, float | None]:
    """Mean cosine of each sentence's embedding with the next one's, and with the fifth after it.

    None where there are fewer than two such pairs; sentences of length 0 are left out.

    Raises:
        EngineError: the embeddings cannot be had.
    """
    sentences = prose.sentences()
    if len(sentences) <= _LEAST_PAIRS:
        return None, None
    vectors = np.asarray(embedder.embed(sentences), np.float64)
    size = np.linalg.norm(vectors, axis=1)
    vectors = vectors[size > 0] / size[size > 0, None]
    near, far = ((vectors[gap:] * vectors[:-gap]).sum(axis=1) for gap in (1, FAR))
    return tuple(float(one.mean()) if len(one) >= _LEAST_PAIRS else None for one in (near, far))  # type: ignore[return-value]
