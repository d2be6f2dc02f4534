"""A server that answers any call to a language model, and keeps the bodies it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def recording_server() -> Iterator[tuple[str, list[bytes]]]:
    """Its base URL, and the bodies in the order in which they came."""
    bodies: list[bytes] = []

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(body)
            content = json.dumps(_answer(str(json.loads(body)["model"]))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}/v1", bodies
        finally:
            serving.shutdown()
            thread.join()


def _answer(model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": f"I am {model}"}
    choice = {"index": 0, "message": message, "text": f"I am {model}", "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": "x", "object": "chat.completion", "created": 0, "model": model}
    return {**head, "choices": [choice], "usage": usage}
