"""The real LiteLLM proxy, its hook configured as the page says, and a stub for the model."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from contextcliff_dagster_tests.support.files.policies import TODAY, policy_row, write_policies
from contextcliff_dagster_tests.support.paths import CHECKOUT, DOCS
from contextcliff_dagster_tests.support.requirements import gateway_tools_python
from contextcliff_dagster_tests.support.servers.language_model import recording_server

pytestmark = [pytest.mark.gateway_tools, pytest.mark.slow]  # the proxy takes its time to start

LONG = "word " * 3_000
LARGER = "my-larger-model"


class Proxies(NamedTuple):
    """One with the hook, one without, in front of the same model; bodies that reached it."""

    hooked: str
    plain: str
    bodies: list[bytes]
    policy: Path


@contextmanager
def proxy(folder: Path, name: str, config: dict[str, Any]) -> Iterator[str]:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(gateway_tools_python()).with_name("litellm")
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "LITELLM_LOCAL_MODEL_COST_MAP": "1"}
    environment["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--config", path, "--host", "127.0.0.1", "--port", str(port)],
            stdout=log, stderr=log, env=environment, cwd=folder,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def wait_for(url: str, log: Path) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(log.read_text("utf-8")[-3_000:])


def config_of_the_page() -> dict[str, Any]:
    page = (DOCS / "gateway.md").read_text(encoding="utf-8")
    config = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert {entry["model_name"] for entry in config["model_list"]} == {"my-model", LARGER}
    return dict(config)


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    folder = tmp_path_factory.mktemp("litellm")
    policy = write_policies(folder / "safe-context.json", policy_row("m"), policy_row("my-model"))
    with ExitStack() as stack:
        base_url, bodies = stack.enter_context(recording_server())
        hooked = config_of_the_page()
        listed = hooked["model_list"]
        listed += [{**listed[0], "model_name": name} for name in ("m", "other")]
        for entry in listed:
            model = f"openai/{entry['model_name']}"
            entry["litellm_params"] = {"model": model, "api_base": base_url, "api_key": "x"}
        hooked["callback_settings"]["contextcliff"]["policy"] = str(policy)
        plain = {"model_list": listed}
        urls = [
            stack.enter_context(proxy(folder, name, config))
            for name, config in (("hooked", hooked), ("plain", plain))
        ]
        for name, url in zip(("hooked", "plain"), urls, strict=True):
            wait_for(url, folder / f"{name}.log")
        yield Proxies(*urls, bodies, policy)


def post(url: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    content = json.dumps(body, ensure_ascii=False).encode()
    request = urllib.request.Request(url + path, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def chat(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0}


@pytest.mark.timeout(600)
def test_below_the_cap_the_model_gets_the_same_bytes(proxies: Proxies) -> None:
    for path, body in (
        ("/v1/chat/completions", chat("m", "é ü 漢")),
        ("/v1/completions", {"model": "m", "prompt": "a short one"}),
        ("/v1/chat/completions", chat("other", LONG)),
    ):
        proxies.bodies.clear()
        for url in (proxies.hooked, proxies.plain):
            assert post(url, path, body)[0] == 200
        with_hook, without = proxies.bodies
        assert with_hook == without


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat("m", LONG)),
        ("/v1/completions", {"model": "m", "prompt": LONG}),
        ("/v1/messages", {**chat("m", LONG), "max_tokens": 9}),
        ("/v1/responses", {"model": "m", "input": LONG}),
    ],
    ids=["chat", "completions", "messages", "responses"],
)
def test_above_the_cap_there_is_a_clear_400(
    proxies: Proxies, path: str, body: dict[str, Any]
) -> None:
    proxies.bodies.clear()
    status, answer = post(proxies.hooked, path, body)
    assert status == 400
    message = answer["error"]["message"]
    assert message.startswith(
        "A prompt of 15,000 tokens (reference) is above the safe cap of 1,000"
    )
    assert f"for m on the task lookup, measured {TODAY}" in message
    assert proxies.bodies == []


@pytest.mark.timeout(600)
def test_above_the_cap_a_larger_model_answers_where_one_is_named(proxies: Proxies) -> None:
    proxies.bodies.clear()
    status, answer = post(proxies.hooked, "/v1/chat/completions", chat("my-model", LONG))
    assert (status, answer["choices"][0]["message"]["content"]) == (200, f"I am {LARGER}")
    (sent,) = map(json.loads, proxies.bodies)
    assert sent == chat(LARGER, LONG)


@pytest.mark.timeout(600)
def test_the_proxy_goes_by_a_new_policy_without_a_restart(proxies: Proxies) -> None:
    before = [policy_row("m"), policy_row("my-model")]
    write_policies(proxies.policy, policy_row("m", 100_000), before[1])
    assert post(proxies.hooked, "/v1/chat/completions", chat("m", LONG))[0] == 200
    write_policies(proxies.policy, *before)
    assert post(proxies.hooked, "/v1/chat/completions", chat("m", LONG))[0] == 400
