"""One endpoint, asked through the ``openai`` package. Its answers are read here, up to a bound.

Words by which servers say why they refuse, sorted: they shorten the way to what would show
otherwise by evidence (`execution.refusals`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Literal

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


_OVERFLOW_SIGNS = (
    "maximum context length",
    "maximum input length",
    "context_length_exceeded",
    "exceed_context_size",
    "exceeds the available context",
    "context length exceeded",
    "context window",
    "prompt is too long",
    "too many tokens",
    "longer than the maximum model length",
)
_FILTER = re.compile(
    r"content[_ -]?filter|content[_ -](?:management[_ -])?policy|responsible ?_?ai|guardrail"
    r"|safety[_ ](?:system|filter|setting|check)|blocked by|prohibited_content|requires moderation"
    r"|\bflagged\b|violat\w* .{0,40}(?:polic|guideline|terms)|data_inspection"
    r"|inappropriate content|敏感"
)
_QUOTA = re.compile(
    r"insufficient_quota|insufficient (?:balance|credit|funds)|credit balance|billing|arrear"
    r"|exceeded_current_quota|all available credits|good standing|余额不足"
)
_BAD_KEY = re.compile(
    r"api[ _]key (?:not valid|invalid|is invalid)|api_key_invalid|incorrect api key"
)
_PASSES = re.compile(
    r"\boverload|\bbusy\b|time ?out|timed out|try again|rate[ _-]?limit|temporar|unavailable"
    r"|internal (?:server )?error|(?:at|over) capacity|out of memory"
)
_RATES = ("rate_limit", "tokens per", "requests per", "tpm", "tpd", "quota")
_TOO_MUCH_AT_ONCE = re.compile(r"limit:? ([\d,]+)\b.{0,80}?requested:? ([\d,]+)", re.DOTALL)
_WAIT = re.compile(
    r"(?:try again|retry|retry[_ ]?delay)\W{0,4}(?:in|after)?\W{0,4}(?:(\d+)h)?(?:(\d+)m(?!s))?"
    r"(?:([\d.]+)(ms|s)\b)?"
)


def known_refusal(message: str) -> Literal["content_filter", "context_overflow"] | None:
    """Why a request is refused, where the words are known; a filter comes first.

    All functions here take what the server says in lower case, its code and type before it.
    """
    if _FILTER.search(message):
        return "content_filter"
    return "context_overflow" if any(sign in message for sign in _OVERFLOW_SIGNS) else None


def is_used_up(message: str) -> bool:
    """Whether the account's money or quota is; an address to pay more at says nothing of that."""
    return bool(_QUOTA.search(re.sub(r"https?://\S+", "", message)))


def is_bad_key(message: str) -> bool:
    """Whether the key is refused."""
    return bool(_BAD_KEY.search(message))


def may_pass(message: str) -> bool:
    """Whether the same request may be answered later."""
    return bool(_PASSES.search(message))


def is_rate(message: str) -> bool:
    """Whether it is about how much may be sent in a time."""
    return any(sign in message for sign in _RATES)


def too_much_at_once(message: str) -> str | None:
    """The limit of a rate that the request alone exceeds, where the refusal gives both."""
    found = _TOO_MUCH_AT_ONCE.search(message) if is_rate(message) else None
    limit, asked = (int(number.replace(",", "")) for number in found.groups()) if found else (0, 0)
    unit = "a day" if "tpd" in message or "per day" in message else "a minute"
    return f"{limit:,} tokens {unit}" if asked > limit > 0 else None


def asked_wait_s(message: str) -> float | None:
    """Seconds that the words ask to wait ("try again in 1h2m", "retryDelay: 4s")."""
    for hours, minutes, number, unit in (found.groups() for found in _WAIT.finditer(message)):
        if hours or minutes or unit:
            seconds = float(number or 0) / (1000 if unit == "ms" else 1)
            return 3600 * int(hours or 0) + 60 * int(minutes or 0) + seconds
    return None
