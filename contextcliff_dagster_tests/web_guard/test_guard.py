"""What the guard lets through, before a server of ours sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.web_guard import (
    TOKEN_VARIABLE,
    AccessToken,
    AllowedHosts,
    WebGuard,
    choose_token,
)

TOKEN = "s3cret-of-sixteen-and-more"
HERE = "http://localhost:3000"
ELSEWHERE = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}
PAGE = {"Accept": "text/html"}


async def reached(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.method} {request.url.path}?{request.url.query}")


SERVER = Starlette(routes=[Route("/{path:path}", reached, methods=["GET", "POST", "PUT"])])


def guard(token: str | None = TOKEN, cookie: str | None = "contextcliff-3000") -> WebGuard:
    access = AccessToken(token, cookie) if token else None
    return WebGuard(SERVER, AllowedHosts("127.0.0.1"), access, frozenset({"/health"}))


def send(app: WebGuard, method: str, path: str, headers: Any = None, **more: Any) -> httpx.Response:
    async def sending() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            return await client.request(method, path, headers=headers, **more)

    return asyncio.run(sending())


def test_without_the_token_nothing_is_reached() -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "OPTIONS"):
        refused = send(guard(), method, "/logs/a", {"Content-Type": "application/json"})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
    assert send(guard(), "GET", "/health").status_code == 200
    assert send(guard(token=None), "GET", "/logs/a").status_code == 200


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126)))
def test_no_other_token_passes(other: str) -> None:
    right = other == TOKEN
    for headers in ({"Authorization": f"Bearer {other}"}, {"Cookie": f"contextcliff-3000={other}"}):
        passed = send(guard(), "GET", "/", headers).status_code == 200
        assert passed == (right or (";" in other and other.split(";")[0] == TOKEN))


def test_the_token_is_a_bearer_token_or_a_cookie_of_this_server() -> None:
    for headers in (
        {"Authorization": f"Bearer {TOKEN}"},
        {"Authorization": f"bearer {TOKEN}"},
        {"Cookie": f"contextcliff-3000={TOKEN}"},
        {"Cookie": f'a={{"b"; c; contextcliff-3001=other; contextcliff-3000={TOKEN}; d=1'},
    ):
        assert send(guard(), "GET", "/runs", headers).text == "GET /runs?"
    other = {"Cookie": f"contextcliff-3001={TOKEN}"}
    assert send(guard(), "GET", "/runs", other).status_code == 401
    # A server for programs knows neither cookies nor links.
    programs = guard(cookie=None)
    assert send(programs, "GET", "/", {"Cookie": f"None={TOKEN}"}).status_code == 401
    assert send(programs, "GET", f"/?token={TOKEN}").status_code == 401


def test_a_link_is_traded_for_a_cookie_and_the_token_leaves_the_address() -> None:
    arrival = send(guard(), "GET", f"/runs/a%20b?status=x&token={TOKEN}&empty=")
    assert arrival.status_code == 303
    assert arrival.headers["location"] == "/runs/a%20b?status=x&empty="
    assert arrival.headers["set-cookie"] == (
        f"contextcliff-3000={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    )
    assert (arrival.headers["referrer-policy"], arrival.headers["cache-control"]) == (
        "no-referrer", "no-store"
    )  # fmt: skip
    wrong = send(guard(), "GET", "/runs?token=guess", PAGE)
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    assert 'type="password"' in wrong.text
    assert TOKEN not in wrong.text
    # By POST a link means nothing.
    posted = send(guard(), "POST", f"/?token={TOKEN}", {"Content-Type": "application/json"})
    assert posted.status_code == 401


@pytest.mark.parametrize(
    "path", ["//evil.example/", "/%2F/evil.example", "/%5Cevil.example", "/\\e"]
)
def test_a_link_leads_to_no_other_site(path: str) -> None:
    target = send(guard(), "GET", f"{HERE}{path}?token={TOKEN}").headers["location"]
    assert target.startswith("/")
    assert target[1:2] not in ("/", "\\")


def test_a_link_on_another_site_arrives_by_a_page_of_ours() -> None:
    """After a redirect the browser would not send the cookie."""
    headers = ELSEWHERE | {"Sec-Fetch-Dest": "document"}
    arrival = send(guard(), "GET", f"/a%22b?x=1&token={TOKEN}", headers)
    assert arrival.status_code == 200
    assert 'content="0;url=/a%22b?x=1"' in arrival.text
    assert "set-cookie" in arrival.headers
    later = send(guard(), "GET", "/runs", headers | PAGE)
    assert later.status_code == 401
    assert "Go on" in later.text


@pytest.mark.parametrize(
    "kind",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "text/plain; application/json", "text/plain;x=application/graphql", "", "application/jsonp"],
)  # fmt: skip
def test_a_body_that_pages_of_other_sites_can_send_is_refused(kind: str | None) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"} | (
        {} if kind is None else {"Content-Type": kind}
    )
    for method in ("POST", "PUT"):
        assert send(guard(), method, "/graphql", headers, content=b"{}").status_code == 415
        assert send(guard(), method, "/graphql", headers).status_code == 415


def test_json_is_sent_in_every_spelling() -> None:
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/graphql"):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        assert send(guard(), "POST", "/graphql", headers, content=b"{}").status_code == 200


def test_pages_of_other_sites_get_nothing_by_images_frames_or_scripts() -> None:
    cookie = {"Cookie": f"contextcliff-3000={TOKEN}"}
    for target in ("image", "iframe", "script", "empty"):
        for site in ("cross-site", "same-site"):
            for mode in ("no-cors", "navigate"):
                headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": target}
                assert send(guard(), "GET", "/runs", cookie | headers).status_code == 403
    for site in ("same-origin", "none"):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
        assert send(guard(), "GET", "/runs", cookie | headers).status_code == 200
    followed = ELSEWHERE | {"Sec-Fetch-Dest": "document"}
    assert send(guard(), "GET", "/runs", cookie | followed).status_code == 200


def test_a_foreign_host_or_origin_is_refused_in_words_that_help() -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    foreign = send(guard(), "GET", "/", right | {"Host": "gpu-box:3000"})
    assert foreign.status_code == 403
    assert "--allow-host gpu-box" in foreign.text
    twice = [("Host", "localhost:3000"), ("Host", "evil.example"), *right.items()]
    refused = send(guard(), "GET", "/", twice)
    assert (refused.status_code, "names several hosts" in refused.text) == (400, True)
    for origin in ("http://localhost:3001", "null", "https://evil.example"):
        assert send(guard(), "GET", "/", right | {"Origin": origin}).status_code == 403
    both = [("Origin", HERE), ("Origin", "null"), *right.items()]
    assert send(guard(), "GET", "/", both).status_code == 403
    assert send(guard(), "GET", "/", right | {"Origin": HERE}).status_code == 200


def test_a_request_that_names_no_host_is_refused_as_such() -> None:
    """As HTTP/1.0 allows."""
    sent: list[Any] = []

    async def note(message: Any) -> None:
        sent.append(message)

    async def nothing() -> Any:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    asyncio.run(guard()(scope, nothing, note))
    assert sent[0]["status"] == 400
    assert b"This request names no host; send one Host header." in sent[1]["body"]


def test_every_answer_forbids_frames_and_guessing_of_types() -> None:
    for headers in ({"Authorization": f"Bearer {TOKEN}"}, {}, {"Host": "evil.example"}):
        answer = send(guard(), "GET", "/", headers)
        assert answer.headers["x-frame-options"] == "SAMEORIGIN"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_a_token_of_the_users_own_is_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = choose_token(), choose_token()
    assert first != second
    assert len(first[0]) >= 40
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert choose_token() == (TOKEN, True)
    assert choose_token()[0] != TOKEN, "what is started next does not inherit it"
    for bad in ("short", "sixteen letters and a space", "a" * 15, "ä" * 20, "a;b" * 10):
        monkeypatch.setenv(TOKEN_VARIABLE, bad)
        with pytest.raises(EngineError, match="at least 16") as refusal:
            choose_token()
        assert bad not in str(refusal.value)
