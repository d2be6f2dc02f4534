"""Certificates, proxies, servers that load and addresses that are wrong: each has its sentence."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster import retry
from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import declared_identity
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster_tests.support.records.calls import LedgerSample, openai_entry, plan_of
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.servers.recording_server import (
    ANSWERED,
    LISTED,
    USUAL,
    Recorder,
    recorded,
    self_signed,
)

LOADING = wire.error(503, "Loading model", "unavailable_error")
PAGE = wire.head(502, "text/html") + b"<html>Bad Gateway</html>"
KEY = "canary-1c7e5d90"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def run(folder: Path, url: str, n: int = 1, **changes: Any) -> RunSummary:
    with Ledger.open(folder / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1, revision="r1", **changes)
        return measure(plan_of(LedgerSample(1, n), n), entry, ledger)


def refused(folder: Path, url: str, **changes: Any) -> str:
    with pytest.raises(EngineError) as caught:
        run(folder, url, **changes)
    return str(caught.value)


# --- certificates ---------------------------------------------------------------------------------


def test_a_certificate_that_signs_itself_is_named_with_its_cure(tmp_path: Path) -> None:
    tls, _ = self_signed(tmp_path)
    with recorded(tls=tls) as (url, server):
        said = refused(tmp_path, url)
    assert "has an untrusted certificate (self-signed certificate)" in said
    assert "set `ca_bundle` in models.yaml or SSL_CERT_FILE" in said
    assert server.seen == []


def test_a_server_without_tls_is_named(tmp_path: Path) -> None:
    async def puzzled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(wire.error(400, "that is no HTTP"))
        await writer.drain()
        writer.close()

    with on_a_thread(puzzled) as url:
        said = refused(tmp_path, url.replace("http", "https"))
    assert "the server does not use TLS" in said
    assert "correct `base_url` in models.yaml" in said


@pytest.mark.parametrize("how", ["ca_bundle", "SSL_CERT_FILE", "verify"])
def test_a_certificate_is_trusted_where_it_is_named(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, certificate = self_signed(tmp_path)
    changes: dict[str, Any] = {"ca_bundle": str(certificate)} if how == "ca_bundle" else {}
    if how == "verify":
        changes = {"verify": False}
    elif how == "SSL_CERT_FILE":
        monkeypatch.setenv(how, str(certificate))
    with recorded(tls=tls) as (url, _):
        assert run(tmp_path, url, **changes).answered == 1


def test_certificates_that_cannot_be_read_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "no.pem"
    text.write_text("no certificate")
    for path in (text, tmp_path / "absent.pem"):
        said = refused(tmp_path, "https://127.0.0.1:9/v1", ca_bundle=str(path))
        assert said.startswith(f"{path} is not a certificate file (")
        assert "correct `ca_bundle` in models.yaml" in said
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    assert refused(tmp_path, "https://127.0.0.1:9/v1").startswith(
        "SSL_CERT_FILE is not a certificate file"
    )


def test_a_ca_bundle_is_found_next_to_the_file_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(
        "models: {m: {engine: openai, base_url: 'https://h/v1', ca_bundle: certs/our.pem}}\n"
    )
    assert load_models([file])["m"].ca_bundle == str(tmp_path / "certs" / "our.pem")


def test_how_a_certificate_is_checked_is_no_part_of_the_identity() -> None:
    url = "https://127.0.0.1:9/v1"
    plain = declared_identity(openai_entry(url))
    for changes in ({"ca_bundle": "/c.pem"}, {"verify": False}):
        assert declared_identity(openai_entry(url, **changes)) == plain


# --- proxies --------------------------------------------------------------------------------------


def test_a_proxy_of_the_environment_is_asked_and_shown_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded() as (url, proxy):
        host = url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("http_proxy", f"me:secret@{host}")
        assert run(tmp_path, "http://models.example/v1").answered == 1
    basic = base64.b64encode(b"me:secret").decode()
    for target, headers in proxy.seen:
        assert target.startswith("http://models.example/v1/") or "/v1/" not in target
        assert headers["proxy-authorization"] == f"Basic {basic}"


def test_what_no_proxy_names_is_asked_past_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with recorded() as (url, _):
        assert run(tmp_path, url).answered == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_dead_proxy_is_named_with_its_cure(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", "http://me:secret@127.0.0.1:9")
    said = refused(tmp_path, f"{scheme}://models.example/v1")
    assert "the proxy http://127.0.0.1:9: Connection refused" in said
    assert "correct HTTP_PROXY or HTTPS_PROXY, or name models.example in NO_PROXY" in said
    assert "secret" not in said


def test_a_proxy_that_lets_nobody_through_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded({"": wire.error(403, "not through here")}) as (url, _):
        monkeypatch.setenv("https_proxy", url.removesuffix("/v1"))
        said = refused(tmp_path, "https://models.example/v1")
    assert "answers with status 403" in said
    assert "name models.example in NO_PROXY" in said


@pytest.mark.parametrize("scheme", ["socks4", "socks5", "socks5h", "SOCKS5"])
def test_a_socks_proxy_is_refused_and_gets_no_key(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with recorded() as (url, proxy):
        monkeypatch.setenv("all_proxy", url.replace("http", scheme).removesuffix("/v1"))
        said = refused(tmp_path, "http://models.example/v1", api_key_env="MY_KEY")
    assert "SOCKS is not supported; set HTTP_PROXY" in said
    assert proxy.connections == 0


@pytest.mark.parametrize("dead", [True, False])
def test_a_server_on_this_machine_behind_a_proxy_names_no_proxy(
    dead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        url, server = stack.enter_context(recorded())
        proxy = "http://127.0.0.1:9"
        if not dead:
            proxy = stack.enter_context(recorded({"": PAGE}))[0].removesuffix("/v1")
        monkeypatch.setenv("http_proxy", proxy)
        said = refused(tmp_path, url)
    assert "the server is on this machine but behind a proxy: set NO_PROXY=127.0.0.1" in said
    assert server.seen == []


# --- servers that are not ready, and what is no server --------------------------------------------


def until(ready: int, reply: bytes) -> Callable[[int], bytes]:
    return lambda before: LOADING if before < ready else reply


def test_a_model_that_loads_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LOADING_WAIT_S", 0.0)
    replies = {"/models": until(40, LISTED), "/completions": until(40, ANSWERED)}
    with recorded(replies) as (url, server):
        summary = run(tmp_path, url, breaker_failures=2)
    assert (summary.answered, summary.transport_errors, summary.maybe_paid) == (1, 0, 0)
    assert len([target for target, _ in server.seen if target == "/v1/models"]) == 41


def test_a_model_that_loads_for_ever_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "LOADING_WAIT_S", 300.0)

    async def at_once(seconds: float) -> None:
        slept.append(seconds)

    slept: list[float] = []
    monkeypatch.setattr(retry.asyncio, "sleep", at_once)
    with recorded({"": LOADING}) as (url, _):
        said = refused(tmp_path, url)
    assert sum(seconds == 300 for seconds in slept) == retry.LOADING_SECONDS / 300
    assert "cannot be reached (status 503: Loading model)" in said


def test_a_path_where_nothing_answers_is_named(tmp_path: Path) -> None:
    with recorded({"/v1/models": LISTED, "/v1/chat/completions": ANSWERED}) as (url, _):
        said = refused(tmp_path, url.removesuffix("/v1"))
    assert "nothing answers there (404: nothing here); correct `base_url`" in said
    assert "it usually ends in /v1" in said


@pytest.mark.parametrize("url", ["http://[::1]x/v1", "http://ex\x01ample/v1", "http://ä..b/v1"])
def test_what_is_no_address_is_one_sentence(url: str, tmp_path: Path) -> None:
    assert "is not an address; correct `base_url` in models.yaml" in refused(tmp_path, url)


def test_the_server_of_these_tests_answers(tmp_path: Path) -> None:
    with recorded(USUAL) as (url, server):
        assert run(tmp_path, url).answered == 1
    assert isinstance(server, Recorder)
