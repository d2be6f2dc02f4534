"""A client of OpenAI-compatible batch interfaces: files of requests, batches, files of results.

Requests go through the engine's `Endpoint`, errors through its `ErrorMapper`. Only questions are
repeated; an upload, a creation and a cancellation are sent once, because their answer may be what
was lost. Look with `BatchInterface.find` before you create again.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from contextcliff_dagster.inference.engines.base import TransportError, token_count
from contextcliff_dagster.inference.engines.openai.error_mapping import ErrorMapper
from contextcliff_dagster.inference.engines.openai.http_client import (
    MOST_OF_A_REPLY,
    Endpoint,
    OversizedError,
    Reply,
    StatusError,
    read,
)
from contextcliff_dagster.inference.engines.openai.wire_format import objects_in
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.retry import QUESTIONS, retry

_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_PAGES, _BATCHES_A_PAGE = 20, 100


class GoneError(Exception):
    """The provider does not have the file or batch, or no longer."""


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """What the provider says of a batch. ``completed`` and ``failed`` count requests; ``reason``
    holds the messages of ``errors``, and no secret."""

    id: str
    status: str
    output_file: str | None
    error_file: str | None
    completed: int
    failed: int
    reason: str

    @property
    def has_ended(self) -> bool:
        """Whether the status is final. There may be results whichever it is."""
        return self.status in _ENDED


class BatchInterface:
    """A provider's batch interface for one model, through the endpoint of its started engine.

    Each method raises TransportError if the same may succeed later, and RejectedError or
    EngineError if the provider refuses for good.
    """

    def __init__(self, entry: ModelEntry, endpoint: Endpoint, errors: ErrorMapper) -> None:
        self._entry, self._endpoint, self._errors = entry, endpoint, errors

    async def upload(self, file: Path, name: str) -> str:
        """Send ``file`` in pieces as a batch's input called ``name``; return its id there.

        It may take any time, but a pause of the entry's ``timeout_s`` ends it.
        """
        pause_s, now = self._entry.timeout_s, asyncio.get_running_loop().time
        limit = asyncio.timeout(pause_s)
        with _WatchedFile(file, lambda: limit.reschedule(now() + pause_s)) as content:
            form = {"file": (name, content, "application/jsonl")}
            exchange = self._endpoint.exchange("/files", body={"purpose": "batch"}, files=form)
            with self._sorted_errors():
                async with limit, exchange as response:
                    data = await read(response.aiter_bytes(), MOST_OF_A_REPLY)
        file_id = _text(Reply(response.status_code, response.headers, data).json().get("id"))
        if file_id is None:
            raise TransportError("bad_answer", "the answer to an upload names no file")
        return file_id

    async def create(
        self, file_id: str, path: str, window: str, metadata: Mapping[str, str]
    ) -> RemoteBatch:
        """Start a batch of the file's requests to ``path``, such as ``/v1/chat/completions``.

        After a TransportError that is ``maybe_paid``, the batch may exist.
        """
        body = {"input_file_id": file_id, "endpoint": path, "completion_window": window}
        return self._batch(await self._ask("/batches", {**body, "metadata": dict(metadata)}))

    async def retrieve(self, batch_id: str) -> RemoteBatch:
        """Return what the provider says of the batch now; raise GoneError if it has none."""
        path = f"/batches/{quote(batch_id, safe='')}"
        return self._batch(await self._question(path, of=f"batch {batch_id}"))

    async def find(self, metadata: Mapping[str, str]) -> RemoteBatch | None:
        """Return the newest of the listed batches whose metadata include ``metadata``, if any.

        All pages are read, up to 2,000 batches, because no order of the list is published.
        """
        found: list[dict[str, Any]] = []
        cursors: list[str] = []
        while len(cursors) < _PAGES:
            query = {"limit": _BATCHES_A_PAGE} | ({"after": cursors[-1]} if cursors else {})
            page = await self._question(f"/batches?{urlencode(query)}")
            if not isinstance(page.get("data"), list):
                # Not the same as an empty list, after which the caller would pay for a new batch.
                raise TransportError("bad_answer", "the answer is not a list of batches")
            batches = objects_in(page["data"])
            found += [batch for batch in batches if metadata.items() <= _metadata(batch).items()]
            cursor = _text(batches[-1].get("id")) if batches else None
            if page.get("has_more") is False or cursor is None or cursor in cursors:
                break
            cursors.append(cursor)
        newest = max(found, key=lambda batch: token_count(batch.get("created_at")) or 0, default={})
        return self._batch(newest) if newest else None

    async def cancel(self, batch_id: str) -> RemoteBatch:
        """Ask for the end of a batch; the provider may take minutes to cancel it."""
        return self._batch(await self._ask(f"/batches/{quote(batch_id, safe='')}/cancel", {}))

    async def lines(self, file_id: str) -> AsyncGenerator[bytes, None]:
        """Yield each line of a file, without its end; the last may be incomplete.

        Raises:
            GoneError: the file does not exist any more.
            TransportError: also after some lines, which are right nevertheless.
        """
        path, timeout_s = f"/files/{quote(file_id, safe='')}/content", self._entry.timeout_s
        line = bytearray()
        with self._sorted_errors(sent=True):
            async with AsyncExitStack() as stack:

                async def opened() -> AsyncIterator[bytes]:
                    with self._sorted_errors(of=f"file {file_id}"):
                        async with asyncio.timeout(timeout_s):
                            reply = await stack.enter_async_context(self._endpoint.exchange(path))
                        return reply.aiter_bytes()

                pieces = await retry(opened, QUESTIONS)
                while True:
                    async with asyncio.timeout(timeout_s):
                        piece = await anext(pieces, None)
                    if piece is None:
                        break
                    rest, *others = piece.split(b"\n")
                    line += rest
                    for other in others:
                        yield bytes(line)
                        line = bytearray(other)
                    if len(line) > MOST_OF_A_REPLY:
                        raise OversizedError(MOST_OF_A_REPLY)
        if line:
            yield bytes(line)

    def error_of(self, status: int, body: Mapping[str, Any]) -> Exception:
        """Return the error that a line of a file of results reports."""
        return self._errors.sort(StatusError(Reply(status, {}, orjson.dumps(body))))

    def reason_of(self, body: Mapping[str, Any]) -> str:
        """Return the words of an error that stands in a file of results instead of a reply."""
        return self._errors.redact(_reason([body.get("error")]))

    async def _question(self, path: str, of: str = "") -> dict[str, Any]:
        return await retry(partial(self._ask, path, of=of), QUESTIONS)

    async def _ask(
        self, path: str, body: Mapping[str, Any] | None = None, *, of: str = ""
    ) -> dict[str, Any]:
        parts = [] if body is None else [orjson.dumps(body)]
        with self._sorted_errors(of=of):
            reply = await self._endpoint.ask(path, parts, within_s=self._entry.timeout_s)
            if not 200 <= reply.status < 300:
                raise StatusError(reply)
        return reply.json()

    @contextmanager
    def _sorted_errors(self, *, sent: bool = False, of: str = "") -> Iterator[None]:
        try:
            yield
        except GoneError:
            raise
        except Exception as error:
            if of and isinstance(error, StatusError) and error.reply.status in {404, 410}:
                where = f"Model {self._entry.name!r}: its provider"
                raise GoneError(f"{where} has no {of} any more") from None
            raise self._errors.sort(error, sent=sent) from None

    def _batch(self, body: Mapping[str, Any]) -> RemoteBatch:
        batch_id, status = _text(body.get("id")), _text(body.get("status"))
        if batch_id is None or status is None:
            raise TransportError("bad_answer", "the answer is not a batch", maybe_paid=True)
        counts, errors = body.get("request_counts"), body.get("errors")
        counts = counts if isinstance(counts, dict) else {}
        data = errors.get("data") if isinstance(errors, dict) else errors
        return RemoteBatch(
            id=batch_id,
            status=status.lower(),
            output_file=_text(body.get("output_file_id")),
            error_file=_text(body.get("error_file_id")),
            completed=token_count(counts.get("completed")) or 0,
            failed=token_count(counts.get("failed")) or 0,
            reason=self._errors.redact(_reason(data)),
        )


class _WatchedFile(io.FileIO):
    """A file that reports each time that a piece of it is read."""

    def __init__(self, file: Path, on_read: Callable[[], None]) -> None:
        super().__init__(file)
        self._on_read = on_read

    def read(self, size: int | None = -1, /) -> bytes:
        self._on_read()
        return super().read(size) or b""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _metadata(batch: Mapping[str, Any]) -> dict[str, str]:
    metadata = batch.get("metadata")
    items = metadata.items() if isinstance(metadata, dict) else ()
    return {name: value for name, value in items if isinstance(value, str)}


def _reason(errors: Any) -> str:
    """Return the messages of a batch's errors, each with the line of the input, if it has one."""
    sentences = []
    for error in objects_in(errors):
        message, code = _text(error.get("message")), _text(error.get("code"))
        line = token_count(error.get("line"))
        named = [code if line is None or not message else f"line {line}", message]
        sentences.append(": ".join(filter(None, named)) or "no reason given")
    return "; ".join(sentences)
