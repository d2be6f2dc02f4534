"""An HTTP client for one endpoint, built on the ``openai`` package, with bounded replies.

The package's client is restricted to what a measurement needs. It sends over aiohttp, because its
usual transport takes twice the CPU per call. Nothing is sent twice, no redirect is followed, no
cookie kept. From the environment it uses only proxies and certificates: no key, address, header or
netrc file. The words by which servers explain refusals are a shortcut to a reason that evidence
would show otherwise (`error_mapping`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.redaction import public_url

if TYPE_CHECKING:
    import httpx2
    import openai

CONNECT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 2.0
"""Seconds to keep an idle TLS connection, short because the server may close it. Without TLS none
is kept: new ones are cheap, and servers like llama.cpp's close them unannounced."""
MOST_OF_A_REPLY = 16 << 20
"""Size limit of a decompressed reply in bytes, unless the request calls for a longer one."""
_REST_BYTES, _REST_SECONDS = 64 * 1024, 1.0
_MOST_OF_AN_ERROR = 64 * 1024
_WRITE_BYTES = 256 * 1024
_NO_SOCKS = "SOCKS is not supported; set HTTP_PROXY and HTTPS_PROXY to an HTTP proxy"
_OF_THE_PACKAGE = ("Authorization", "X-Stainless-Retry-Count", "X-Stainless-Read-Timeout")
DONE = b"[DONE]"
_BLANK = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete HTTP reply."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> dict[str, Any]:
        """Return the body's JSON object, or the first of a list (Gemini's errors); else {}."""
        import orjson

        try:
            body = orjson.loads(self.data)
        except orjson.JSONDecodeError:
            return {}
        body = body[0] if isinstance(body, list) and body else body
        return body if isinstance(body, dict) else {}


class StatusError(Exception):
    """A reply with a status other than 200."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"status {reply.status}")
        self.reply = reply


class OversizedError(Exception):
    """Raised if a reply is longer than any answer to its request can be."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the server sent over {most:,} bytes, more than any answer can need")


class Whole(bytes):
    """An answer that came in one piece, from a server that does not stream."""


class Endpoint:
    """A server under one base URL, for one event loop, which gets ``headers`` and no others.

    ``direct``: the server is our own, on this machine, so proxies are ignored. ``verify``: whether
    to check certificates, or the file of trusted ones. Raises EngineError if these, the address or
    a proxy from the environment cannot be used. Errors of requests are aiohttp's own, TimeoutError,
    `StatusError` and `OversizedError`.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        connections: int,
        direct: bool = False,
        verify: bool | str = True,
    ) -> None:
        import aiohttp
        import httpx2
        import openai
        from yarl import URL

        all_headers = {"User-Agent": "contextcliff", "Content-Type": "application/json", **headers}
        if "@" in urlsplit(base_url).netloc:
            address = URL(base_url)
            base_url = str(address.with_user(None))
            user = aiohttp.encode_basic_auth(address.user or "", address.password or "")
            all_headers.setdefault("Authorization", user)
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs addresses, keys included
        try:
            tls: ssl.SSLContext | bool = verify is True and not direct
            if isinstance(verify, str):
                tls = ssl.create_default_context(cafile=verify)
            http = openai.DefaultAioHttpClient(
                # The caller times the whole answer; this timeout only finds earlier failures.
                timeout=httpx2.Timeout(None, connect=min(CONNECT_SECONDS, timeout_s)),
                follow_redirects=False,
                trust_env=not direct,
                verify=tls,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                event_hooks={"response": [_raise_for_status]},
            )
            transport: Any = http._transport_for_url(httpx2.URL(base_url))
        except httpx2.InvalidURL:
            text = f"{public_url(base_url)} is not an address; correct `base_url` in models.yaml."
            raise EngineError(text) from None
        except OSError as error:
            raise EngineError(
                f"{'SSL_CERT_FILE' if verify is True else verify} is not a certificate file "
                f"({error.strerror or error}); correct `ca_bundle` in models.yaml, or the variable."
            ) from None
        except ValueError as error:
            raise EngineError(f"A proxy cannot be used ({error}): {_NO_SOCKS}.") from None
        self.proxy = str(transport.proxy.url) if transport.proxy else None
        if self.proxy and self.proxy.startswith("socks"):
            raise EngineError(
                f"{public_url(base_url)} is behind the proxy {self.proxy}: {_NO_SOCKS}, or "
                "add the host to NO_PROXY."
            )
        pooling: dict[str, Any] = {"force_close": True}
        if base_url.startswith("https:"):
            pooling = {"keepalive_timeout": KEEP_ALIVE_SECONDS}
        # A session that the transport makes for itself keeps cookies, and all connections.
        transport.client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=transport.ssl_context, **pooling),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._base_url = base_url
        self._client, self._headers = _client_and_headers(base_url, all_headers, http)
        self._kinds = {"cast_to": httpx2.Response, "stream_cls": openai.AsyncStream[object]}
        self._wrappers = (openai.APIConnectionError, httpx2.RequestError)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    def _url(self, path: str, *, under_v1: bool = True) -> str:
        base, mark, query = self._base_url.partition("?")  # an API version or a key stays the query
        base = base.rstrip("/")
        mark = "&" if mark and "?" in path else mark
        return f"{base if under_v1 else base.removesuffix('/v1')}{path}{mark}{query}"

    def exchange(self, path: str, **form: Any) -> AbstractAsyncContextManager[httpx2.Response]:
        """Send a GET, or a POST of a form (``body`` and ``files``); give its reply, unread."""
        return self._response(path, (), **form)

    @asynccontextmanager
    async def _response(
        self, path: str, parts: Sequence[bytes], *, under_v1: bool = True, **form: Any
    ) -> AsyncIterator[httpx2.Response]:
        url = self._url(path, under_v1=under_v1)
        size = sum(map(len, parts))
        headers = {**self._headers, "Content-Length": str(size)} if parts else self._headers
        if form:
            headers = {**headers, "Content-Type": "multipart/form-data"}
        arguments: dict[str, Any] = {"options": {"headers": headers}, "stream": True}
        arguments |= self._kinds | form
        if parts:
            # Short bodies in one piece, so that they leave in one; a long document is not copied.
            arguments["content"] = _written(parts) if size > _WRITE_BYTES else b"".join(parts)
        try:
            send = self._client.post if parts or form else self._client.get
            response = await send(url, **arguments)
            try:
                yield response
            finally:
                await response.aclose()
        except self._wrappers as error:
            # The package does not distinguish a refused connection from a broken one.
            cause: BaseException = error
            while isinstance(cause, self._wrappers) and cause.__cause__:
                cause = cause.__cause__
            raise cause from None

    async def ask(
        self,
        path: str,
        parts: Sequence[bytes] = (),
        *,
        within_s: float,
        under_v1: bool = True,
        most: int = MOST_OF_A_REPLY,
    ) -> Reply:
        """Send one request (a POST if it has ``parts``); return its reply, whatever the status.

        ``under_v1`` False: ``path`` is next to the ``/v1`` of the base URL, not under it. ``most``:
        largest size of the reply in bytes, decompressed.
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
        """POST ``parts`` one after the other and yield the data of each server-sent event.

        Ends with the stream or with the event `DONE`. An answer that is one JSON object, whatever
        its declared type, is one event, a `Whole`; other data that are not events yield nothing.
        ``most``: largest size of the answer in bytes, decompressed.
        """
        reader, received = EventReader(), 0
        head: bytes | None = b""
        async with (
            self._response(path, parts) as response,
            aclosing(response.aiter_bytes()) as pieces,
        ):
            async for piece in pieces:
                received += len(piece)
                if received > most:
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


async def _raise_for_status(response: httpx2.Response) -> None:
    # The package would read the whole of an error, however long.
    if not 200 <= response.status_code < 300:
        async with aclosing(response.aiter_bytes()) as pieces:
            data = (await read(pieces, _MOST_OF_AN_ERROR))[:_MOST_OF_AN_ERROR]
        raise StatusError(Reply(response.status_code, response.headers, data))


async def _written(parts: Sequence[bytes]) -> AsyncIterator[memoryview]:
    """Yield the parts in pieces, as fast as the kernel accepts them, so that nothing piles up."""
    for part in parts:
        for start in range(0, len(part), _WRITE_BYTES):
            yield memoryview(part)[start : start + _WRITE_BYTES]


async def read(pieces: AsyncIterator[bytes], most: int) -> bytes:
    """Return the rest of the body, up to and including the piece that exceeds ``most`` bytes."""
    data = bytearray()
    async for piece in pieces:
        data += piece
        if len(data) > most:
            break
    return bytes(data)


def _client_and_headers(
    url: str, headers: dict[str, str], http: httpx2.AsyncClient
) -> tuple[openai.AsyncOpenAI, dict[str, Any]]:
    # The package sends a bearer key itself: to Azure (it has an `api-version`) as `api-key`.
    import openai

    scheme, _, key = headers.get("Authorization", "").partition(" ")
    options: dict[str, Any] = {"base_url": url, "max_retries": 0, "http_client": http}
    version = parse_qs(urlsplit(url).query).get("api-version")
    if scheme != "Bearer":
        client = openai.AsyncOpenAI(api_key="none", **options)
    else:
        del headers["Authorization"]
        if version:
            client = openai.AsyncAzureOpenAI(api_key=key, api_version=version[0], **options)
        else:
            client = openai.AsyncOpenAI(api_key=key, **options)
        headers |= client.auth_headers
    client._platform = "Unknown"  # else a thread detects it for a header that we omit
    # Among the defaults are headers that the environment names.
    names = {name.lower() for name in headers}
    package_headers = (*client.default_headers, *_OF_THE_PACKAGE)
    return client, {n: openai.omit for n in package_headers if n.lower() not in names} | headers


class EventReader:
    """Parser that splits bytes into the data of server-sent events.

    It follows WHATWG HTML, 9.2.6: lines end with LF or CRLF; lines without a colon, comments and
    fields other than ``data`` are ignored; the ``data`` lines of one event are joined by LF.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the events that ``piece`` completes."""
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
        """Return the event completed by the end, because some servers omit the last empty line."""
        return self.feed(b"\n\n")


async def _read_rest(pieces: AsyncIterator[bytes]) -> None:
    """Read the few bytes of framing after the end, so that the connection can be reused."""
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
BAD_KEY = re.compile(
    r"api[ _]key (?:not valid|invalid|is invalid)|api_key_invalid|incorrect api key"
)
"""What a server says if the key is refused."""
PASSES = re.compile(
    r"\boverload|\bbusy\b|time ?out|timed out|try again|rate[ _-]?limit|temporar|unavailable"
    r"|internal (?:server )?error|(?:at|over) capacity|out of memory"
)
"""What a server says if the same request may be answered later."""
_RATES = ("rate_limit", "tokens per", "requests per", "tpm", "tpd", "quota")
_TOO_MUCH_AT_ONCE = re.compile(r"limit:? ([\d,]+)\b.{0,80}?requested:? ([\d,]+)", re.DOTALL)
_WAIT = re.compile(
    r"(?:try again|retry|retry[_ ]?delay)\W{0,4}(?:in|after)?\W{0,4}(?:(\d+)h)?(?:(\d+)m(?!s))?"
    r"(?:([\d.]+)(ms|s)\b)?"
)


def known_refusal(message: str) -> Literal["content_filter", "context_overflow"] | None:
    """Return the kind of a refusal if its wording is known; content filters are checked first.

    This and the next functions take the server's message in lower case, after its code and type.
    """
    if _FILTER.search(message):
        return "content_filter"
    return "context_overflow" if any(sign in message for sign in _OVERFLOW_SIGNS) else None


def is_used_up(message: str) -> bool:
    """Return whether the account's money or quota is used up; payment addresses do not count."""
    return bool(_QUOTA.search(re.sub(r"https?://\S+", "", message)))


def is_rate(message: str) -> bool:
    """Return whether the refusal is about a rate limit."""
    return any(sign in message for sign in _RATES)


def too_much_at_once(message: str) -> str | None:
    """Return the rate limit if this request alone exceeds it and the refusal gives both numbers."""
    match = _TOO_MUCH_AT_ONCE.search(message) if is_rate(message) else None
    limit, wanted = (int(number.replace(",", "")) for number in match.groups()) if match else (0, 0)
    unit = "a day" if "tpd" in message or "per day" in message else "a minute"
    return f"{limit:,} tokens {unit}" if wanted > limit > 0 else None


def asked_wait_s(message: str) -> float | None:
    """Return the seconds that the message asks to wait ("try again in 1h2m", "retryDelay: 4s")."""
    for hours, minutes, number, unit in (match.groups() for match in _WAIT.finditer(message)):
        if hours or minutes or unit:
            seconds = float(number or 0) / (1000 if unit == "ms" else 1)
            return 3600 * int(hours or 0) + 60 * int(minutes or 0) + seconds
    return None
