"""What a server is, is found out by asking it, without luck and without giving anything away."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, TransportError, open_engine
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.server_detection import Dialect
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Recipe, SharedText
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    LedgerSample,
    dialect_server,
    openai_entry,
    plan_of,
    read_log,
    reference_entry,
    reference_server,
)

T = TypeVar("T")
KEY = "canary-7f3a9c51d2"
DIALECTS = ["vllm", "llamacpp", "koboldcpp", "nim"]
TOLD: dict[str, dict[str, Any]] = {
    "vllm": {
        "server_software": "vllm 0.11.0",
        "server_max_model_len": 4096,
        "server_root": "/models/served",
    },
    "llamacpp": {
        "server_software": "llama.cpp b6800-abc",
        "server_window_tokens": 4096,
        "server_meta": {"n_ctx_train": 32768, "n_params": 7},
        "server_chat_template": hashlib.sha256(b"{{ messages }}").hexdigest(),
        "server_sampling": {"samplers": ["dry"], "repeat_penalty": 1.1},
    },
    "koboldcpp": {
        "server_software": "koboldcpp 1.102",
        "server_window_tokens": 4096,
        "server_model": "koboldcpp/served",
        "server_root": "koboldcpp",
    },
    "nim": {
        "server_software": "nim 1.8.3",
        "server_max_model_len": 4096,
        "server_root": "/models/served",
        "server_profile": "4f904d571fe6",
        "server_models": [["served:1", "ngc://nim/a/served:hf"]],
    },
}
PROBED = {
    "vllm": ["/api/extra/version", "/v1/version", "/props", "/version"],
    "llamacpp": ["/api/extra/version", "/v1/version", "/props"],
    "koboldcpp": ["/api/extra/version", "/api/extra/true_max_context_length"],
    "nim": ["/api/extra/version", "/v1/version", "/v1/metadata"],
}
RECIPES = {
    "chat": Recipe(),
    "system": Recipe(system="Answer with the number only."),
    "chat_prefill": Recipe("chat_prefill", answer_prefix="It is "),
    "completion": Recipe("completion", answer_prefix="# "),
}


def with_engine(
    entry: ModelEntry, work: Callable[[OpenAIEngine], Awaitable[T]], own: Dialect | None = None
) -> T:
    async def main() -> T:
        engine = OpenAIEngine(entry, own)
        try:
            await engine.start()
            return await work(engine)
        finally:
            await engine.stop()

    return asyncio.run(main())


def test_a_server_of_our_own_is_not_probed_and_reached_past_any_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(engine: OpenAIEngine) -> int:
        counted = await engine.count_prompt_tokens(Recipe().render("a b", "c"))
        assert counted is not None
        assert counted.exact
        return counted.tokens

    log = tmp_path / "log.jsonl"
    with dialect_server("vllm", log=log) as url:
        asked = with_engine(openai_entry(url), work)
        probed = {line["path"] for line in read_log(log)}
        log.unlink()
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        entry = openai_entry(url, tokenizer="reference", max_attempts=1)
        assert with_engine(entry, work, Dialect("vllm")) == asked
        assert {line["path"] for line in read_log(log)} == {"/v1/models", "/tokenize"} < probed
        with pytest.raises(EngineError, match="cannot be reached"):
            with_engine(entry, work)


async def who(engine: OpenAIEngine) -> Identity:
    return engine.identity()


def identity(url: str, **changes: Any) -> Identity:
    """Of a server under a name for its weights, so that its address is not part of it."""
    return with_engine(openai_entry(url, revision="r1", model_id="served", **changes), who)


def plainly(**more: Any) -> dict[str, Any]:
    return {"engine": "openai", "model_id": "served", "revision": "r1", **more}


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_server_is_known_by_what_it_answers_at_its_own_paths(kind: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with dialect_server(kind, log=log) as url:
        server_identity = identity(url)
        requests = [line["path"] for line in read_log(log)]
        assert identity(url).hash == server_identity.hash
    assert server_identity.fields == plainly(**TOLD[kind])
    assert server_identity.window_tokens == 4096
    probed = [path for path in requests[1:] if path not in ("/tokenize", "/apply-template")]
    assert requests[0] == "/v1/models"
    assert [path for path in probed if path != "/api/extra/tokencount"] == PROBED[kind]
    assert len(requests) <= 7, "the probes are few"


def test_a_plain_endpoint_keeps_the_identity_that_it_always_had(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with dialect_server("plain", log=log) as url:
        entry = openai_entry(url, model_id="served")
        returned = with_engine(entry, who)
        assert returned.fields == {"engine": "openai", "model_id": "served", "endpoint": url}
        assert len(read_log(log)) <= 5
        asked = len(read_log(log))
        quiet = openai_entry(url, model_id="served", quirks={"probes": "omit"})
        assert with_engine(quiet, who).hash == returned.hash
        assert len(read_log(log)) == asked + 1, "only the list of models is asked for"


def test_what_only_passes_on_to_other_servers_is_taken_for_a_plain_one() -> None:
    with dialect_server("router") as url:
        assert identity(url).fields == plainly()


@pytest.mark.parametrize("kind", DIALECTS)
@pytest.mark.parametrize("hiccup", ["reset", "503", "429", "500"])
def test_a_hiccup_leaves_the_identity_as_it_is(kind: str, hiccup: str) -> None:
    faults = {path: [hiccup, hiccup] for path in PROBED[kind]}
    with dialect_server(kind, faults=faults) as url:
        assert identity(url).fields == plainly(**TOLD[kind])


@pytest.mark.parametrize("fault", ["503", "429", "reset"])
def test_a_server_that_does_not_say_what_it_is_is_no_plain_one(fault: str) -> None:
    with dialect_server("vllm", faults={"/props": [fault, "always"]}) as url:
        with pytest.raises(EngineError, match=r"what kind.*probes: omit.* in models\.yaml"):
            identity(url)
        server_identity = identity(url, quirks={"probes": "omit"})
    assert "server_software" not in server_identity.fields


@pytest.mark.parametrize(
    "answer", ["400", "401", "403", "404", "405", "500", "501", "html", "empty", "list", "garbage"]
)
def test_whatever_stands_at_the_probed_paths_is_borne(answer: str) -> None:
    paths = {path for kind in DIALECTS for path in PROBED[kind]}
    with dialect_server("plain", faults={path: [answer, "always"] for path in paths}) as url:
        assert identity(url).fields == plainly()


def test_probes_carry_the_key_to_their_own_address_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    here, elsewhere = tmp_path / "here.jsonl", tmp_path / "elsewhere.jsonl"
    with dialect_server("vllm", log=elsewhere) as other:
        paths = [*PROBED["vllm"], "/tokenize"]
        redirects = {path: ["redirect", "always"] for path in paths}
        with dialect_server("plain", log=here, faults=redirects, redirect=other) as url:
            assert identity(url, api_key_env="MY_KEY").fields == plainly()
    assert len(read_log(here)) >= 4
    assert not read_log(elsewhere)
    assert {line["headers"]["host"] for line in read_log(here)} == {url.split("/")[2]}


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_key_that_a_server_tells_back_is_in_no_identity(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    sample = LedgerSample(1, 1)
    with dialect_server(kind, echo=True) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, model_id="served", api_key_env="MY_KEY")
        measure(plan_of(sample, 1), entry, ledger)
        assert "server_software" in with_engine(entry, who).fields
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY.encode() not in kept


# --- counting ---


@pytest.mark.parametrize("kind", DIALECTS)
@pytest.mark.parametrize("mode", RECIPES)
def test_prompts_are_counted_as_the_server_reads_them(kind: str, mode: str) -> None:
    text = "On day 17 the door of hall 4 was opened.\n" * 20
    prompts = [RECIPES[mode].render(document, "When?") for document in (text, SharedText(text))]

    async def work(engine: OpenAIEngine) -> None:
        for prompt in prompts:
            count = await engine.count_prompt_tokens(prompt)
            answer = await ask(engine, prompt, Decoding(8))
            assert count is not None
            assert answer.usage is not None
            assert answer.usage.prompt_tokens is not None
            if kind == "koboldcpp":  # its template is not counted
                assert not count.exact
                assert 0.9 * answer.usage.prompt_tokens < count.tokens <= answer.usage.prompt_tokens
            else:
                assert count.exact
                assert count.tokens == answer.usage.prompt_tokens

    with dialect_server(kind) as url:
        with_engine(openai_entry(url), work)


def measured(
    tmp_path: Path, url: str, sample: LedgerSample, **changes: Any
) -> tuple[Any, list[dict[str, Any]]]:
    entry = openai_entry(url, concurrency=1, **changes)
    plan = plan_of(sample, 3)
    with Ledger.open(tmp_path / "state.db") as ledger:
        summary = measure(plan, entry, ledger)
        return summary, prediction_rows(plan, entry.name, ledger)


@pytest.mark.parametrize("kind", DIALECTS)
def test_what_exceeds_the_window_that_the_server_tells_is_never_sent(
    kind: str, tmp_path: Path
) -> None:
    log, sample = tmp_path / "log.jsonl", LedgerSample(2, 3, max_tokens=600)
    lengths = sorted(s.length_tokens for bin in sample.bins for s in sample.planned(bin, 3))
    window = lengths[3]  # the template takes some of it: half of them and more do not fit
    with dialect_server(kind, log=log, window=window) as url:
        summary, rows = measured(tmp_path, url, sample)
    sent = [line for line in read_log(log) if line["path"].endswith("/completions")]
    assert summary.context_overflow >= 3
    assert len(sent) == summary.answered == 6 - summary.context_overflow > 0
    assert summary.unchecked_truncation == summary.invalid_truncated == 0
    assert all("counted" in row["error"] for row in rows if row["no_answer"])


def test_no_room_is_taken_for_a_template_that_is_not_counted(tmp_path: Path) -> None:
    """KoboldCpp cuts the beginning of what is too long, be it by a token, and says nothing."""
    log, sample = tmp_path / "log.jsonl", LedgerSample(1, 1, seed=1)
    (planned,) = sample.planned("b00", 1)
    text = sample.document_text(planned.example.document_id) + planned.example.question
    tokens = open_tokenizer("reference").count(text)
    with dialect_server("koboldcpp", log=log, window=tokens + RECIPE.max_output_tokens + 1) as url:
        summary, rows = measured(tmp_path, url, sample)
    assert (summary.sent, rows[0]["no_answer"]) == (0, "context_overflow")
    assert "for a template" in rows[0]["error"]


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_server_that_reads_less_than_it_says_is_not_believed(kind: str, tmp_path: Path) -> None:
    sample = LedgerSample(1, 3, max_tokens=600)
    with dialect_server(kind, cut_to=30) as url:
        summary, _ = measured(tmp_path, url, sample)
    assert (summary.answered, summary.invalid_truncated) == (0, 3)


def test_the_entrys_own_tokenizer_is_used_where_it_is_given(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with dialect_server("vllm", log=log) as url:
        summary, _ = measured(tmp_path, url, LedgerSample(1, 3), tokenizer="reference")
    assert (summary.answered, summary.unchecked_truncation) == (3, 0)
    assert "/tokenize" not in {line["path"] for line in read_log(log)}


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
@pytest.mark.parametrize("hiccup", ["reset", "503", "garbage"])
def test_a_hiccup_in_counting_costs_a_moment_and_no_call(
    kind: str, hiccup: str, tmp_path: Path
) -> None:
    async def work(engine: OpenAIEngine) -> None:
        assert await engine.count_prompt_tokens(Recipe().render("a b", "c")) is not None

    # The first request is the trial at the start: the fault meets a prompt.
    with dialect_server(kind, faults={"/tokenize": ["", hiccup, hiccup]}) as url:
        with_engine(openai_entry(url), work)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("503", r"no longer counts prompts.*run the same command again"),
        ("400", r"cannot count a prompt.*another prompt mode, or set .*`tokenizer`"),
        ("404", r"nothing answers there"),
    ],
)
def test_a_server_that_counts_no_more_ends_the_run_in_a_sentence(
    fault: str, says: str, tmp_path: Path
) -> None:
    faults = {"/tokenize": ["", "", *[fault] * 20]}
    with dialect_server("vllm", faults=faults) as url, pytest.raises(EngineError, match=says):
        measured(tmp_path, url, LedgerSample(1, 3), max_attempts=2)
    with Ledger.open(tmp_path / "state.db") as ledger:
        assert ledger.stats()["answers"] == 1, "what was measured is kept"


@pytest.mark.parametrize(
    ("metrics", "queue_ms"),
    [
        ({"queue_time_ms": 0.05, "time_to_first_token_ms": 0.02, "mean_itl_ms": 0.1}, 0.05),
        ({"queue_time_ms": 0.05, "time_to_first_token_ms": 9e6}, None),
        ({"queue_time_ms": 0.05}, None),
        (None, None),
    ],
)
def test_the_wait_that_the_server_tells_is_kept_apart(
    metrics: dict[str, float] | None, queue_ms: float | None, tmp_path: Path
) -> None:
    with dialect_server("vllm", metrics=metrics) as url:
        _, rows = measured(tmp_path, url, LedgerSample(1, 3))
    assert [row["queue_ms"] for row in rows] == [queue_ms] * 3
    if queue_ms:
        assert [row["ttft_ms"] for row in rows] == [0.02] * 3
    assert all(0 < row["ttft_ms"] <= row["duration_ms"] for row in rows)


def test_our_own_server_needs_no_settings(tmp_path: Path) -> None:
    sample = LedgerSample(1, 3)
    with reference_server() as url:
        returned = with_engine(openai_entry(url), who)
        summary, rows = measured(tmp_path, url, sample)
    assert set(returned.fields) == {
        "engine",
        "model_id",
        "endpoint",
        "server_max_model_len",
        "server_meta",
    }
    assert returned.window_tokens == 8192
    assert (summary.answered, summary.unchecked_truncation) == (3, 0)
    assert all(row["own_prompt_tokens"] == row["prompt_tokens"] for row in rows)


def test_a_window_that_nobody_tells_is_asked_for_in_a_sentence(tmp_path: Path) -> None:
    said: list[str] = []
    plan, control = plan_of(LedgerSample(1, 1), 1), RunControl(on_wait=said.append)
    with dialect_server("plain") as url, Ledger.open(tmp_path / "state.db") as ledger:
        measure(plan, openai_entry(url), ledger, control)
        told = openai_entry(url, name="told", window_tokens=4096)
        measure(plan, told, ledger, control)
    with dialect_server("vllm") as url, Ledger.open(tmp_path / "state.db") as ledger:
        asks = openai_entry(url, name="asks")
        measure(plan, asks, ledger, control)
    (sentence,) = said
    assert sentence.startswith("Note: ")
    assert "'remote'" in sentence
    assert "set `window_tokens` in models.yaml" in sentence


# --- embeddings ---


def test_texts_are_embedded_in_their_order() -> None:
    async def work(engine: OpenAIEngine) -> None:
        found = await engine.embed(["a", "bbb", "cc"])
        assert found.vectors.dtype == np.float32
        assert found.vectors.tolist() == [[1.0, 1.0, -0.5], [3.0, 1.0, -0.5], [2.0, 1.0, -0.5]]
        assert found.prompt_tokens == 7

    with dialect_server("vllm") as url:
        with_engine(openai_entry(url), work)


@pytest.mark.parametrize(
    ("kind", "fault", "kept"),
    [
        ("plain", None, EngineError),
        ("vllm", "503", TransportError),
        ("vllm", "garbage", TransportError),
        ("vllm", "list", TransportError),
        ("vllm", "reset", TransportError),
    ],
)
def test_embeddings_that_do_not_come_are_a_fault(
    kind: str, fault: str | None, kept: type[Exception]
) -> None:
    async def work(engine: OpenAIEngine) -> None:
        with pytest.raises(kept):
            await engine.embed(["a"])

    faults = {"/v1/embeddings": [fault]} if fault else {}
    with dialect_server(kind, faults=faults) as url:
        with_engine(openai_entry(url), work)


def test_an_engine_without_embeddings_says_so() -> None:
    with pytest.raises(EngineError, match=r"engine 'reference' has no embeddings; choose a model"):
        asyncio.run(open_engine(reference_entry()).embed(["a"]))
