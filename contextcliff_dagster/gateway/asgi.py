"""ASGI middleware that checks requests to a language model against the cap.

It can wrap any ASGI application: your own, a proxy, or a model's server. It needs no framework, but
an asyncio event loop.

    app = SafeContextMiddleware(app, policy="safe-context.json", route_to={"small": "large"})
"""

from __future__ import annotations

import asyncio
import json
import posixpath
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from contextcliff_dagster.gateway.gate import Decision, Gate
from contextcliff_dagster.gateway.settings import GateSettings
from contextcliff_dagster.user_files import loads

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CHECKED_PATHS = "/chat/completions", "/completions", "/messages", "/responses"
"""Endings of the checked paths, below /v1 or any other prefix."""
LARGEST_BODY = 64 << 20
_SHORT = 4_096
"""Maximum bytes of a body that is checked in place, because it is below a usual cap and no tokens
need counting. A longer body is checked in a thread."""
_OF_THE_BODY = {b"content-length", b"transfer-encoding", b"content-encoding"}
"""Headers that are no longer valid for a rewritten body."""


class SafeContextMiddleware:
    """Middleware that refuses prompts above the cap with status 400, or routes them elsewhere.

    Args:
        app: the application that answers.
        policy: path of `safe-context.json`; further settings by name, see `GateSettings`.
        paths: endings of the paths whose POST requests are checked; others pass untouched.
        max_body_bytes: a longer body on these paths is refused with status 413.

    A request within the cap reaches ``app`` in its original chunks, and answers are not touched. A
    request routed to another model keeps all but ``model``, and is serialised as JSON again.

    Raises:
        PolicyError: a setting is wrong, or there is no usable policy.
    """

    def __init__(
        self,
        app: App,
        *,
        paths: Sequence[str] = CHECKED_PATHS,
        max_body_bytes: int = LARGEST_BODY,
        **settings: Any,
    ) -> None:
        self.app = app
        self.gate = Gate(GateSettings.of(settings))
        self._paths = tuple(path.rstrip("/").casefold() for path in paths)
        self._most = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not (
            scope["type"] == "http"
            and scope["method"] == "POST"
            and posixpath.normpath(scope["path"]).casefold().endswith(self._paths)
        ):
            return await self.app(scope, receive, send)
        pieces: list[Message] = []
        size = 0
        while not pieces or pieces[-1].get("more_body", False):
            pieces.append(await receive())
            if pieces[-1]["type"] == "http.disconnect":
                return None
            size += len(pieces[-1].get("body", b""))
            if size > self._most:
                return await _refuse(send, 413, _too_large(self._most))
        content = b"".join(piece.get("body", b"") for piece in pieces)
        packed = any(
            name == b"content-encoding" and value.strip().lower() not in (b"identity", b"")
            for name, value in scope["headers"]
        )
        if size > _SHORT:
            body, decision = await asyncio.to_thread(self._decide, content, packed)
        else:
            body, decision = self._decide(content, packed)
        if decision.error is not None:
            return await _refuse(send, 400, decision.error)
        if decision.model is not None:
            content = json.dumps({**body, "model": decision.model}).encode()
            pieces = [{"type": "http.request", "body": content, "more_body": False}]
            length = str(len(content)).encode()
            kept = [pair for pair in scope["headers"] if pair[0] not in _OF_THE_BODY]
            scope = {**scope, "headers": [*kept, (b"content-length", length)]}
        return await self.app(scope, _replayed(pieces, receive), send)

    def _decide(self, content: bytes, packed: bool) -> tuple[Any, Decision]:
        try:
            body = loads(content, object_pairs_hook=_once_each)
            if isinstance(body, dict):  # some servers ignore the case of member names
                _once_each([(name.casefold(), None) for name in body])
        except _TwiceError as error:
            return None, Decision("refused", _invalid(str(error), "invalid_json"))
        except ValueError:
            body = None
        # Not every server decompresses: it may read the body as it is.
        return body, self.gate.decide(body, "a body with content-encoding" if packed else None)


class _TwiceError(Exception):
    """A JSON object with a duplicate name, of which different servers use different values."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        name = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise _TwiceError(f"The request's body has the name {name[:80]!r} twice in one object.")
    return members


def _replayed(pieces: list[Message], receive: Receive) -> Receive:
    waiting = iter(pieces)

    async def again() -> Message:
        for piece in waiting:
            return piece
        return await receive()

    return again


def _too_large(most: int) -> dict[str, Any]:
    message = f"The request's body is larger than {most:,} bytes, the most that is checked."
    return _invalid(message, "request_too_large")


def _invalid(message: str, code: str) -> dict[str, Any]:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return {"type": "error", "error": error}


async def _refuse(send: Send, status: int, error: dict[str, Any]) -> None:
    content = json.dumps(error).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
