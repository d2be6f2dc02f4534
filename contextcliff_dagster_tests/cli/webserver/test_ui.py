"""The UI answers its user alone: a real process on a real port."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from PIL import Image
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from contextcliff_dagster_tests.support.dagster_ui import LAUNCH, DagsterUi, running_ui
from contextcliff_dagster_tests.support.postgres import free_port

LAUNCH_NOW = LAUNCH.replace("($asset: [String!]!)", "").replace("$asset", '["quick", "raw_corpus"]')
JSON = {"Content-Type": "application/json"}
RUNS = "{ runsOrError { ... on Runs { results { runId } } } }"


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterUi]:
    folder = tmp_path_factory.mktemp("ui")
    homes = {"CONTEXTCLIFF_HOME": str(folder / "store")}
    with running_ui(folder, "--host", "localhost", "--port", str(free_port()), env=homes) as opened:
        yield opened
    assert opened.process.returncode == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", opened.port), timeout=300)


def client(ui: DagsterUi, **headers: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {ui.token}", **headers}
    return httpx.Client(base_url=ui.address, headers=headers, timeout=300)


def socket_opens(ui: DagsterUi, address: str = "", **headers: str) -> bool:
    """Whether a WebSocket is accepted and greets back."""
    origin = headers.pop("Origin", None)
    try:
        with connect(
            f"ws{(address or ui.address).removeprefix('http')}/graphql",
            origin=Origin(origin) if origin else None,
            additional_headers=headers,
            subprotocols=[Subprotocol("graphql-ws")],
            open_timeout=300,
        ) as opened:
            opened.send(json.dumps({"type": "connection_init"}))
            return bool(json.loads(opened.recv(timeout=300))["type"] == "connection_ack")
    except InvalidStatus as refusal:
        if refusal.response.status_code != 403:
            raise
        return False


def runs(ui: DagsterUi) -> int:
    return len(ui.ask(RUNS)["runsOrError"]["results"])


def test_nothing_is_shown_without_the_token(ui: DagsterUi) -> None:
    with httpx.Client(base_url=ui.address, timeout=300) as stranger:
        for path in (
            *("/", "/runs", "/graphql", "/graphql?query={version}", "/logs/a/b.err"),
            *("/notebook?path=a.ipynb&repoLocName=contextcliff_dagster", "/download_debug/a"),
            *("/report_asset_materialization/quick/report", "/robots.txt", "/favicon.png"),
        ):
            assert stranger.get(path).status_code == 401, path
        for path in ("/graphql", "/report_asset_materialization/quick/report"):
            assert stranger.post(path, json={"query": "{version}"}).status_code == 401
        assert stranger.get("/server_info").json()["dagster_version"]
    assert not socket_opens(ui)


def test_of_the_store_only_pages_of_reports_are_served(ui: DagsterUi) -> None:
    store = ui.log.parent / "store"
    report = store / "s" / "report" / "c"
    (report / "models" / "m").mkdir(parents=True)
    hidden = store / "s" / "campaigns" / "c"
    hidden.mkdir(parents=True)
    for folder in (report, report / "models" / "m", hidden, store / "s"):
        for name in ("report.html", "report.json", "ledger.db", "picture.png"):
            (folder / name).write_text("content")
    (report / "link.html").symlink_to(store.parent / "elsewhere.html")
    (store.parent / "elsewhere.html").write_text("content")
    served = {
        "s/report/c/report.html": 200,
        "s/report/c/picture.png": 200,
        "s/report/c/models/m/report.html": 200,
        "s/report/c/report.json": 404,
        "s/report/c/ledger.db": 404,
        "s/report/c/link.html": 404,
        "s/report/c": 404,
        "s/campaigns/c/report.html": 404,
        "s/report.html": 404,
        "s/report/../campaigns/c/report.html": 404,
        "s/report/c/..%2f..%2f..%2fcampaigns/c/report.html": 404,
        "nothing/report/c/report.html": 404,
    }
    with client(ui) as user, httpx.Client(base_url=ui.address, timeout=300) as stranger:
        for path, status in served.items():
            address = f"/contextcliff/reports/{path}"
            assert user.get(address).status_code == status, path
            assert stranger.get(address).status_code == 401, path
        Image.new("RGB", (1840, 900), "white").save(report / "wide.png")
        wide = "/contextcliff/reports/s/report/c/wide.png"
        assert Image.open(BytesIO(user.get(wide).content)).width == 1840
        small = user.get(f"{wide}?small")
        assert Image.open(BytesIO(small.content)).size == (460, 225)
        assert small.headers["content-type"] == "image/webp"


def test_the_link_opens_it(ui: DagsterUi) -> None:
    with httpx.Client(timeout=300) as person:
        arrival = person.get(ui.link)
        assert (arrival.status_code, arrival.headers["location"]) == (303, "/")
        page = person.get(ui.address)
        assert page.status_code == 200
        assert "<title" in page.text
        assert page.headers["x-frame-options"] == "SAMEORIGIN"
        policies = page.headers.get_list("content-security-policy")
        assert "frame-ancestors 'self'" in policies
        assert len(policies) == 2, "Dagster's own stays"
        cookie = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
    assert socket_opens(ui, Cookie=cookie, Origin=ui.address)


def test_foreign_hosts_and_origins_are_refused(ui: DagsterUi) -> None:
    known = runs(ui)
    with client(ui) as user:
        for host in (
            "evil.example",
            f"evil.example:{ui.port}",
            "192.168.0.9",
            "localhost.evil.example",
        ):
            assert user.get("/", headers={"Host": host}).status_code == 403
            assert user.get("/server_info", headers={"Host": host}).status_code == 403
            body = {"query": "{version}"}
            assert user.post("/graphql", json=body, headers={"Host": host}).status_code == 403
        for origin in ("http://evil.example", f"http://localhost:{ui.port + 1}", "null"):
            for method in ("GET", "POST", "OPTIONS"):
                refused = user.request(
                    method, "/graphql", json={"query": LAUNCH_NOW}, headers={"Origin": origin}
                )
                assert refused.status_code == 403
                assert "access-control-allow-origin" not in refused.headers
        assert user.post("/graphql", json=body, headers={"Origin": ui.address}).status_code == 200
    right = {"Authorization": f"Bearer {ui.token}"}
    assert not socket_opens(ui, Origin="http://evil.example", **right)
    assert not socket_opens(ui, Origin=f"http://localhost:{ui.port + 1}", **right)
    assert socket_opens(ui, Origin=ui.address, **right)
    assert socket_opens(ui, f"http://127.0.0.1:{ui.port}", **right)
    assert runs(ui) == known


def test_a_websocket_of_a_rebound_name_is_refused(ui: DagsterUi) -> None:
    lines = [
        "GET /graphql HTTP/1.1", f"Host: evil.example:{ui.port}", "Upgrade: websocket",
        "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13", f"Origin: http://evil.example:{ui.port}",
        f"Authorization: Bearer {ui.token}",
    ]  # fmt: skip
    with closing(socket.create_connection(("127.0.0.1", ui.port), timeout=300)) as raw:
        raw.sendall("\r\n".join([*lines, "", ""]).encode())
        assert raw.recv(12) == b"HTTP/1.1 403"


def test_only_json_by_post_starts_a_run(ui: DagsterUi) -> None:
    """Each of these but the last is what a page of another site may send without asking."""
    body, known = json.dumps({"query": LAUNCH_NOW}), runs(ui)
    with client(ui) as user:
        address = f"/graphql?query={quote(LAUNCH_NOW)}"
        for path in (address, f"{address}&operationName=", f"{address}&query={{version}}"):
            assert user.get(path).status_code == 405
            assert user.get(path, headers={"Accept": "text/html"}).status_code == 405
        for kind in (
            *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"),
            *("text/plain; application/json", "text/plain; application/graphql"),
        ):
            for path in ("/graphql", address, "/report_asset_materialization/quick/report"):
                sent = user.post(path, content=body, headers={"Content-Type": kind})
                assert sent.status_code == 415
        assert user.post(address).status_code == 415
        assert runs(ui) == known
        started = user.post("/graphql", content=body, headers=JSON).json()
        assert started["data"]["launchRun"]["__typename"] == "LaunchRunSuccess", started
        assert runs(ui) == known + 1


def test_the_token_is_in_no_log_and_in_no_command_line(ui: DagsterUi) -> None:
    listed = subprocess.run(
        ["ps", "-e", "-o", "args"], capture_output=True, text=True, check=True
    ).stdout
    assert "contextcliff_dagster.cli.webserver" in listed
    assert ui.token not in listed
    with client(ui) as user:
        user.get("/", params={"token": ui.token})
        user.get("/", params={"token": "wrong"})
    assert ui.token not in ui.log.read_text()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_on_ipv6_behind_a_proxy_with_a_token_of_ones_own(tmp_path: Path) -> None:
    token = "0123456789abcdef-own"
    options = ("--host", "::1", "--no-daemon", "--allow-host", "ui.example.org")
    port = str(free_port())
    env = {"CONTEXTCLIFF_TOKEN": token}
    with running_ui(tmp_path, *options, "--port", port, env=env) as ui:
        assert ui.address == f"http://[::1]:{port}"
        assert token not in ui.link, "it is known to its user; stdout may be a log"
        right = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=ui.address, headers=right, timeout=300) as user:
            for host, origin, status in (
                (f"[::1]:{port}", f"http://[::1]:{port}", 200),
                (f"localhost:{port}", f"http://localhost:{port}", 200),
                ("ui.example.org", "https://ui.example.org", 200),
                (f"[::1]:{port}", "https://ui.example.org", 200),
                ("other.example.org", "https://other.example.org", 403),
                (f"[::1]:{port}", f"http://127.0.0.1:{port}", 403),
                (f"[::2]:{port}", f"http://[::2]:{port}", 403),
            ):
                sent = user.post(
                    "/graphql",
                    json={"query": "{version}"},
                    headers={"Host": host, "Origin": origin},
                )
                assert sent.status_code == status, (host, origin)


def test_without_a_token_only_browsers_are_kept_out(tmp_path: Path) -> None:
    """And what it has started ends with it, even where it is killed."""
    port = str(free_port())
    proxy = {"http_proxy": "http://127.0.0.1:9"}  # for other machines: it knows no port of this one
    with running_ui(tmp_path, "--no-token", "--no-daemon", "--port", port, env=proxy) as ui:
        assert ui.link == ui.address
        with httpx.Client(base_url=ui.address, timeout=300) as program:
            assert program.get("/").status_code == 200
            assert program.get("/", headers={"Host": "evil.example"}).status_code == 403
            body = {"query": LAUNCH_NOW}
            foreign = {"Origin": "http://evil.example"}
            assert program.post("/graphql", json=body, headers=foreign).status_code == 403
            assert program.get("/graphql", params=body).status_code == 405
        assert not socket_opens(ui, Origin="http://evil.example")
        assert socket_opens(ui, Origin=ui.address)

        own = subprocess.run(
            ["ps", "--ppid", str(ui.process.pid), "-o", "pid="], capture_output=True, text=True
        )
        (webserver,) = map(int, own.stdout.split())
        ui.process.send_signal(signal.SIGKILL)
        ui.process.wait(300)
        while Path(f"/proc/{webserver}").exists():
            subprocess.run(["sleep", "0.2"], check=True)  # the test's own time limit ends it
