"""Request checks that all our HTTP servers share: Host, Origin, content type and token.
They are needed because browsers let any page send requests to servers on this machine.
"""

from __future__ import annotations

import errno
import hmac
import html
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextcliff_dagster.contracts import EngineError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})
_WRITTEN = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/?#@\[\]\\,]+)(?::([0-9]{1,5}))?", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}

Address = tuple[str, int | None]
"""A host in lower case (an IPv6 address without brackets) and its port, or None."""


def read_address(written: str) -> Address | None:
    """Parse ``name``, ``name:port`` or ``[::1]:port``; return None for anything else."""
    match = _WRITTEN.fullmatch(written)
    if match is None:
        return None
    host = match[1].lower()
    if host.startswith("["):
        if not _is_ip(host[1:-1]):
            return None
        host = str(ip_address(host[1:-1]))
    return host, int(match[2]) if match[2] else None


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on ``host``."""
    return host.lower() in _LOOPBACK or (_is_ip(host) and ip_address(host).is_loopback)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Host names by which browsers may call a server.

    A page of another site whose name points at this machine (DNS rebinding) sends that name as
    Host. It cannot send an IP address, so a server that listens everywhere accepts all addresses.

    Args:
        bound: the host that the server listens on.
        more: further hosts, ``name`` or ``name:port``, for example of a proxy in front.
    """

    bound: str
    more: tuple[str, ...] = ()

    def accept_host(self, header: str) -> bool:
        """Return whether a Host header names this server; its port may be a forwarded one."""
        address = read_address(header)
        if address is None:
            return False
        host = address[0]
        if host in {a[0] for a in self._more()}:
            return True
        if self.bound in _EVERYWHERE:
            return host in _LOOPBACK or _is_ip(host)
        bound = self.bound.lower()
        return host == bound or (is_loopback(bound) and host in _LOOPBACK)

    def accept_origin(self, origin: str, host_header: str) -> bool:
        """Return whether the requesting page came from this server, comparing host and port,
        because browsers treat all servers on this machine as the same site."""
        scheme, _, written = origin.partition("://")
        address, called = read_address(written), read_address(host_header)
        default = _DEFAULT_PORTS.get(scheme.lower())
        if default is None or address is None or called is None:
            return False
        page = (address[0], address[1] or default)
        own = [called, *(a for a in self._more() if a[0] == address[0])]
        return any(page == (host, port or default) for host, port in own)

    def _more(self) -> Iterable[Address]:
        return (a for a in map(read_address, self.more) if a is not None)


def url_of(host: str, port: int) -> str:
    """Return the address to open in a browser on this machine."""
    if host in _EVERYWHERE:
        host = "[::1]" if host == "::" else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{port}"


def listen_on(host: str, ports: Iterable[int]) -> socket.socket:
    """Return a socket listening on the first free port of ``ports``; 0 means any free port.

    It listens at once, so that no other process can take the same port.

    Raises:
        EngineError: no port is free, or the address does not exist.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    port = 0
    for port in ports:
        try:
            return socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise EngineError(
                    f"Port {port} of {host} cannot be used ({error.strerror}); choose another with "
                    "--port or --host."
                ) from error
    raise EngineError(f"Port {port} of {host} is taken; choose another with --port.")


TOKEN_VARIABLE = "CONTEXTCLIFF_TOKEN"
PARAMETER = "token"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token and the cookie that carries it.

    Args:
        value: the token.
        cookie: the cookie's name, None for a server that no browser opens. Cookies ignore ports,
            so two servers on one machine need two names.
    """

    value: str
    cookie: str | None = None

    def is_in_headers(self, authorization: str, cookies: str) -> bool:
        """Return whether ``Authorization: Bearer`` or the cookie has the token."""
        scheme, _, credentials = authorization.partition(" ")
        if scheme.lower() == "bearer" and self._equals(credentials.strip()):
            return True
        if self.cookie is None:
            return False
        pairs = (part.strip().partition("=") for part in cookies.split(";"))
        return any(name == self.cookie and self._equals(value) for name, _, value in pairs)

    def taken_from(self, query: str) -> tuple[bool | None, str]:
        """Return whether the token in a query is right (None if it has no token), and the query
        without the token."""
        pairs = parse_qsl(query, keep_blank_values=True)
        tokens = [value for name, value in pairs if name == PARAMETER]
        other_pairs = urlencode([pair for pair in pairs if pair[0] != PARAMETER])
        return (any(map(self._equals, tokens)) if tokens else None), other_pairs

    def set_cookie(self) -> str:
        """Return the Set-Cookie value: sent only by pages of this site, hidden from scripts."""
        return f"{self.cookie}={self.value}; Path=/; HttpOnly; SameSite=Strict"

    def _equals(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.value.encode())


def choose_token() -> tuple[str, bool]:
    """Return the token and whether it comes from ``CONTEXTCLIFF_TOKEN``; if not, it is new.

    The variable is removed from the environment, so that child processes do not inherit it.

    Raises:
        EngineError: the variable's value is too short, or does not fit into a link.
    """
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        return secrets.token_urlsafe(32), False
    if not re.fullmatch(r"[A-Za-z0-9._~-]{16,}", token):
        raise EngineError(
            f"{TOKEN_VARIABLE} needs at least 16 letters, digits or any of . _ ~ -; "
            "`openssl rand -hex 16` makes a good one."
        )
    return token, True


_READS = ("GET", "HEAD")
_JSON = frozenset({"application/json", "application/graphql"})
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """A refused request, with the HTTP status and one sentence of explanation."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True, slots=True)
class WebGuard:
    """ASGI middleware that passes on to ``app`` only requests of the server's own user.

    Args:
        app: the server behind the guard.
        hosts: the server's host names.
        token: the token that every request must carry; None for no token.
        open_paths: paths that need no token.
        where_the_token_is: the end of the sentence that asks for the token.
        check_read: raises :class:`Refused` for a GET that would change something; called with
            path and query.
    """

    app: ASGIApp
    hosts: AllowedHosts
    token: AccessToken | None = None
    open_paths: frozenset[str] = frozenset()
    where_the_token_is: str = "the server printed it when it started"
    check_read: Callable[[str, str], None] = lambda path, query: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse the request, or exchange a link's token for a cookie."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            self._check_sender(scope)
            arrival = self._check_token(scope)
        except Refused as refusal:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})  # before accept: HTTP 403
            else:
                response = self._refusal(refusal, Headers(scope=scope))
                await response(scope, receive, self._with_headers(send))
            return
        await (arrival or self.app)(scope, receive, self._with_headers(send))

    def _check_sender(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = _only_one(headers, "host")
        if host is None:
            hosts = "several hosts" if "host" in headers else "no host"
            raise Refused(400, f"This request names {hosts}; send one Host header.")
        if not self.hosts.accept_host(host):
            name = read_address(host)
            advice = f": start it with --allow-host {name[0]} if it should" if name else ""
            raise Refused(403, f"This server does not answer to the host {host!r}{advice}.")
        origins = headers.getlist("origin")
        if not all(self.hosts.accept_origin(origin, host) for origin in origins):
            raise Refused(403, "This server answers no request of a page of another site.")
        if scope["type"] == "websocket":
            return
        if scope["method"] not in _READS:
            kind = (_only_one(headers, "content-type") or "").partition(";")[0].strip().lower()
            # A page of another site may send any other type without a preflight request.
            if scope["method"] != "OPTIONS" and kind not in _JSON:
                raise Refused(415, "Send the body as Content-Type: application/json.")
        elif _is_from_elsewhere(headers) and not _opens_a_page(headers):
            raise Refused(403, "This server answers no request of a page of another site.")
        else:
            self.check_read(scope["path"], scope["query_string"].decode("latin-1"))

    def _check_token(self, scope: Scope) -> Response | None:
        """Return None if the request may pass, or the answer to a link with the right token."""
        token, headers = self.token, Headers(scope=scope)
        if token is None or scope["path"] in self.open_paths:
            return None
        if token.cookie and scope["type"] == "http" and scope["method"] in _READS:
            right, query = token.taken_from(scope["query_string"].decode("latin-1"))
            if right:
                # One slash: after two, a browser would read another site's name.
                path = "/" + quote(scope["path"].lstrip("/\\"))
                return _arrival(f"{path}?{query}" if query else path, token, headers)
        cookies = "; ".join(headers.getlist("cookie"))
        if not token.is_in_headers(headers.get("authorization", ""), cookies):
            raise Refused(401, f"This server needs its access token: {self.where_the_token_is}.")
        return None

    def _refusal(self, refusal: Refused, headers: Headers) -> Response:
        more = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
        more["Cache-Control"] = "no-store"
        if not (self.token and self.token.cookie and "text/html" in headers.get("accept", "")):
            error = {"message": refusal.sentence, "type": "invalid_request_error", "code": None}
            return JSONResponse({"error": error}, status_code=refusal.status, headers=more)
        body = f"<p>{html.escape(refusal.sentence)}</p>"
        if refusal.status == 401:
            body += (
                f'<form action="/"><input name="{PARAMETER}" type="password" autocomplete="off" '
                'aria-label="Token" autofocus> <button>Open</button></form>'
            )
            if _is_from_elsewhere(headers):
                # The cookie is not sent with the first request that another site's link makes.
                body += '<p>Opened here before? <a href="">Go on</a>.</p>'
        return HTMLResponse(_PAGE.format(head="", body=body), refusal.status, headers=more)

    def _with_headers(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.append("Content-Security-Policy", "frame-ancestors 'self'")
                headers.setdefault("Referrer-Policy", "same-origin")
            await send(message)

        return sending


_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>ContextCliff</title>{head}'
    '<body style="font:16px system-ui;margin:4em auto;max-width:34em">{body}</body></html>'
)


def _only_one(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    return values[0] if len(values) == 1 else None


def _is_from_elsewhere(headers: Headers) -> bool:
    return headers.get("sec-fetch-site", "") in ("cross-site", "same-site")


def _opens_a_page(headers: Headers) -> bool:
    """Return whether the request follows a link to a top-level page, not into a frame."""
    mode, target = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return (mode, target) == ("navigate", "document")


def _arrival(target: str, token: AccessToken, headers: Headers) -> Response:
    """Return a response that sets the cookie and leads to the page without the token in its URL."""
    more = {
        "Set-Cookie": token.set_cookie(),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }
    if not _is_from_elsewhere(headers):
        return Response(status_code=303, headers=more | {"Location": target})
    # After a link on another site a redirect counts as that site's: the cookie would not be sent.
    link = html.escape(target)
    head = f'<meta http-equiv="refresh" content="0;url={link}">'
    return HTMLResponse(_PAGE.format(head=head, body=f'<a href="{link}">Go on</a>'), headers=more)
