"""Coherence: how alike the sentences of a text are, by their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.extensions.continuation.prose.embedders import Embedder
from contextcliff_dagster.extensions.continuation.prose.words import Prose

FAR = 5
"""Sentences between which far coherence is measured."""
_LEAST_PAIRS = 2


class Coherence(NamedTuple):
    """Mean cosine, -1..1, of each sentence's embedding with that of the next (``near``) and of the
    fifth after it (``far``); None where there are fewer than two such pairs."""

    near: float | None
    far: float | None


def sentence_coherence(prose: Prose, embedder: Embedder) -> Coherence:
    """The coherence of one text; raises as `coherence_of_texts`."""
    return coherence_of_texts([prose], embedder)[0]


def coherence_of_texts(texts: Sequence[Prose], embedder: Embedder) -> list[Coherence]:
    """The coherence of each text; the sentences of all go to the embedder at once.

    Sentences whose embedding has length 0 are left out.

    Raises:
        EngineError: the embeddings cannot be had.
    """
    sentences = [one.sentences() for one in texts]
    # Too few for a pair: not worth asking for.
    sentences = [of if len(of) > _LEAST_PAIRS else [] for of in sentences]
    bounds = [0, *accumulate(map(len, sentences))]
    if not bounds[-1]:
        return [Coherence(None, None) for _ in texts]
    rows = np.asarray(embedder.embed([one for of in sentences for one in of]), np.float64)
    return [_coherence(rows[a:b]) for a, b in pairwise(bounds)]


def _coherence(vectors: NDArray[np.floating[Any]]) -> Coherence:
    size = np.linalg.norm(vectors, axis=1)
    vectors = vectors[size > 0] / size[size > 0, None]
    near, far = ((vectors[gap:] * vectors[:-gap]).sum(axis=1) for gap in (1, FAR))
    return Coherence(*(float(of.mean()) if len(of) >= _LEAST_PAIRS else None for of in (near, far)))
