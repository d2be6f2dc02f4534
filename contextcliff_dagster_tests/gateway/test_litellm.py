"""The real LiteLLM proxy, its hook configured as the page says, and a stub for the model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from contextcliff_dagster_tests.support.files.policies import TODAY, policy_row, write_policies
from contextcliff_dagster_tests.support.paths import CHECKOUT, DOCS
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.requirements import gateway_tools_python
from contextcliff_dagster_tests.support.servers.language_model import recording_server

pytestmark = pytest.mark.gateway_tools

LONG = "word " * 3_000
LARGER = "my-larger-model"


class Proxies(NamedTuple):
    """One with the hook, one without, in front of the same model; bodies that reached it."""

    hooked: str
    plain: str
    bodies: list[bytes]
    policy: Path


START = """
import json, os, signal, sys
import litellm.proxy.proxy_server  # eleven CPU seconds: once for all
from litellm import run_server
started = []
for words, log in json.loads(sys.argv[1]):
    if child := os.fork():
        started.append(child)
        continue
    written = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(written, 1), os.dup2(written, 2)
    sys.exit(run_server(words))
signal.signal(signal.SIGTERM, lambda *_: [os.kill(child, signal.SIGTERM) for child in started])
for child in started:
    os.waitpid(child, 0)
"""
"""The program `litellm` for each (arguments, log)."""


@contextmanager
def proxies_of(folder: Path, configs: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    """Start a proxy for each configuration; their addresses, where all of them answer."""
    urls, starts = [], []
    for name, config in configs.items():
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        port = free_port()
        urls.append(f"http://127.0.0.1:{port}")
        words = ["--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
        starts.append([words, str(folder / f"{name}.log")])
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # any other word asks the network
    environment["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
    with (folder / "start.log").open("wb") as log:
        process = subprocess.Popen(
            [gateway_tools_python(), "-P", "-c", START, json.dumps(starts)],
            stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
        try:
            for url in urls:
                wait_for(url, folder, process)
            yield urls
        finally:
            process.terminate()
            try:
                process.wait(120)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def wait_for(url: str, folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    logs = [log.read_text("utf-8")[-3_000:] for log in sorted(folder.glob("*.log"))]
    raise AssertionError("\n".join(logs))


def config_of_the_page() -> dict[str, Any]:
    page = (DOCS / "gateway.md").read_text(encoding="utf-8")
    config = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert {entry["model_name"] for entry in config["model_list"]} == {"my-model", LARGER}
    return dict(config)


def hooked_config(policy: Path, base_url: str, **settings: str) -> dict[str, Any]:
    """The page's, with further models and settings, in front of the server at ``base_url``."""
    config = config_of_the_page()
    listed = config["model_list"]
    listed += [{**listed[0], "model_name": name} for name in ("m", "other")]
    for entry in listed:
        model = f"openai/{entry['model_name']}"
        entry["litellm_params"] = {"model": model, "api_base": base_url, "api_key": "x"}
    config["callback_settings"]["contextcliff"] |= {"policy": str(policy), **settings}
    return config


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    folder = tmp_path_factory.mktemp("litellm")
    policy = write_policies(folder / "safe-context.json", policy_row("m"), policy_row("my-model"))
    with ExitStack() as stack:
        base_url, bodies = stack.enter_context(recording_server())
        hooked = hooked_config(policy, base_url)
        plain = {"model_list": hooked["model_list"]}
        configs = {"hooked": hooked, "plain": plain}
        urls = stack.enter_context(proxies_of(folder, configs))
        yield Proxies(*urls, bodies, policy)


def post(url: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    content = json.dumps(body, ensure_ascii=False).encode()
    request = urllib.request.Request(url + path, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
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
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {**chat("other", LONG), "max_tokens": 9}),
        ("/v1/responses", {"model": "other", "input": LONG}),
        ("/v1/chat/completions", chat("other", LONG)),
        ("/v1/completions", {"model": "other", "prompt": LONG}),
    ],
    ids=["messages", "responses", "chat", "completions"],
)
def test_a_model_in_extra_body_is_held_to_its_cap(
    proxies: Proxies, path: str, body: dict[str, Any]
) -> None:
    """The proxy sends messages and responses to that model; of the others it takes the model out.
    One that has a larger model to go to cannot be exchanged there."""
    for named in ("m", "my-model"):
        proxies.bodies.clear()
        hidden = {**body, "extra_body": {"model": named}}
        status, answer = post(proxies.hooked, path, hidden)
        assert (status, f" for {named} on " in answer["error"]["message"]) == (400, True)
        assert proxies.bodies == []
    if path == "/v1/messages":  # what the hook is there for
        post(proxies.plain, path, hidden)
        assert json.loads(proxies.bodies[0])["model"] == "my-model"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "besides",
    [{"Model": "other"}, {"extra_body": {"model": "other"}}, {"extra_body": {"Model": "other"}}],
    ids=["case", "extra_body", "case in extra_body"],
)
def test_another_model_beside_the_one_that_is_called_hides_nothing(
    proxies: Proxies, besides: dict[str, Any]
) -> None:
    status, answer = post(proxies.hooked, "/v1/chat/completions", {**chat("m", LONG), **besides})
    assert (status, " for m on " in answer["error"]["message"]) == (400, True)


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


@pytest.mark.timeout(600)
def test_without_the_tokenizer_the_proxy_does_not_start_unless_bytes_are_accepted(
    tmp_path: Path,
) -> None:
    row = policy_row("m", tokenizer="file:/nowhere/tokenizer.json")
    policy = write_policies(tmp_path / "safe-context.json", row)
    with recording_server() as (base_url, bodies):
        with (
            pytest.raises(AssertionError, match=r"file:/nowhere/tokenizer\.json.*`count: bytes`"),
            proxies_of(tmp_path, {"hooked": hooked_config(policy, base_url)}),
        ):
            pass
        config = hooked_config(policy, base_url, count="bytes")
        with proxies_of(tmp_path, {"hooked": config}) as (url,):
            status, answer = post(url, "/v1/chat/completions", chat("m", LONG))
    message = "A prompt of at most 15,001 tokens by bytes may be above"
    assert (status, answer["error"]["message"].startswith(message), bodies) == (400, True, [])
