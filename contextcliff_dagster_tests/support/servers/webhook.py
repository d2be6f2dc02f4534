"""A webhook that keeps what is posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from contextcliff_dagster.experiments.alert_channels import WEBHOOK

SECRET = "T0KEN-in-the-path"


class Webhook(HTTPServer):
    """Keeps what is posted to it; answers with ``status``."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Keeper)
        self.got: list[dict[str, object]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/{SECRET}"


class _Keeper(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    server = Webhook()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv(WEBHOOK, server.url)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
