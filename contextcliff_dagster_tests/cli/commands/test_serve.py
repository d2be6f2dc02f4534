"""Processes that stay: they say where they are, and leave nothing behind."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request

import pytest

from contextcliff_dagster.cli.commands.serve import claim_port
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, run, served, start


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@pytest.mark.slow
def test_ui_opens_on_loopback_and_ends_with_ctrl_c() -> None:
    port = free_port()
    process = start("ui", "--port", str(port))
    try:
        assert process.stdout is not None
        assert f"http://127.0.0.1:{port}" in process.stdout.readline()
        query = json.dumps({"query": "{assetNodes {assetKey {path}}}"}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/graphql", query, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            nodes = json.load(response)["data"]["assetNodes"]
        assert {"quick", "reference"} <= {node["assetKey"]["path"][0] for node in nodes}
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert not answers(port), "the webserver outlived the command"


def test_two_uis_that_start_at_once_take_two_ports() -> None:
    port = free_port()
    first = claim_port("127.0.0.1", port)
    assert first is not None
    # Nothing listens there yet, and it is the first one's all the same.
    assert claim_port("127.0.0.1", port) is None
    first.close()
    again = claim_port("127.0.0.1", port)
    assert again is not None
    again.close()


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for command in (("ui",), ("serve", "reference-short")):
            assert_one_sentence(run(*command, "--port", port), port)


def test_serve_says_where_it_is_and_ends_quietly_with_ctrl_c() -> None:
    process = start("serve", "reference-short", "--port", "0", "--json")
    assert process.stdout is not None
    said = "".join(process.stdout.readline() for _ in range(4))
    url = json.loads(said)["url"]
    with urllib.request.urlopen(f"{url}/models", timeout=60) as response:
        assert json.load(response)["data"][0]["id"] == "reference-short"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_the_address_can_be_used_at_once() -> None:
    with served("reference-short") as url:
        body = json.dumps(
            {"model": "reference-short", "messages": [{"role": "user", "content": "Find?"}]}
        ).encode()
        request = urllib.request.Request(
            f"{url}/chat/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            assert json.load(response)["choices"]
