"""A lean HTTP client for streamed completions: aiohttp, and a reader of server-sent events.

It never sends a request twice, follows no redirect, and takes no credentials from the environment
or a netrc file; only proxies are taken from there. Measured against the vendor's client by
``benchmarks/overhead.py``: that one costs ten times the CPU a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 2.0
"""Long-kept connections race with the server closing them. Without TLS none is kept: a new one
costs next to nothing there, and servers as llama.cpp's close theirs after a stream unannounced."""
_MOST_OF_AN_ERROR = 64 * 1024
MOST_OF_A_REPLY = 16 << 20
"""Bytes of a reply, decompressed, where nothing that was asked for makes it longer."""
_REST_BYTES, _REST_SECONDS = 64 * 1024, 1.0
DONE = b"[DONE]"
_BLANK = b"\xef\xbb\xbf \t\r\n"
_WRITE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> dict[str, Any]:
        """The body's JSON object, or the first of a list (Gemini's errors); {} where it is none."""
        import orjson

        try:
            body = orjson.loads(self.data)
        except orjson.JSONDecodeError:
            return {}
        body = body[0] if isinstance(body, list) and body else body
        return body if isinstance(body, dict) else {}


class StatusError(Exception):
    """A status other than 200."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"status {reply.status}")
        self.reply = reply


class OversizedError(Exception):
    """A reply that is longer than any answer to its request can be."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the server sent more than {most:,} bytes, more than any answer takes")


class Whole(bytes):
    """An answer in one piece, of a server that does not stream."""


class Endpoint:
    """One server, under one base URL, for one event loop. Errors are aiohttp's own, TimeoutError,
    `StatusError` and `OversizedError`. ``direct``: past any proxy, as a server of our own is
    reached."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        connections: int,
        direct: bool = False,
    ) -> None:
        import aiohttp
        from yarl import URL

        self._base_url = base_url
        self._proxy = None if direct else _proxy_for(base_url)
        self._proxy_auth = aiohttp.BasicAuth.from_url(URL(self._proxy)) if self._proxy else None
        kept: dict[str, Any] = {"force_close": True}
        if urlsplit(base_url).scheme == "https":
            kept = {"keepalive_timeout": KEEP_ALIVE_SECONDS}
        # The timeout of the whole answer is the caller's; here only what is sooner known.
        waiting = aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_SECONDS, timeout_s))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, **kept),
            timeout=waiting,
            headers={"User-Agent": "contextcliff", "Content-Type": "application/json", **headers},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    def _request(
        self, path: str, parts: Sequence[bytes], *, under_v1: bool = True
    ) -> aiohttp.client._RequestContextManager:
        base, mark, query = self._base_url.partition("?")  # an API version or a key stays the query
        base = base.rstrip("/")
        size = sum(map(len, parts))
        is_long = size > _WRITE_BYTES
        return self._session.request(
            "POST" if parts else "GET",
            f"{base if under_v1 else base.removesuffix('/v1')}{path}{mark}{query}",
            # Short bodies in one piece, so that they leave in one; a long document is not copied.
            data=_written(parts) if is_long else b"".join(parts) or None,
            headers={"Content-Length": str(size)} if is_long else None,
            allow_redirects=False,
            proxy=self._proxy,
            proxy_auth=self._proxy_auth,
        )

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
        request = self._request(path, parts, under_v1=under_v1)
        async with asyncio.timeout(within_s), request as response:
            data = await _read(response, most)
            if len(data) > most:
                raise OversizedError(most)
            return Reply(response.status, response.headers, data)

    async def events(
        self, path: str, parts: Sequence[bytes], most: int = MOST_OF_A_REPLY
    ) -> AsyncGenerator[bytes, None]:
        """POST ``parts``, one after the other, and yield the data of each server-sent event.

        Ends where the stream ends, or with the event `DONE`. An answer
        that is one JSON object, whatever it is declared as, is one event, a `Whole`; what else
        comes without the form of events yields nothing. ``most``: bytes of it, decompressed.
        """
        async with self._request(path, parts) as response:
            if not 200 <= response.status < 300:
                data = await _read(response, _MOST_OF_AN_ERROR)
                raise StatusError(Reply(response.status, response.headers, data))
            reader, came = EventReader(), 0
            head: bytes | None = b""
            async for piece in response.content.iter_any():
                came += len(piece)
                if came > most:
                    raise OversizedError(most)
                if head is not None:
                    if not (head := (head + piece).lstrip(_BLANK)):
                        continue
                    piece, head = head, None
                    if piece[:1] == b"{":
                        data = piece + await _read(response, most - len(piece))
                        if len(data) > most:
                            raise OversizedError(most)
                        yield Whole(data)
                        return
                for event in reader.feed(piece):
                    yield event
                    if event == DONE:
                        await _read_rest(response)
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


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The rest of the body, up to the piece in which ``most`` bytes are exceeded."""
    data = bytearray()
    async for piece in response.content.iter_any():
        data += piece
        if len(data) > most:
            break
    return bytes(data)


async def _read_rest(response: aiohttp.ClientResponse) -> None:
    """What comes behind the end is a few bytes of framing: read, the connection is reused."""
    if response.content.at_eof():
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_REST_SECONDS):
            await _read(response, _REST_BYTES)


async def _written(parts: Sequence[bytes]) -> AsyncIterator[memoryview]:
    """In pieces: the kernel takes them as it can, and nothing piles up in between."""
    for part in parts:
        for start in range(0, len(part), _WRITE_BYTES):
            yield memoryview(part)[start : start + _WRITE_BYTES]


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this host."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
