"""What the `openai` package would do by itself, and does not do here."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ServerDisconnectedError

from contextcliff_dagster.inference.engines.openai.http_client import (
    DONE,
    Endpoint,
    Reply,
    StatusError,
)
from contextcliff_dagster_tests.inference.engines.openai.test_size_of_replies import (
    Sender,
    bomb,
    forget_peak,
    peak_mb,
)
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.servers.recording_server import recorded

CANARY = "canary-93f0c1d7"
ENVIRONMENT = {
    "OPENAI_API_KEY": CANARY,
    "OPENAI_ADMIN_KEY": CANARY,
    "OPENAI_ORG_ID": CANARY,
    "OPENAI_PROJECT_ID": CANARY,
    "OPENAI_BASE_URL": f"http://127.0.0.1:9/{CANARY}",
    "OPENAI_CUSTOM_HEADERS": f"X-Canary: {CANARY}\nauthorization: {CANARY}\nuser-agent: {CANARY}",
    "OPENAI_API_VERSION": CANARY,
    "AZURE_OPENAI_API_KEY": CANARY,
    "AZURE_OPENAI_AD_TOKEN": CANARY,
    "AZURE_OPENAI_ENDPOINT": f"http://127.0.0.1:9/{CANARY}",
}
SENT = {"host", "accept", "accept-encoding", "connection", "user-agent", "content-type"}
BODY = (b'{"messages": ', b"[]}")


async def asked_both_ways(url: str, headers: Mapping[str, str]) -> tuple[Reply, list[bytes]]:
    """A question to /models, and a call."""
    endpoint = Endpoint(url, headers, timeout_s=10, connections=1)
    try:
        reply = await endpoint.ask("/models", within_s=10)
        return reply, [event async for event in endpoint.events("/chat/completions", BODY)]
    finally:
        await endpoint.close()


def ask(url: str, headers: Mapping[str, str] | None = None) -> tuple[Reply, list[bytes]]:
    return asyncio.run(asked_both_ways(url, headers or {}))


@pytest.mark.parametrize(
    ("query", "given", "sent"),
    [
        ("", {}, {}),
        ("", {"Authorization": "Bearer mine"}, {"authorization": "Bearer mine"}),
        ("", {"Authorization": "Token mine"}, {"authorization": "Token mine"}),
        ("", {"X-Api-Key": "mine"}, {"x-api-key": "mine"}),
        ("?api-version=1", {}, {}),
        ("?api-version=1", {"Authorization": "Bearer mine"}, {"api-key": "mine"}),
        ("?api-version=1", {"api-key": "mine"}, {"api-key": "mine"}),
    ],
)
def test_of_the_environment_nothing_reaches_a_server(
    query: str, given: dict[str, str], sent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with recorded() as (url, server):
        reply, events = ask(url + query, given)
    assert (reply.status, events[-1]) == (200, DONE)
    assert [target for target, _ in server.seen] == [
        f"/v1/models{query}",
        f"/v1/chat/completions{query}",
    ]
    for _, headers in server.seen:
        assert CANARY not in json.dumps(headers)
        assert {name: headers[name] for name in headers.keys() - SENT - {"content-length"}} == sent
        assert headers["user-agent"] == "contextcliff"


def test_a_user_in_the_address_is_sent_and_one_of_a_netrc_file_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"default login {CANARY} password {CANARY}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with recorded() as (url, server):
        ask(url)
        ask(url.replace("//", "//me:p%40ss@"))
    sent = [headers.get("authorization") for _, headers in server.seen]
    mine = f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    assert sent == [None, None, mine, mine]


def test_a_redirect_is_not_followed() -> None:
    with recorded() as (elsewhere, other):
        away = wire.head(307, extra=f"Location: {elsewhere}/models\r\n") + b"moved"
        with recorded({"": away}) as (url, server), pytest.raises(StatusError) as caught:
            ask(url, {"Authorization": "Bearer mine"})
    assert caught.value.reply.status == 307
    assert caught.value.reply.data == b"moved"
    assert len(server.seen) == 2
    assert other.connections == 0


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_no_request_is_sent_twice(status: int) -> None:
    failed = wire.error(status, "again", extra="retry-after-ms: 0\r\nx-should-retry: true\r\n")
    with recorded({"": failed}) as (url, server), pytest.raises(StatusError):
        ask(url)
    assert len(server.seen) == 2  # one of each kind
    cut = {"/models": wire.head(200), "": b""}
    with recorded(cut) as (url, server), pytest.raises(ServerDisconnectedError):
        ask(url)
    assert len(server.seen) == 2


def test_no_cookie_is_kept() -> None:
    given = wire.head(200, extra="Set-Cookie: a=b; Path=/\r\n") + b"{}"
    with recorded({"": given}) as (url, server):
        ask(url.replace("127.0.0.1", "localhost"))
    assert len(server.seen) == 2
    assert not any("cookie" in headers for _, headers in server.seen)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("status", [400, 307, 500])
def test_an_error_of_300_mb_takes_little_memory(status: int, packed: bool) -> None:
    async def plain() -> AsyncIterator[bytes]:
        for _ in range(300):
            yield b"x" * (1 << 20)

    extra = "Content-Encoding: gzip\r\n" if packed else ""
    body = (lambda: bomb(b'{"error": "', b"x", 300)) if packed else plain
    with recorded() as (url, _):
        ask(url)  # what the first of all requests loads
    sender = Sender(wire.head(status, extra=extra), body, to_all=True)
    gc.collect()
    forget_peak()
    before = peak_mb()
    with on_a_thread(sender.handle) as url, pytest.raises(StatusError) as caught:
        ask(url)
    assert sender.served == 2
    assert peak_mb() - before < 140
    assert len(caught.value.reply.data) == 64 * 1024


def test_the_address_and_what_is_sent_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with recorded() as (url, server):
        ask(f"{url}?key={CANARY}", {"Authorization": f"Bearer {CANARY}"})
    assert CANARY in str(server.seen)
    assert CANARY not in caplog.text


def test_a_variable_that_makes_the_package_write_logs_writes_no_address() -> None:
    code = (
        "import sys; from contextcliff_dagster_tests.inference.engines.openai."
        "test_package_client import ask; ask(sys.argv[1])"
    )
    with recorded() as (url, server):
        done = subprocess.run(
            [sys.executable, "-c", code, f"{url}?key={CANARY}"],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "", "OPENAI_LOG": "debug", "PYTHONPATH": ":".join(sys.path)},
        )
    assert len(server.seen) == 2
    assert CANARY not in done.stdout + done.stderr


def test_only_processes_that_call_import_the_package() -> None:
    code = (
        "import sys; from contextcliff_dagster.inference.engines.openai import engine;"
        "from contextcliff_dagster.inference.models.models_file import get_model;"
        "from contextcliff_dagster.inference.engines.base import open_engine;"
        "model = get_model('reference-short'); open_engine(model).identity();"
        "print([name for name in ('openai', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_long_body_arrives_whole_and_is_not_copied() -> None:
    document = b"a" * (4 << 20)
    got: list[bytes] = []

    async def handle(reader: Any, writer: Any) -> None:
        _, _, body = await wire.read_request(reader)
        got.append(body)
        writer.write(wire.ANSWER + wire.DONE)
        await writer.drain()
        writer.close()

    async def call(url: str) -> None:
        endpoint = Endpoint(url, {}, timeout_s=10, connections=1)
        parts = (b'{"a": "', document, b'"}')
        assert [event async for event in endpoint.events("/chat/completions", parts)][-1] == DONE
        await endpoint.close()

    with on_a_thread(handle) as url:
        asyncio.run(call(url))
    assert got == [b'{"a": "' + document + b'"}']
