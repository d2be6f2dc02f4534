"""The in-process engine: the tokenizer's own template, real streaming, real counts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, Delta
from contextcliff_dagster.inference.engines.reference import ReferenceEngine
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.support.held_calls import PATIENCE_S
from contextcliff_dagster_tests.support.records.calls import RECIPE, LedgerSample, reference_entry

SAMPLE = LedgerSample(1, 4, max_tokens=300)
SHORT = SAMPLE.planned("b00", 1)[0]


def prompt_of(recipe: Recipe = RECIPE) -> Prompt:
    return recipe.render(SAMPLE.document_text(SHORT.example.document_id), SHORT.example.question)


def with_engine(work, **changes):  # type: ignore[no-untyped-def]
    async def main():  # type: ignore[no-untyped-def]
        engine = ReferenceEngine(reference_entry(**changes))
        await engine.start()
        try:
            return await work(engine)
        finally:
            await engine.stop()
            await engine.stop()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "recipe",
    [
        RECIPE,
        Recipe(template="{document}{question}", system="Be brief."),
        Recipe(template="{document}{question}", mode="chat_prefill", answer_prefix="93"),
    ],
)
def test_the_prompt_is_what_the_tokenizers_own_template_gives(recipe: Recipe) -> None:
    import jinja2

    folder = weights_path("reference-short")
    template = jinja2.Template((folder / "chat_template.jinja").read_text())
    prompt = prompt_of(recipe)
    prefill = prompt.mode == "chat_prefill"
    text = template.render(messages=prompt.as_dicts(), add_generation_prompt=not prefill)
    if prefill:  # as transformers and vLLM do it: nothing after the begun answer
        text = text[: text.rindex("93") + 2]

    async def work(engine: ReferenceEngine) -> tuple[list[int], list[int]]:
        assert engine._tokenizer is not None
        return engine.encode(prompt), engine._tokenizer.encode(text, add_special_tokens=False).ids

    ours, theirs = with_engine(work)
    assert ours == theirs


def test_tokens_stream_one_by_one_and_the_usage_is_counted() -> None:
    async def work(engine: ReferenceEngine) -> list[Delta]:
        count = await engine.count_prompt_tokens(prompt_of())
        deltas = [delta async for delta in engine.stream(prompt_of(), Decoding(6))]
        usage = deltas[-1].usage
        assert usage is not None
        assert count is not None
        assert count.exact
        assert usage.prompt_tokens == count.tokens
        assert usage.completion_tokens == len(deltas) - 1
        return deltas

    deltas = with_engine(work)
    assert deltas[-1].finish_reason in {"stop", "length"}
    times = [delta.at for delta in deltas]
    assert times == sorted(times)


def test_a_completion_prompt_is_read_as_it_stands() -> None:
    async def work(engine: ReferenceEngine) -> list[int]:
        return engine.encode(
            Recipe(mode="completion", template="{document}{question}").render("Find", " SKU-")
        )

    assert len(with_engine(work)) == 2


def test_the_event_loop_stays_free_while_the_model_reads() -> None:
    async def work(engine: ReferenceEngine) -> str:
        assert engine._model is not None
        generate, reads, goes_on = engine._model.generate, threading.Event(), threading.Event()

        def held(*arguments: Any) -> Iterator[int]:
            reads.set()
            assert goes_on.wait(PATIENCE_S), "the loop waits for the model"
            yield from generate(*arguments)

        engine._model.generate = held  # type: ignore[method-assign]
        asking = asyncio.ensure_future(ask(engine, prompt_of(), Decoding(4)))
        while not reads.is_set():
            await asyncio.sleep(0.001)
        assert not asking.done()
        goes_on.set()
        return (await asking).text

    assert with_engine(work)


def test_weights_that_are_not_there_are_one_sentence(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(EngineError, match="weights"):
        ReferenceEngine(reference_entry("nobody"))
    with pytest.raises(EngineError, match=r"config.json is missing"):
        ReferenceEngine(reference_entry(weights=str(tmp_path)))


def test_the_smaller_window_counts() -> None:
    assert ReferenceEngine(reference_entry(window_tokens=512)).window_tokens == 512
    assert ReferenceEngine(reference_entry(window_tokens=99_999)).window_tokens == 8192
