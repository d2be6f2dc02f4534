"""The proxy of docker/: a real Caddy, but no container."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from contextcliff_dagster_tests.support.dagster_ui import running_ui
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.requirements import require

DOCKER = CHECKOUT / "docker"
PROXY = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]["proxy"]
TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs: its address, its folder, and its log."""

    address: str
    folder: Path
    log: Path

    @property
    def password(self) -> str:
        found = re.search(r"with password ([0-9a-f]{36});", self.log.read_text())
        assert found, self.log.read_text()
        return found[1]

    def client(self, user: str = "", password: str = "") -> httpx.Client:
        auth = httpx.BasicAuth(user, password) if user else None
        return httpx.Client(base_url=self.address, verify=False, auth=auth, timeout=120)


def start(folder: Path, domain: str, ui: str, log: Path) -> subprocess.Popen[bytes]:
    """The command of the service, with its files where the volumes have them."""
    environment = dict(PROXY["environment"]) | {
        "CONTEXTCLIFF_DOMAIN": domain,
        "CONTEXTCLIFF_LOGIN": str(folder / "login"),
        "CONTEXTCLIFF_TOKEN": TOKEN,
        "CONTEXTCLIFF_UI": ui,
        "CONTEXTCLIFF_CADDYFILE": str(DOCKER / "Caddyfile"),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    program, script = PROXY["command"]
    with log.open("ab") as written:
        return subprocess.Popen(
            [program, DOCKER / Path(script).name],
            env=os.environ | environment,
            stdout=written,
            stderr=subprocess.STDOUT,
        )


def wait_for(proxy: Proxy, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, proxy.log.read_text()
        try:
            with proxy.client() as anybody:
                anybody.get("/")
            return
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError(proxy.log.read_text())


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    require("caddy")
    folder = tmp_path_factory.mktemp("proxy")
    domain = f"localhost:{free_port()}"
    options = ("--no-daemon", "--port", str(free_port()), "--allow-host", "localhost")
    homes = {"CONTEXTCLIFF_HOME": str(folder / "store"), "CONTEXTCLIFF_TOKEN": TOKEN}
    with running_ui(folder, *options, env=homes) as ui:
        behind = ui.address.removeprefix("http://")
        opened = Proxy(f"https://{domain}", folder, folder / "proxy.log")
        process = start(folder, domain, behind, opened.log)
        try:
            wait_for(opened, process)
            yield opened
        finally:
            process.terminate()
            process.wait(120)


@pytest.mark.timeout(300)
def test_without_the_login_there_is_no_page(proxy: Proxy) -> None:
    for user, password in (("", ""), ("contextcliff", "wrong"), ("admin", proxy.password)):
        with proxy.client(user, password) as somebody:
            assert somebody.get("/").status_code == 401
            assert somebody.get("/server_info").status_code == 401
            assert somebody.post("/graphql", json={"query": "{ version }"}).status_code == 401


@pytest.mark.timeout(300)
def test_the_login_is_enough_for_page_graphql_and_websocket(proxy: Proxy) -> None:
    with proxy.client("contextcliff", proxy.password) as user:
        assert "__NEXT_DATA__" in user.get("/").text
        answer = user.post(
            "/graphql", json={"query": "{ version }"}, headers={"Origin": proxy.address}
        )
        assert answer.json()["data"]["version"]
        # The checks of the UI hold behind the proxy as well.
        foreign = user.post(
            "/graphql", json={"query": "{ version }"}, headers={"Origin": "https://evil.example"}
        )
        assert foreign.status_code == 403
        basic = user.build_request("GET", "/")
    header = next(httpx.BasicAuth("contextcliff", proxy.password).auth_flow(basic)).headers
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with connect(
        f"wss{proxy.address.removeprefix('https')}/graphql",
        ssl=trusting,
        origin=Origin(proxy.address),
        subprotocols=[Subprotocol("graphql-ws")],
        additional_headers={"Authorization": header["Authorization"]},
    ) as socket:
        socket.send(json.dumps({"type": "connection_init"}))
        assert json.loads(socket.recv(timeout=120))["type"] == "connection_ack"


@pytest.mark.timeout(300)
def test_neither_secret_is_kept_or_logged_but_once(proxy: Proxy) -> None:
    with proxy.client("contextcliff", proxy.password) as user:
        user.get("/")
    written = proxy.log.read_text()
    assert written.count(proxy.password) == 1
    assert TOKEN not in written
    login = proxy.folder / "login"
    assert login.stat().st_mode & 0o777 == 0o600
    assert proxy.password not in login.read_text()
    kept = [f for f in proxy.folder.rglob("*") if f.is_file() and f not in (proxy.log,)]
    assert not [f for f in kept if proxy.password.encode() in f.read_bytes()]


def test_a_second_start_keeps_the_login(tmp_path: Path) -> None:
    require("caddy")
    log = tmp_path / "log"
    domain = f"localhost:{free_port()}"
    logins = []
    for _ in range(2):
        process = start(tmp_path, domain, "127.0.0.1:1", log)
        try:
            wait_for(Proxy(f"https://{domain}", tmp_path, log), process)
        finally:
            process.terminate()
            process.wait(120)
        logins.append((tmp_path / "login").read_text())
    assert logins[0] == logins[1]
    assert log.read_text().count("with password") == 1
