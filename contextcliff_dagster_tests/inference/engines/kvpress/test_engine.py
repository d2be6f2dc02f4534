"""Compressed KV caches through the worker: the judge of policy ``none`` is the built-in runtime."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError, TransportError
from contextcliff_dagster.inference.engines.kvpress.engine import (
    KvpressEngine,
    h2o_longest,
    kvpress_identity,
)
from contextcliff_dagster.inference.engines.kvpress.worker_process import (
    PYTHON_VARIABLE,
    kv_versions,
)
from contextcliff_dagster.inference.engines.reference import ReferenceEngine
from contextcliff_dagster.inference.execution.single_request import Answer, ask
from contextcliff_dagster.inference.models.entry_parts import KvOptions
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe
from contextcliff_dagster.inference.requests.shared_document import SharedText
from contextcliff_dagster.inference.weights.files import LOCAL_MODEL_FILE
from contextcliff_dagster_tests.support.files.source_lines import source_documents
from contextcliff_dagster_tests.support.records.calls import LedgerSample, reference_entry

needs_kv = [pytest.mark.kv, pytest.mark.timeout(900)]
T = TypeVar("T")

POLICIES = ["snapkv", "h2o", "streaming_llm", "knorm", "tova", "expected_attention", "random"]
SAMPLE = LedgerSample(1, 6, max_tokens=600, questions=2)
RECIPES = [
    Recipe(template="{document}{question}", system="Be brief."),
    Recipe("chat_prefill", template="{document}{question}", answer_prefix="9"),
    Recipe("completion", template="{document}{question}"),
]


def entry(policy: str | None = None, budget: float | None = None, **changes: Any) -> ModelEntry:
    values: dict[str, Any] = {"engine": "kvpress", "model_id": "reference-short", "threads": 1}
    if policy:
        values["kv"] = {"policy": policy} | ({} if budget is None else {"budget": budget})
    return ModelEntry.model_validate({"name": "pressed", **values, **changes})


def prompts(recipe: Recipe = Recipe(template="{document}{question}"), n: int = 6) -> list[Prompt]:
    return [
        recipe.render(
            SharedText(SAMPLE.document_text(s.example.document_id)), s.example.question
        )
        for s in SAMPLE.planned("b00", n)
    ]


def with_engine(engine: Any, work: Callable[[Any], Awaitable[T]]) -> T:
    async def main() -> T:
        await engine.start()
        try:
            return await work(engine)
        finally:
            await engine.stop()
            await engine.stop()

    return asyncio.run(main())


async def answers(engine: Any, asked: list[Prompt], most: int = 8) -> list[Answer]:
    return [await ask(engine, prompt, Decoding(most)) for prompt in asked]


def pressed(engine: KvpressEngine, policy: str, budget: float) -> KvpressEngine:
    """The same worker under another policy: its protocol takes one with each request."""
    engine._kv = KvOptions(policy=policy, budget=budget)  # type: ignore[arg-type]
    return engine


def texts(given: list[Answer]) -> list[tuple[str, str | None]]:
    return [(answer.text, answer.finish_reason) for answer in given]


class TestReferenceModel:
    pytestmark = needs_kv

    def test_policy_none_answers_as_the_built_in_runtime(self) -> None:
        asked = [prompt for recipe in RECIPES for prompt in prompts(recipe)]

        async def work(engine: Any) -> list[Any]:
            counts = [(await engine.count_prompt_tokens(prompt)).tokens for prompt in asked]
            given = await answers(engine, asked)
            assert [answer.usage.prompt_tokens for answer in given if answer.usage] == counts
            return [counts, texts(given)]

        ours = with_engine(ReferenceEngine(reference_entry()), work)
        assert with_engine(KvpressEngine(entry()), work) == ours
        assert len({text for text, _ in ours[1]}) > 3

    def test_a_budget_of_one_changes_no_answer_and_a_smaller_one_keeps_its_share(self) -> None:
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
                        if policy == "snapkv":
                            assert answer.extra["kv_window"] == min(64, tokens // 8, kept // 2)
                        # Read once for the policy: every budget and question has its scores.
                        assert answer.usage
                        assert answer.usage.cached_tokens == tokens
                    changed[policy, budget] = texts(given) != whole
            assert all(changed[policy, 0.1] for policy in POLICIES)

        with_engine(KvpressEngine(entry()), work)

    def test_scores_of_another_budget_are_those_of_a_fresh_worker(self) -> None:
        asked = prompts()[:2]

        async def after_others(engine: KvpressEngine) -> list[Any]:
            for policy in POLICIES:
                await answers(pressed(engine, policy, 0.9), asked)
            return [
                texts(await answers(pressed(engine, policy, 0.4), asked)) for policy in POLICIES
            ]

        async def afresh(engine: KvpressEngine) -> list[Any]:
            found = []
            for policy in POLICIES:
                decoding = Decoding(8, prefix_cache=False)
                pressed(engine, policy, 0.4)
                given = [await ask(engine, prompt, decoding) for prompt in asked]
                assert all(answer.usage and not answer.usage.cached_tokens for answer in given)
                found.append(texts(given))
            return found

        reused = with_engine(KvpressEngine(entry()), after_others)
        assert with_engine(KvpressEngine(entry()), afresh) == reused

    def test_a_killed_worker_is_started_again_and_nothing_is_lost(self) -> None:
        async def work(engine: KvpressEngine) -> list[Any]:
            before = await answers(engine, prompts()[:2])
            first = engine._worker.pid
            assert first
            stream = engine.stream(prompts()[2], Decoding(200))
            with pytest.raises(TransportError, match="worker died"):
                async for _ in stream:
                    os.kill(first, signal.SIGKILL)
            again = await answers(engine, prompts()[:3])
            assert engine._worker.pid not in (None, first)
            assert texts(again[:2]) == texts(before)
            return texts(again)

        kept = entry("knorm", 0.8)
        undisturbed = with_engine(KvpressEngine(kept), lambda e: answers(e, prompts()[:3]))
        assert with_engine(KvpressEngine(kept), work) == texts(undisturbed)

    def test_an_answer_that_is_left_early_makes_room_for_the_next(self) -> None:
        async def work(engine: KvpressEngine) -> None:
            async for _ in (stream := engine.stream(prompts()[0], Decoding(7000))):
                break
            await stream.aclose()  # type: ignore[attr-defined]
            async with asyncio.timeout(5):
                (answer,) = await answers(engine, prompts()[:1], most=4)
            assert answer.finish_reason

        # A model of 8,192 tokens writes for longer than that, unless it ends by itself.
        with_engine(KvpressEngine(entry("random", 0.1)), work)

    def test_a_prompt_that_cannot_be_pressed_is_refused(self) -> None:
        early = Recipe(template="{question}{document}")
        bare = Recipe().render("no document that the engine knows of", "What?")

        async def work(engine: KvpressEngine) -> None:
            with pytest.raises(EngineError, match="the question before the document"):
                await answers(engine, prompts(early)[:1])
            with pytest.raises(RejectedError, match="names no document"):
                await answers(engine, [bare])
            assert await answers(pressed(engine, "none", 1.0), [bare, *prompts(early)[:1]])

        with_engine(KvpressEngine(entry("tova", 0.5)), work)

    def test_policy_and_budget_are_in_the_identity(self) -> None:
        fields = [
            kvpress_identity(entry(*kv))
            for kv in [(), ("snapkv", 0.2), ("snapkv", 0.4), ("h2o", 0.4)]
        ]
        assert fields[0]["kv"] == {"policy": "none", "budget": 1.0}
        assert len({str(f["kv"]) for f in fields}) == 4
        assert all(f"kvpress {kv_versions('m')['kvpress']}" in f["runtime"] for f in fields)

    def test_h2o_names_the_length_that_its_memory_allows(self) -> None:
        longest = h2o_longest(heads=4)
        engine = KvpressEngine(entry("h2o", 0.5, window_tokens=longest))
        assert engine.window_tokens == longest
        with pytest.raises(EngineError, match=f"up to {longest} tokens"):
            KvpressEngine(entry("h2o", 0.5, window_tokens=longest + 1))

    def test_weights_that_cannot_be_loaded_are_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')

        async def work(engine: KvpressEngine) -> None: ...

        with pytest.raises(EngineError, match="engine kvpress cannot load") as caught:
            with_engine(KvpressEngine(entry(weights=str(tmp_path))), work)
        assert "\n" not in str(caught.value)


@pytest.mark.kv
@pytest.mark.local_model
@pytest.mark.timeout(900)
@pytest.mark.slow(reason="loads a language model of 135 million parameters and reads 2,000 tokens")
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

    with_engine(KvpressEngine(entry(model_id="small", weights=LOCAL_MODEL_FILE)), work)


def test_without_its_environment_the_command_to_make_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "bin" / "python"))
    for use in (KvpressEngine, kvpress_identity):
        with pytest.raises(EngineError, match="make install-kv") as caught:
            use(entry("snapkv", 0.2))
        assert "\n" not in str(caught.value)


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(EngineError, match="no weights"):
        KvpressEngine(entry(model_id="unknown"))
