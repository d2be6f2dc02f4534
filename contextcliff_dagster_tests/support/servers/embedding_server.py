"""A real HTTP server of embeddings: it answers as a test tells it, and keeps what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class EmbeddingServer(ThreadingHTTPServer):
    """Answers with the ``replies`` in turn, the last one for ever; keeps what it was asked."""

    replies: list[tuple[int, Any]]
    asked: list[tuple[str, str | None, dict[str, Any]]]

    @property
    def base_url(self) -> str:
        """Its address up to /v1."""
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer

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
    """A vector of two numbers for each sentence, the last one first."""
    rows = [{"index": i, "embedding": [len(s), 1.0]} for i, s in enumerate(sentences)]
    return {"data": rows[::-1]}


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    """A server that answers with `vectors`."""
    with EmbeddingServer(("127.0.0.1", 0), Handler) as one:
        one.asked, one.replies = [], [(200, vectors)]
        Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.shutdown()
