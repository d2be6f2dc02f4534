"""Embeddings: the table of this machine, a real HTTP server, and what follows from failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.experiments.continuation.prose.embedders import (
    EndpointEmbedder,
    StaticEmbedder,
    local_embedder,
)
from contextcliff_dagster.experiments.continuation.prose.metrics import prose_metrics
from contextcliff_dagster_tests.experiments.continuation.prose.passages import HARBOUR, ORCHARD


class Server(ThreadingHTTPServer):
    """Answers with the ``replies`` in turn, the last one for ever; keeps what it was asked."""

    replies: list[tuple[int, Any]]
    asked: list[tuple[str, str | None, dict[str, Any]]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        replies = self.server.replies
        status, answer = replies.pop(0) if len(replies) > 1 else replies[0]
        if callable(answer):
            answer = answer(body["input"])
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def vectors(sentences: list[str]) -> dict[str, Any]:
    rows = [{"index": i, "embedding": [len(s), 1.0]} for i, s in enumerate(sentences)]
    return {"data": rows[::-1]}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as one:
        one.asked, one.replies = [], [(200, vectors)]
        Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.shutdown()


def embedder(server: Server) -> EndpointEmbedder:
    return EndpointEmbedder(f"http://127.0.0.1:{server.server_port}/v1", "tiny", "k3y")


def test_a_server_is_asked_in_batches_and_its_rows_are_put_in_order(server: Server) -> None:
    sentences = ["a" * (1 + i % 7) for i in range(150)]
    rows = embedder(server).embed(sentences)
    assert rows[:, 0].tolist() == [len(s) for s in sentences]
    assert [len(body["input"]) for _, _, body in server.asked] == [64, 64, 22]
    path, key, body = server.asked[0]
    assert (path, key, body["model"]) == ("/v1/embeddings", "Bearer k3y", "tiny")


def test_a_server_that_is_busy_is_asked_again(server: Server) -> None:
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
    server: Server, reply: tuple[int, Any]
) -> None:
    server.replies = [reply]
    with pytest.raises(EngineError, match=r"Embeddings by 'tiny' cannot be had") as caught:
        embedder(server).embed(["a", "b"])
    assert "k3y" not in str(caught.value)


def test_without_embeddings_coherence_is_missing_and_never_0() -> None:
    metrics = prose_metrics(HARBOUR)
    assert metrics.coherence is None
    assert metrics.far_coherence is None


def test_the_local_table_finds_prose_more_coherent_than_its_sentences_shuffled_with_another() -> (
    None
):
    local = local_embedder()
    if local is None:
        pytest.skip("needs the extra embeddings")
    assert isinstance(local, StaticEmbedder)
    whole = prose_metrics(HARBOUR, local).coherence
    mixed = [s for pair in zip(sentences(HARBOUR), sentences(ORCHARD), strict=False) for s in pair]
    shuffled = prose_metrics(" ".join(mixed), local).coherence
    assert whole is not None
    assert shuffled is not None
    assert 0.0 < shuffled < whole < 1.0
    repeated = prose_metrics("It was the sea again. " * 9, local)
    assert repeated.coherence == pytest.approx(1.0)
    assert not np.isnan(repeated.far_coherence or np.nan)


def sentences(text: str) -> list[str]:
    from contextcliff_dagster.experiments.continuation.prose.words import read_prose

    return read_prose(text).sentences()
