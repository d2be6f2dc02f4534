"""A model hub on this machine: repositories of one file, some of which need a token."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" + "0" * 34


@contextmanager
def model_hub(files: Mapping[str, bytes], token: str) -> Iterator[tuple[str, list[str]]]:
    """Serve ``files`` (path -> content) as the hub does; its address, and what it is asked.

    ``gated/...`` and ``private/...`` are given to ``token`` alone.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            asked.append(f"{self.command} {self.path}")
            known = self.headers.get("Authorization") == f"Bearer {token}"
            owner = self.path.strip("/").split("/")[0]
            content = files.get(self.path)
            status, code = 200, ""
            if owner == "gated" and not known:
                status, code = 403, "GatedRepo"
            elif owner == "private" and not known:
                status, code = 401, "RepoNotFound"
            elif content is None:
                entry = any(path.split("/")[1] == owner for path in files)
                status, code = 404, "EntryNotFound" if entry else "RepoNotFound"
            sent = content if status == 200 and content is not None else b""
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(sent).hexdigest()}"')
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            if body:
                self.wfile.write(sent)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
