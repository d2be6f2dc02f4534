"""One endpoint, asked through the ``openai`` package. Its answers are read here, up to a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress

from contextcliff_dagster.inference.engines.openai.package_client import PackageClient, read
from contextcliff_dagster.inference.engines.openai.package_client import Reply as Reply
from contextcliff_dagster.inference.engines.openai.package_client import StatusError as StatusError

MOST_OF_A_REPLY = 16 << 20
"""Bytes of a reply, decompressed, where nothing that was asked for makes it longer."""
_REST_BYTES, _REST_SECONDS = 64 * 1024, 1.0
DONE = b"[DONE]"
_BLANK = b"\xef\xbb\xbf \t\r\n"


class OversizedError(Exception):
    """A reply that is longer than any answer to its request can be."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the server sent more than {most:,} bytes, more than any answer takes")


class Whole(bytes):
    """An answer in one piece, of a server that does not stream."""


class Endpoint(PackageClient):
    """One server, under one base URL, for one event loop. Errors are aiohttp's own, TimeoutError,
    `StatusError` and `OversizedError`."""

    async def ask(
        self,
        path: str,
        parts: Sequence[bytes] = (),
        *,
        within_s: float,
        under_v1: bool = True,
        most: int = MOST_OF_A_REPLY,
    ) -> Reply:
        """One request and its whole answer, whatever the status; a POST where there are ``parts``.

        ``under_v1`` False: ``path`` is next to the ``/v1`` of the base URL, not under it.
        ``most``: bytes of the answer, decompressed.
        """
        try:
            async with (
                asyncio.timeout(within_s),
                self._response(path, parts, under_v1=under_v1) as response,
                aclosing(response.aiter_bytes()) as pieces,
            ):
                data = await read(pieces, most)
        except StatusError as error:
            return error.reply
        if len(data) > most:
            raise OversizedError(most)
        return Reply(response.status_code, response.headers, data)

    async def events(
        self, path: str, parts: Sequence[bytes], most: int = MOST_OF_A_REPLY
    ) -> AsyncGenerator[bytes, None]:
        """POST ``parts``, one after the other, and yield the data of each server-sent event.

        Ends where the stream ends, or with the event `DONE`. An answer
        that is one JSON object, whatever it is declared as, is one event, a `Whole`; what else
        comes without the form of events yields nothing. ``most``: bytes of it, decompressed.
        """
        reader, came = EventReader(), 0
        head: bytes | None = b""
        async with (
            self._response(path, parts) as response,
            aclosing(response.aiter_bytes()) as pieces,
        ):
            async for piece in pieces:
                came += len(piece)
                if came > most:
                    raise OversizedError(most)
                if head is not None:
                    if not (head := (head + piece).lstrip(_BLANK)):
                        continue
                    piece, head = head, None
                    if piece[:1] == b"{":
                        data = piece + await read(pieces, most - len(piece))
                        if len(data) > most:
                            raise OversizedError(most)
                        yield Whole(data)
                        return
                for event in reader.feed(piece):
                    yield event
                    if event == DONE:
                        await _read_rest(pieces)
                        return
            for event in reader.end():
                yield event


class EventReader:
    """Splits bytes into the data of server-sent events.

    (WHATWG HTML, 9.2.6: lines end with LF or CRLF; a line without colon, comments and fields other
    than ``data`` mean nothing here; the ``data`` lines of one event are joined by LF.)
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that ``piece`` completes."""
        *lines, self._rest = (self._rest + piece if self._rest else piece).split(b"\n")
        events: list[bytes] = []
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def end(self) -> list[bytes]:
        """What the end of the stream completes: some servers leave out the last empty line."""
        return self.feed(b"\n\n")


async def _read_rest(pieces: AsyncIterator[bytes]) -> None:
    """What comes behind the end is a few bytes of framing: read, the connection is reused."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_REST_SECONDS):
            await read(pieces, _REST_BYTES)
