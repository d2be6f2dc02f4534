"""Which embedder measures coherence: the endpoint, else a local one, else none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.extensions.continuation.prose.embedders import (
    EndpointEmbedder,
    local_embedder,
)

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.compat.coherence import Embed
    from contextcliff_dagster.extensions.continuation.prose.embedders import Embedder
    from contextcliff_dagster.inference.models.models_file import ModelEntry

_PROBE = ("Is there an embedder?",)


@dataclass(frozen=True, slots=True)
class Embedding:
    """``name`` of the embedder, for results; both None where there is none."""

    name: str | None = None
    embed: Embed | None = None


def embedding_of(entry: ModelEntry | None) -> Embedding:
    """Return the first that answers: the ``/embeddings`` of the model's server, a local embedder.

    Sentences that the server does not embed later have no vectors, as in the reference.
    """
    found = _of_server(entry) if entry is not None and entry.spec.remote else None
    embedder: Embedder | None = found or local_embedder()
    if embedder is None:
        return Embedding()
    return Embedding(embedder.name, _tolerant(embedder))


def _of_server(entry: ModelEntry) -> EndpointEmbedder | None:
    from contextcliff_dagster.inference.models.base_url import request_headers

    try:
        headers = request_headers(entry, f"Model {entry.name!r}", EngineError)
        key = headers.get("Authorization", "").removeprefix("Bearer ") or None
        address = entry.resolved_base_url()
        found = EndpointEmbedder(address, entry.model_id or entry.name, key)
        found.embed(_PROBE)
    except EngineError:
        return None
    return found


def _tolerant(embedder: Embedder) -> Embed:
    def embed(sentences: Sequence[str]) -> Sequence[Sequence[float]] | None:
        try:
            rows: Sequence[Sequence[float]] = embedder.embed(sentences).tolist()
        except EngineError:
            return None
        return rows

    return embed
