"""Processes that stay: they say where they are, and leave nothing behind."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request

import httpx
import pytest

from contextcliff_dagster_tests.support.terminal import (
    assert_one_sentence,
    call,
    run,
    served,
    start,
)


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
    with urllib.request.urlopen(f"{url}/models", timeout=120) as response:
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
        with urllib.request.urlopen(request, timeout=120) as response:
            assert json.load(response)["choices"]


CHAT = {"model": "reference-short", "max_tokens": 4,
        "messages": [{"role": "user", "content": "Find?"}]}  # fmt: skip


def test_pages_of_other_sites_get_no_answer_and_programs_do() -> None:
    import openai

    with served("reference-short") as url:
        port = url.split(":")[2].partition("/")[0]
        with httpx.Client(timeout=120) as program:

            def status(**headers: str) -> int:
                return program.post(
                    f"{url}/chat/completions", json=CHAT, headers=headers
                ).status_code

            assert status() == 200
            assert status(Origin=f"http://127.0.0.1:{port}") == 200
            assert status(Host=f"evil.example:{port}") == 403
            assert status(Origin="http://evil.example") == 403
            assert status(Origin=f"http://localhost:{port}") == 403
            body = json.dumps(CHAT)
            plain = program.post(
                f"{url}/chat/completions", content=body, headers={"Content-Type": "text/plain"}
            )
            assert plain.status_code == 415
            assert "application/json" in plain.json()["error"]["message"]
            foreign = {"Host": "evil.example"}
            assert program.get(f"{url}/models", headers=foreign).status_code == 403
        client = openai.OpenAI(base_url=url, api_key="any")
        assert client.models.list().data[0].id == "reference-short"


def test_other_machines_need_the_printed_key_or_ones_own() -> None:
    import openai

    own = "0123456789abcdef"
    for options, environment in (
        (("--host", "0.0.0.0"), {}),
        (("--token",), {"CONTEXTCLIFF_TOKEN": own}),
    ):
        process = start(
            "serve", "reference-short", "--port", "0", "--json", *options, env=environment
        )
        try:
            assert process.stdout is not None
            value = json.loads("".join(process.stdout.readline() for _ in range(5)))
            key = value["api_key"] if not environment else own
            assert (value["api_key"] == "<CONTEXTCLIFF_TOKEN>") == bool(environment)
            right = openai.OpenAI(base_url=value["url"], api_key=key, max_retries=0)
            assert right.models.list().data
            wrong = openai.OpenAI(base_url=value["url"], api_key="wrong", max_retries=0)
            with pytest.raises(openai.AuthenticationError, match="API key"):
                wrong.models.list()
            health = value["url"].removesuffix("/v1") + "/health"
            assert httpx.get(health, timeout=120).status_code == 200
        finally:
            process.terminate()
            process.communicate(timeout=120)


def test_a_bad_name_or_token_is_one_sentence() -> None:
    for command in (("ui",), ("serve", "reference-short")):
        refused = call(*command, "--allow-host", "http://evil.example/")
        assert_one_sentence(refused, "http://evil.example/", "NAME:PORT")
        short = {"CONTEXTCLIFF_TOKEN": "short"}
        assert_one_sentence(call(*command, "--token", env=short), "CONTEXTCLIFF_TOKEN", "16")
        # Of the addresses reserved for documentation: no machine has it.
        assert_one_sentence(call(*command, "--host", "192.0.2.1"), "192.0.2.1")
    assert_one_sentence(call("ui", "--workspace", "nowhere.yaml"), "nowhere.yaml")


def test_a_server_open_to_other_machines_is_noted() -> None:
    # The port is taken, so that the command ends after its note.
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for command in (("ui",), ("serve", "reference-short")):
            for options, noted in (
                (("--host", "0.0.0.0", "--no-token"), True),
                (("--host", "0.0.0.0"), False),
                (("--no-token",), False),
            ):
                ended = call(*command, "--port", port, *options)
                assert_one_sentence(ended, port)
                assert ("Note: without a token" in ended.err) == noted
