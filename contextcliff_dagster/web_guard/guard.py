"""The ASGI middleware in front of our servers."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextcliff_dagster.web_guard.access_token import PARAMETER, AccessToken
from contextcliff_dagster.web_guard.addresses import AllowedHosts, read_address

_READS = ("GET", "HEAD")
_JSON = frozenset({"application/json", "application/graphql"})
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """A request that is not answered: status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True, slots=True)
class WebGuard:
    """Passes on to ``app`` only what a page or program of the server's own user may ask.

    Args:
        app: the server behind it.
        hosts: its names.
        token: what every request must carry; None: nothing.
        open_paths: paths that need no token.
        where_the_token_is: the end of the sentence that asks for it.
        check_read: raises :class:`Refused` for a GET that would change something; it is given
            path and query.
    """

    app: ASGIApp
    hosts: AllowedHosts
    token: AccessToken | None = None
    open_paths: frozenset[str] = frozenset()
    where_the_token_is: str = "the server printed it when it started"
    check_read: Callable[[str, str], None] = lambda path, query: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, refuse, or trade the token of a link for a cookie."""
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
            named = "several hosts" if "host" in headers else "no host"
            raise Refused(400, f"This request names {named}; send one Host header.")
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
            # All others a page of another site may send without asking first.
            if scope["method"] != "OPTIONS" and kind not in _JSON:
                raise Refused(415, "Send the body as Content-Type: application/json.")
        elif _is_from_elsewhere(headers) and not _opens_a_page(headers):
            raise Refused(403, "This server answers no request of a page of another site.")
        else:
            self.check_read(scope["path"], scope["query_string"].decode("latin-1"))

    def _check_token(self, scope: Scope) -> Response | None:
        """None where the request may pass, or the answer to a link with the right token."""
        token, headers = self.token, Headers(scope=scope)
        if token is None or scope["path"] in self.open_paths:
            return None
        if token.cookie and scope["type"] == "http" and scope["method"] in _READS:
            right, rest = token.taken_from(scope["query_string"].decode("latin-1"))
            if right:
                # One slash: with two, a browser takes what follows for another site's name.
                path = "/" + quote(scope["path"].lstrip("/\\"))
                return _arrival(f"{path}?{rest}" if rest else path, token, headers)
        cookies = "; ".join(headers.getlist("cookie"))
        if not token.is_in_headers(headers.get("authorization", ""), cookies):
            raise Refused(401, f"This server asks for its token: {self.where_the_token_is}.")
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
    """A link that is followed, in a window of its own and in no frame."""
    mode, target = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return (mode, target) == ("navigate", "document")


def _arrival(target: str, token: AccessToken, headers: Headers) -> Response:
    """To the page itself, without the token in its address."""
    more = {
        "Set-Cookie": token.set_cookie(),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }
    if not _is_from_elsewhere(headers):
        return Response(status_code=303, headers=more | {"Location": target})
    # After a link on another site a redirect counts as that site's: the cookie would not be sent.
    there = html.escape(target)
    head = f'<meta http-equiv="refresh" content="0;url={there}">'
    return HTMLResponse(_PAGE.format(head=head, body=f'<a href="{there}">Go on</a>'), headers=more)
