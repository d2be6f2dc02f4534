"""GGUF models in process: real streaming, exact counts, nothing left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines import llamacpp as llamacpp_engine
from contextcliff_dagster.inference.engines.base import Decoding, Delta, RejectedError
from contextcliff_dagster.inference.engines.llamacpp import LlamaCppEngine, llamacpp_identity
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Recipe, Sampling
from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE
from contextcliff_dagster_tests.support.files.source_lines import source_documents

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(900)]

T = TypeVar("T")
COPY = "Copy the whole line of the text above that begins with: {question}"
RECIPES = {
    "chat": Recipe(instructions=(COPY,)),
    "system": Recipe(instructions=(COPY,), system="Answer with the line only."),
    "chat_prefill": Recipe("chat_prefill", instructions=(COPY,), answer_prefix="{question}"),
    "completion": Recipe(
        "completion",
        template="{document}\n\n# The line that begins with {question}",
        instructions=("`{question}`:\n",),
        answer_prefix="{question}",
    ),
}


def entry(**changes: Any) -> ModelEntry:
    values = {"engine": "llamacpp", "weights": LOCAL_MODEL_FILE, "threads": 1}
    return ModelEntry.model_validate({"name": "small", "window_tokens": 1024, **values, **changes})


def with_engine(work: Callable[[LlamaCppEngine], Awaitable[T]], **changes: Any) -> T:
    async def main() -> T:
        engine = LlamaCppEngine(entry(**changes))
        try:
            await engine.start()
            return await work(engine)
        finally:
            await engine.stop()
            await engine.stop()

    return asyncio.run(main())


def test_it_counts_prompts_as_it_reads_them() -> None:
    (document,) = source_documents(1, (300, 600), lines=1)
    prompts = {
        kind: recipe.render(document.text + " <|im_end|> ü 漢", document.lines[0].beginning)
        for kind, recipe in RECIPES.items()
    }

    async def work(engine: LlamaCppEngine) -> dict[str, tuple[int, int | None]]:
        counts = {}
        for kind, prompt in prompts.items():
            count = await engine.count_prompt_tokens(prompt)
            answer = await ask(engine, prompt, Decoding(1))
            assert count.exact
            assert answer.usage
            counts[kind] = (count.tokens, answer.usage.prompt_tokens)
        return counts

    for kind, (counted, read) in with_engine(work).items():
        assert counted == read, kind


def test_tokens_come_one_by_one_and_the_same_question_gives_the_same_answer() -> None:
    prompt = RECIPES["chat"].render("The sky is blue.\nThe sea is green.", "The sea")

    async def work(engine: LlamaCppEngine) -> list[list[tuple[float, Delta]]]:
        return [
            [(time.perf_counter(), delta) async for delta in engine.stream(prompt, Decoding(12))]
            for _ in range(2)
        ]

    first, second = with_engine(work)
    pieces = [(at, delta.text) for at, delta in first if delta.text]
    assert len(pieces) > 3
    assert pieces[0][0] < pieces[-1][0]
    assert [d.text for _, d in first if d.text] == [d.text for _, d in second if d.text]
    cached = [d.usage.cached_tokens for run in (first, second) for _, d in run if d.usage]
    assert cached[0] == 0
    assert (cached[1] or 0) > 10


def test_threads_change_no_answer_and_are_noted_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = RECIPES["chat"].render("The sky is blue.\nThe sea is green.", "The sea")
    monkeypatch.setattr(llamacpp_engine, "idle_cores", lambda: 1)
    monkeypatch.setattr(llamacpp_engine, "usable_cores", lambda: 8)
    monkeypatch.setattr(llamacpp_engine, "SLOW_SECONDS", 1e9)

    async def work(engine: LlamaCppEngine) -> tuple[str, object, list[str]]:
        answer = await ask(engine, prompt, Decoding(8))
        return answer.text, answer.extra["threads"], engine.notes()

    text, threads, notes = with_engine(work, threads=None)
    assert (threads, len(notes)) == (1, 1)
    assert "on 1 of 8 cores, because other programs use the rest" in notes[0]
    assert with_engine(work, threads=2) == (text, 2, [])
    assert llamacpp_identity(entry(threads=2)) == llamacpp_identity(entry(threads=None))


def test_the_cache_of_each_type_has_its_size() -> None:
    prompt = RECIPES["chat"].render("The sky is blue.\nThe sea is green.", "The sea")

    async def work(engine: LlamaCppEngine) -> tuple[Any, ...]:
        answer = await ask(engine, prompt, Decoding(8))
        assert answer.usage
        kept = answer.extra["kv_tokens"]
        assert kept == answer.extra["kv_kept"] == answer.usage.prompt_tokens
        return kept, answer.extra["kv_bytes"], answer.extra["kv_decode_ms"], answer.extra["threads"]

    for kind, bits in (("f16", 16), ("q4_0", 4.5)):
        kept, size, decode_ms, threads = with_engine(work, kv_cache_dtype=kind)
        assert size == round(kept * 30 * 3 * 128 * bits / 8)
        assert decode_ms > 0
        assert threads == 1


def test_threads_that_waited_for_other_programs_are_named() -> None:
    engine = LlamaCppEngine(entry(threads=2))
    engine.threads, engine._wall_s, engine._cpu_s = 2, 10.0, 8.0
    (note,) = engine.notes()
    assert "its 2 threads got 40% of the processor time" in note
    assert engine.notes() == []
    engine._wall_s, engine._cpu_s = 10.0, 18.0
    assert engine.notes() == []


def test_a_prompt_beyond_the_window_is_refused_and_never_cut() -> None:
    prompt = Recipe().render("word " * 600, "How many?")

    async def work(engine: LlamaCppEngine) -> None:
        with pytest.raises(RejectedError) as refusal:
            await ask(engine, prompt, Decoding(4))
        assert refusal.value.why == "context_overflow"
        assert engine.window_tokens == 256

    with_engine(work, window_tokens=256)


def test_a_completion_goes_on_where_the_text_ends() -> None:
    documents = source_documents(4, (400, 700))

    async def work(engine: LlamaCppEngine) -> list[bool]:
        return [
            line.rest
            in (
                await ask(
                    engine,
                    RECIPES["completion"].render(document.text, line.beginning),
                    Decoding(16),
                )
            ).text
            for document in documents
            for line in document.lines
        ]

    copied = with_engine(work)
    assert sum(copied) / len(copied) >= 0.25, "about half of the begun lines are copied"


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_cache_dtype": "q8_0"},
        {"kv_cache_dtype": "q8_0/q4_0"},
        {"rope_scaling": {"rope_type": "linear", "factor": 2}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4, "rope_theta": 10_000}},
    ],
)
def test_what_changes_answers_is_in_the_identity_and_runs(changes: dict[str, Any]) -> None:
    assert llamacpp_identity(entry(**changes)) != llamacpp_identity(entry())
    prompt = Recipe(mode="completion").render("One, two, three, four, five, six,", "seven,")

    async def work(engine: LlamaCppEngine) -> str:
        return (await ask(engine, prompt, Decoding(6))).text

    assert with_engine(work, **changes)


def test_rope_is_really_changed() -> None:
    prompt = Recipe(mode="completion").render("One, two, three, four, five, six,", "seven,")

    async def work(engine: LlamaCppEngine) -> str:
        return (await ask(engine, prompt, Decoding(12))).text

    assert with_engine(work) != with_engine(
        work, rope_scaling={"rope_type": "linear", "factor": 16}
    )


def test_threads_and_concurrency_are_no_part_of_the_identity() -> None:
    assert llamacpp_identity(entry(threads=2, concurrency=2)) == llamacpp_identity(entry())
    assert entry().concurrency == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kv_cache_dtype": "fp8"}, "no KV cache of type 'fp8'"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "rope_type: dynamic"),
        ({"rope_scaling": {"factor": 2}}, "factor but no rope_type"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": -1}}, "factor: -1"),
        ({"weights": "none.gguf"}, "neither here nor in"),
        ({"weights": __file__}, "not a GGUF file"),
        ({"weights": str(Path(__file__).parent)}, "is a folder"),
    ],
)
def test_a_wrong_setting_is_one_sentence(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(EngineError, match=says):
        LlamaCppEngine(entry(**changes))


def test_two_slots_have_the_whole_window_each() -> None:
    prompt = Recipe(mode="completion").render("word " * 300, "Go")

    async def work(engine: LlamaCppEngine) -> list[int | None]:
        answers = await asyncio.gather(*(ask(engine, prompt, Decoding(2)) for _ in range(2)))
        return [answer.usage.prompt_tokens for answer in answers if answer.usage]

    read = with_engine(work, window_tokens=512, concurrency=2)
    assert len(read) == 2
    assert all(tokens and tokens > 256 for tokens in read)


_MEASURE_AND_INTERRUPT = """
import asyncio, os, signal, threading, time
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.engines.base import Decoding
from contextcliff_dagster.inference.engines.base import EngineSession
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster_tests.inference.engines.llamacpp.test_engine import entry
signal.signal(signal.SIGINT, signal.default_int_handler)
with EngineSession(entry(window_tokens=4096)) as session:
    work = session.submit(ask(session.engine, Recipe().render("word " * 200, "Go"), Decoding(3000)))
    print("begun", flush=True)
    work.result()
"""


def test_ctrl_c_in_the_middle_of_an_answer_ends_the_process_and_its_own_output_is_all() -> None:
    import signal

    process = subprocess.Popen(
        [sys.executable, "-c", _MEASURE_AND_INTERRUPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode in (1, -signal.SIGINT)
    assert out == ""
    assert "KeyboardInterrupt" in err
    assert "srv " not in err, "llama.cpp's own log is silent"


def test_a_seed_draws_the_same_tokens_again_and_another_seed_others() -> None:
    prompt = Recipe().render("Once upon a time", "Go on with the story.")
    seeds = (1, 2, 1)

    async def work(engine: LlamaCppEngine) -> list[str]:
        drawn = [Decoding(16, 1.0, sampling=Sampling(top_k=100, seed=seed)) for seed in seeds]
        return [(await ask(engine, prompt, decoding)).text for decoding in drawn]

    first, other, again = with_engine(work)
    assert first == again != other
