"""Embeddings: the table of this machine, a real HTTP server, and what follows from failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.extensions.continuation.prose.embedders import (
    EndpointEmbedder,
    StaticEmbedder,
    coherence_of_texts,
    local_embedder,
)
from contextcliff_dagster.extensions.continuation.prose.words import read_prose
from contextcliff_dagster_tests.extensions.continuation.prose.passages import HARBOUR, ORCHARD
from contextcliff_dagster_tests.support.servers.embedding_server import (
    EmbeddingServer,
    embedding_server,
    vectors,
)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as one:
        yield one


def embedder(server: EmbeddingServer) -> EndpointEmbedder:
    return EndpointEmbedder(server.base_url, "tiny", "k3y")


def test_a_server_is_asked_in_batches_and_its_rows_are_put_in_order(
    server: EmbeddingServer,
) -> None:
    sentences = ["a" * (1 + i % 7) for i in range(150)]
    rows = embedder(server).embed(sentences)
    assert rows[:, 0].tolist() == [len(s) for s in sentences]
    assert [len(body["input"]) for _, _, body in server.asked] == [64, 64, 22]
    path, key, body = server.asked[0]
    assert (path, key, body["model"]) == ("/v1/embeddings", "Bearer k3y", "tiny")


def test_a_server_that_is_busy_is_asked_again(server: EmbeddingServer) -> None:
    server.replies = [(503, {}), (200, vectors)]
    assert len(embedder(server).embed(["a", "b"])) == 2


@pytest.mark.parametrize(
    "reply",
    [
        (401, {"error": "key k3y"}),
        (200, {"data": []}),
        (200, ["x"]),
        (200, {"data": [{"index": 0, "embedding": ["x"]}]}),
        (200, {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}),
    ],
)
def test_what_is_no_vector_for_each_sentence_is_one_error_without_the_key(
    server: EmbeddingServer, reply: tuple[int, Any]
) -> None:
    server.replies = [reply]
    with pytest.raises(EngineError, match=r"Embeddings by 'tiny' are unavailable") as caught:
        embedder(server).embed(["a", "b"])
    assert "k3y" not in str(caught.value)


def test_the_local_table_finds_prose_more_coherent_than_its_sentences_shuffled_with_another() -> (
    None
):
    local = local_embedder()
    if local is None:
        pytest.skip("needs the extra embeddings")
    assert isinstance(local, StaticEmbedder)
    mixed = [s for pair in zip(sentences(HARBOUR), sentences(ORCHARD), strict=False) for s in pair]
    texts = [HARBOUR, " ".join(mixed), "It was the sea again. " * 9]
    (whole, _), (shuffled, _), repeated = coherence_of_texts(list(map(read_prose, texts)), local)
    assert whole is not None
    assert shuffled is not None
    assert 0.0 < shuffled < whole < 1.0
    assert repeated.near == pytest.approx(1.0)
    assert not np.isnan(repeated.far or np.nan)


def sentences(text: str) -> list[str]:
    return read_prose(text).sentences()
