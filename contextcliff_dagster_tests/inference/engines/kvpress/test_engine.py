"""Compressed KV caches through the worker: the judge of policy ``none`` is the built-in runtime."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.attention import CacheShape
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    EngineSession,
    RejectedError,
    TransportError,
)
from contextcliff_dagster.inference.engines.kvpress.engine import KvpressEngine, kvpress_identity
from contextcliff_dagster.inference.engines.kvpress.worker_process import (
    PYTHON_VARIABLE,
    kv_versions,
)
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.requests.recipe import Recipe, SharedText
from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.files.source_lines import source_documents
from contextcliff_dagster_tests.support.kv_engine import (
    ANEW,
    PLAIN,
    POLICIES,
    RECIPES,
    answers,
    entry,
    pressed,
    prompts,
    run,
    texts,
)
from contextcliff_dagster_tests.support.records.calls import reference_entry

needs_kv = [pytest.mark.kv, pytest.mark.timeout(900)]
T = TypeVar("T")

TOKEN_BYTES = CacheShape(2, 4, 32, 32).token_bytes("f32", "f32")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineSession]:
    """One worker for all: it takes seconds to import torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTEXTCLIFF_HOME", str(tmp_path_factory.mktemp("store")))
        with EngineSession(entry()) as started:
            yield started


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of the reference model's weights with an end token that it never writes."""
    folder = tmp_path_factory.mktemp("weights") / "endless"
    shutil.copytree(weights_path("reference-short"), folder)
    for name, key, end in (
        ("generation_config.json", "eos_token_id", 3),
        ("tokenizer_config.json", "eos_token", "<|system|>"),
    ):
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), key: end}))
    return str(folder)


class TestReferenceModel:
    pytestmark = needs_kv

    def test_policy_none_answers_as_the_built_in_runtime(self, session: EngineSession) -> None:
        asked = [prompt for recipe in RECIPES for prompt in prompts(recipe)]

        async def work(engine: Any) -> list[Any]:
            counts = [(await engine.count_prompt_tokens(prompt)).tokens for prompt in asked]
            given = await answers(engine, asked)
            assert [answer.usage.prompt_tokens for answer in given if answer.usage] == counts
            return [counts, texts(given)]

        with EngineSession(reference_entry()) as judge:
            ours = judge.submit(work(judge.engine)).result(timeout=600)
        assert run(session, work) == ours
        assert len({text for text, _ in ours[1]}) > 3

    def test_a_budget_of_one_changes_no_answer_and_a_smaller_one_keeps_its_share(
        self, session: EngineSession
    ) -> None:
        async def work(engine: KvpressEngine) -> None:
            whole = texts(await answers(pressed(engine, "none", 1.0), prompts()))
            changed = {}
            for policy in POLICIES:
                every = await answers(pressed(engine, policy, 1.0), prompts())
                assert texts(every) == whole, policy
                for budget in (0.1, 0.37, 0.8):
                    given = await answers(pressed(engine, policy, budget), prompts())
                    for answer in given:
                        tokens, kept = answer.extra["kv_tokens"], answer.extra["kv_kept"]
                        assert isinstance(tokens, int)
                        assert isinstance(kept, int)
                        assert abs(kept - budget * tokens) <= 1, (policy, budget)
                        assert answer.extra["kv_bytes"] == (TOKEN_BYTES or 0) * kept
                        if policy == "snapkv":
                            assert answer.extra["kv_window"] == min(64, tokens // 8, kept // 2)
                        # Read once for the policy: every budget and question has its scores.
                        assert answer.usage
                        assert answer.usage.cached_tokens == tokens
                    changed[policy, budget] = texts(given) != whole
            assert all(changed[policy, 0.1] for policy in POLICIES)

        run(session, work)

    @settings(examples(40), suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 300), st.sampled_from(POLICIES), st.floats(0.1, 1))
    def test_entries_that_are_kept_are_the_budget_within_one(
        self, session: EngineSession, words: int, policy: str, budget: float
    ) -> None:
        document = SharedText(" ".join(f"w{n}" for n in range(words)) or "-")

        async def work(engine: KvpressEngine) -> None:
            prompt = PLAIN.render(document, "what?")
            (answer,) = await answers(pressed(engine, policy, budget), [prompt], most=1)
            tokens, kept = answer.extra["kv_tokens"], answer.extra["kv_kept"]
            assert isinstance(tokens, int)
            assert isinstance(kept, int)
            assert words < tokens
            assert abs(kept - budget * tokens) <= 1
            assert 1 <= kept <= tokens

        run(session, work)

    def test_scores_of_another_budget_are_those_of_a_document_read_anew(
        self, session: EngineSession
    ) -> None:
        asked = prompts()[:2]

        async def work(engine: KvpressEngine) -> None:
            for policy in POLICIES:
                await answers(pressed(engine, policy, 0.9), asked)
                reused = await answers(pressed(engine, policy, 0.4), asked)
                anew = [await ask(engine, prompt, ANEW) for prompt in asked]
                assert all(answer.usage and answer.usage.cached_tokens for answer in reused)
                assert not any(answer.usage and answer.usage.cached_tokens for answer in anew)
                assert texts(reused) == texts(anew), policy

        run(session, work)

    def test_a_killed_worker_is_started_again_and_nothing_is_lost(self, endless: str) -> None:
        async def work(engine: KvpressEngine) -> None:
            pressed(engine, "knorm", 0.8)
            before = await answers(engine, prompts()[:3])
            first = engine._worker.pid
            assert first
            with pytest.raises(TransportError, match="worker died"):
                async for _ in engine.stream(prompts()[2], Decoding(7000)):
                    with suppress(ProcessLookupError):  # what it had sent may come after its end
                        os.kill(first, signal.SIGKILL)
            assert texts(await answers(engine, prompts()[:3])) == texts(before)
            assert engine._worker.pid not in (None, first)

        with EngineSession(entry(weights=endless)) as started:
            run(started, work)

    def test_an_answer_that_is_left_early_makes_room_for_the_next(self, endless: str) -> None:
        async def work(engine: KvpressEngine) -> None:
            async with aclosing(engine.stream(prompts()[0], Decoding(7000))) as stream:  # type: ignore[type-var]
                async for _ in stream:
                    break
            async with asyncio.timeout(5):
                (answer,) = await answers(engine, prompts()[:1], most=50)
            assert answer.finish_reason == "length"

        with EngineSession(entry(weights=endless)) as started:
            run(started, work)

    def test_a_prompt_that_cannot_be_pressed_is_refused(self, session: EngineSession) -> None:
        early = Recipe(template="{question}{document}")
        bare = Recipe().render("no document that the engine knows of", "What?")

        async def work(engine: KvpressEngine) -> None:
            assert await answers(engine, [bare, *prompts(early)[:1]])
            pressed(engine, "tova", 0.5)
            with pytest.raises(EngineError, match="the question before the document"):
                await answers(engine, prompts(early)[:1])
            with pytest.raises(RejectedError, match="contains no document"):
                await answers(engine, [bare])

        run(session, work)

    def test_policy_and_budget_are_in_the_identity(self) -> None:
        fields = [
            kvpress_identity(entry(*kv))
            for kv in [(), ("snapkv", 0.2), ("snapkv", 0.4), ("h2o", 0.4)]
        ]
        assert fields[0]["kv"] == {"policy": "none", "budget": 1.0}
        assert len({str(f["kv"]) for f in fields}) == 4
        assert all(f"kvpress {kv_versions('m')['kvpress']}" in f["runtime"] for f in fields)

    def test_weights_that_cannot_be_loaded_are_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')

        with (
            pytest.raises(EngineError, match="engine kvpress cannot load") as caught,
            EngineSession(entry(weights=str(tmp_path))),
        ):
            pass
        assert "\n" not in str(caught.value)


@pytest.mark.kv
@pytest.mark.local_model
@pytest.mark.timeout(900)
def test_a_gguf_file_is_read_dequantised() -> None:
    document = source_documents(1, (1500, 2400), lines=2)[0]
    recipe = Recipe(
        instructions=("Copy the whole line of the text above that begins with: {question}",)
    )
    asked = [recipe.render(SharedText(document.text), line.beginning) for line in document.lines]

    async def work(engine: KvpressEngine) -> None:
        whole = texts(await answers(engine, asked, 16))
        for policy in ("snapkv", "h2o", "expected_attention"):
            assert texts(await answers(pressed(engine, policy, 1.0), asked, 16)) == whole
            for answer in await answers(pressed(engine, policy, 0.3), asked, 16):
                assert abs(answer.extra["kv_kept"] - 0.3 * answer.extra["kv_tokens"]) <= 1  # type: ignore[operator]
                assert answer.text

    with EngineSession(entry(model_id="small", weights=LOCAL_MODEL_FILE)) as started:
        run(started, work)


def test_without_its_environment_the_command_to_make_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "bin" / "python"))
    for use in (KvpressEngine, kvpress_identity):
        with pytest.raises(EngineError, match="make install-kv") as caught:
            use(entry("snapkv", 0.2))
        assert f"not found at {tmp_path / 'bin' / 'python'};" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(EngineError, match="no weights"):
        KvpressEngine(entry(model_id="unknown"))
