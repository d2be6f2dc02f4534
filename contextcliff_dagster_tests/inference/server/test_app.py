"""`contextcliff serve`: what any OpenAI client expects, and nothing cut."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.server import Access, serve
from contextcliff_dagster_tests.support.records.calls import (
    openai_entry,
    read_log,
    reference_server,
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "requests.jsonl"


@pytest.fixture(scope="module")
def url(log: Path) -> Iterator[str]:
    with reference_server(log=log) as base:
        yield base


def post(url: str, body: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=120) as response:
        return json.load(response)


CHAT = {"model": "reference-short", "max_tokens": 4, "temperature": 0,
        "messages": [{"role": "user", "content": "Ledger of day 217\n SKU-482 qty=937915\nFind "
        "SKU-482?"}]}  # fmt: skip


def test_it_says_what_it_serves_and_how_long_the_window_is(url: str) -> None:
    model = get(f"{url}/models")["data"][0]
    assert (model["id"], model["max_model_len"]) == ("reference-short", 8192)
    assert get(url.removesuffix("/v1") + "/health") == {"status": "ok"}


def test_streamed_or_whole_the_answer_is_the_same(url: str) -> None:
    from openai import OpenAI

    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        messages: Any = CHAT["messages"]
        whole = client.chat.completions.create(
            model="reference-short", messages=messages, max_tokens=4
        )
        stream = client.chat.completions.create(
            model="reference-short",
            messages=messages,
            max_tokens=4,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        completion = client.completions.create(
            model="reference-short", prompt="Find SKU-482?", max_tokens=2
        )
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 4


def test_a_prompt_that_does_not_fit_is_refused_and_not_cut(url: str) -> None:
    status, body = post(f"{url}/chat/completions", {**CHAT, "max_tokens": 8190})
    assert status == 400
    assert "maximum context length is 8192 tokens" in body["error"]["message"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"model": "gpt-9"}, 404),
        ({"n": 2}, 400),
        ({"temperature": 1}, 400),
        ({"messages": []}, 400),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400),
        ({"messages": [{"role": "user", "content": 5}]}, 400),
        ({"max_tokens": "many"}, 400),
    ],
)
def test_what_it_does_not_serve_it_says(url: str, change: dict[str, Any], status: int) -> None:
    got, body = post(f"{url}/chat/completions", {**CHAT, **change})
    assert got == status
    assert body["error"]["message"]


def test_a_body_that_is_no_json_is_refused(url: str) -> None:
    assert post(f"{url}/chat/completions", b"{")[0] == 400
    assert post(f"{url}/completions", b"[]")[0] == 400


def test_tokenize_counts_with_the_template(url: str) -> None:
    root = url.removesuffix("/v1")
    plain = post(f"{root}/tokenize", {"prompt": "Find SKU-482?"})[1]["count"]
    chat = post(f"{root}/tokenize", {"messages": [{"role": "user", "content": "Find SKU-482?"}]})[
        1
    ]["count"]
    assert (plain, chat) == (4, 6)


def test_each_request_is_in_the_log_before_it_is_answered(url: str, log: Path) -> None:
    before = len(read_log(log))
    post(f"{url}/chat/completions", CHAT)
    events = [line["event"] for line in read_log(log)[before:]]
    assert events == ["received", "answered"]


def test_a_taken_port_and_a_remote_model_are_one_sentence(url: str) -> None:
    with pytest.raises(EngineError, match="choose another with --port"):
        serve("reference-short", Access(port=int(url.rsplit(":", 1)[1].split("/")[0])))
    with pytest.raises(EngineError, match="engine 'reference'"):
        serve(openai_entry("http://x/v1"))
