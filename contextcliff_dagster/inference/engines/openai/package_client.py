"""The ``openai`` package's client, held to what a measurement needs of it.

It sends over aiohttp: by its usual transport a call costs twice the CPU. Nothing is sent twice, no
redirect is followed, no cookie kept. Of the environment only proxies and certificates count: no
key, address or header, and no netrc file.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.redaction import public_url

if TYPE_CHECKING:
    import httpx2
    import openai

CONNECT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 2.0
"""Long-kept connections race with the server closing them. Without TLS none is kept: a new one
costs next to nothing there, and servers as llama.cpp's close theirs after a stream unannounced."""
_MOST_OF_AN_ERROR = 64 * 1024
_WRITE_BYTES = 256 * 1024
_NO_SOCKS = "SOCKS is not spoken here; name an HTTP proxy in HTTP_PROXY and HTTPS_PROXY"
_OF_THE_PACKAGE = ("Authorization", "X-Stainless-Retry-Count", "X-Stainless-Read-Timeout")


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


class PackageClient:
    """Requests to one server, with ``headers`` and no others.

    ``direct``: a server of our own, on this machine: past any proxy. ``verify``: whether to, or the
    file of the certificates to trust. Raises EngineError where these, the address or a proxy of the
    environment are of no use.
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

        sent = {"User-Agent": "contextcliff", "Content-Type": "application/json", **headers}
        if "@" in urlsplit(base_url).netloc:
            address = URL(base_url)
            base_url = str(address.with_user(None))
            user = aiohttp.encode_basic_auth(address.user or "", address.password or "")
            sent.setdefault("Authorization", user)
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs addresses, keys included
        try:
            tls: ssl.SSLContext | bool = verify is True and not direct
            if isinstance(verify, str):
                tls = ssl.create_default_context(cafile=verify)
            http = openai.DefaultAioHttpClient(
                # The timeout of the whole answer is the caller's; here only what is sooner known.
                timeout=httpx2.Timeout(None, connect=min(CONNECT_SECONDS, timeout_s)),
                follow_redirects=False,
                trust_env=not direct,
                verify=tls,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                event_hooks={"response": [_raise_for_status]},
            )
            transport: Any = http._transport_for_url(httpx2.URL(base_url))
        except httpx2.InvalidURL:
            wrong = f"{public_url(base_url)} is no address; correct `base_url` in models.yaml."
            raise EngineError(wrong) from None
        except OSError as error:
            raise EngineError(
                f"{'SSL_CERT_FILE' if verify is True else verify} is no file of certificates "
                f"({error.strerror or error}); correct `ca_bundle` in models.yaml, or the variable."
            ) from None
        except ValueError as error:
            raise EngineError(f"A proxy cannot be asked ({error}): {_NO_SOCKS}.") from None
        self.proxy = str(transport.proxy.url) if transport.proxy else None
        if self.proxy and self.proxy.startswith("socks"):
            raise EngineError(
                f"{public_url(base_url)} is behind the proxy {self.proxy}: {_NO_SOCKS}, or the "
                "host in NO_PROXY."
            )
        kept: dict[str, Any] = {"force_close": True}
        if base_url.startswith("https:"):
            kept = {"keepalive_timeout": KEEP_ALIVE_SECONDS}
        # A session that the transport makes for itself keeps cookies, and all connections.
        transport.client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=transport.ssl_context, **kept),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._base_url = base_url
        self._client, self._headers = _client_and_headers(base_url, sent, http)
        self._kinds = {"cast_to": httpx2.Response, "stream_cls": openai.AsyncStream[object]}
        self._wrappers = (openai.APIConnectionError, httpx2.RequestError)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    @asynccontextmanager
    async def _response(
        self, path: str, parts: Sequence[bytes], *, under_v1: bool = True
    ) -> AsyncIterator[httpx2.Response]:
        base, mark, query = self._base_url.partition("?")  # an API version or a key stays the query
        base = base.rstrip("/")
        url = f"{base if under_v1 else base.removesuffix('/v1')}{path}{mark}{query}"
        size = sum(map(len, parts))
        headers = {**self._headers, "Content-Length": str(size)} if parts else self._headers
        asked: dict[str, Any] = {"options": {"headers": headers}, "stream": True, **self._kinds}
        if parts:
            # Short bodies in one piece, so that they leave in one; a long document is not copied.
            asked["content"] = _written(parts) if size > _WRITE_BYTES else b"".join(parts)
        try:
            response = await (self._client.post if parts else self._client.get)(url, **asked)
            try:
                yield response
            finally:
                await response.aclose()
        except self._wrappers as error:
            # A connection that is not taken and one that breaks are the same to the package.
            cause: BaseException = error
            while isinstance(cause, self._wrappers) and cause.__cause__:
                cause = cause.__cause__
            raise cause from None


async def _raise_for_status(response: httpx2.Response) -> None:
    # The package would read the whole of an error, however long.
    if not 200 <= response.status_code < 300:
        async with aclosing(response.aiter_bytes()) as pieces:
            data = (await read(pieces, _MOST_OF_AN_ERROR))[:_MOST_OF_AN_ERROR]
        raise StatusError(Reply(response.status_code, response.headers, data))


async def _written(parts: Sequence[bytes]) -> AsyncIterator[memoryview]:
    """In pieces: the kernel takes them as it can, and nothing piles up in between."""
    for part in parts:
        for start in range(0, len(part), _WRITE_BYTES):
            yield memoryview(part)[start : start + _WRITE_BYTES]


async def read(pieces: AsyncIterator[bytes], most: int) -> bytes:
    """The rest of the body, up to the piece in which ``most`` bytes are exceeded."""
    data = bytearray()
    async for piece in pieces:
        data += piece
        if len(data) > most:
            break
    return bytes(data)


def _client_and_headers(
    url: str, headers: dict[str, str], http: httpx2.AsyncClient
) -> tuple[openai.AsyncOpenAI, dict[str, Any]]:
    # A bearer's key is the package's to send: to Azure, known by its `api-version`, as `api-key`.
    import openai

    scheme, _, key = headers.get("Authorization", "").partition(" ")
    made: dict[str, Any] = {"base_url": url, "max_retries": 0, "http_client": http}
    version = parse_qs(urlsplit(url).query).get("api-version")
    if scheme != "Bearer":
        client = openai.AsyncOpenAI(api_key="none", **made)
    else:
        del headers["Authorization"]
        if version:
            client = openai.AsyncAzureOpenAI(api_key=key, api_version=version[0], **made)
        else:
            client = openai.AsyncOpenAI(api_key=key, **made)
        headers |= client.auth_headers
    client._platform = "Unknown"  # else a thread finds it out, for a header that is left out
    # Among the defaults are headers that the environment names.
    given = {name.lower() for name in headers}
    usual = (*client.default_headers, *_OF_THE_PACKAGE)
    return client, {n: openai.omit for n in usual if n.lower() not in given} | headers
