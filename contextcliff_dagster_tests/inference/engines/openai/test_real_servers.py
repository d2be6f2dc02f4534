"""A llama.cpp server and a vLLM server of somebody else: found out, counted by, and measured."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from contextcliff_dagster.inference.engines.base import Decoding
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE, find_weights
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    LedgerSample,
    openai_entry,
    plan_of,
    running,
)

WINDOW = 512
RECIPES = [
    Recipe(max_output_tokens=2),
    Recipe(max_output_tokens=2, system="Answer with a number."),
    Recipe("chat_prefill", max_output_tokens=2, answer_prefix="It is "),
    Recipe("completion", max_output_tokens=2),
]
LLAMA_SERVER = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.verbosity, params.model.path, params.port = 1, sys.argv[1], 0
params.n_ctx, params.n_parallel, params.kv_unified = 2 * int(sys.argv[2]), 2, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.ctx_shift, params.api_keys = False, ["for-tests-only"]
server = xllamacpp.Server(params)
print(server.listening_address + "/v1", flush=True)
threading.Event().wait()
"""


async def counts_as_it_reads(entry: ModelEntry, recipes: list[Recipe]) -> OpenAIEngine:
    """Start, count and ask; the stopped engine, which still knows its identity."""
    engine = OpenAIEngine(entry)
    try:
        await engine.start()
        for recipe in recipes:
            prompt = recipe.render("The sky is blue. <|im_end|> ü 漢\n" * 9, "What is it?")
            count = await engine.count_prompt_tokens(prompt)
            answer = await ask(engine, prompt, Decoding(2))
            assert count is not None
            assert answer.usage is not None
            assert (count.exact, count.tokens) == (True, answer.usage.prompt_tokens), recipe.mode
    finally:
        await engine.stop()
    return engine


async def times_are_told(entry: ModelEntry) -> None:
    """Three calls at once to a server that takes up one at a time; whether one has to wait is up to
    the machine."""
    engine = OpenAIEngine(entry)
    sample = LedgerSample(1, 1, max_tokens=WINDOW // 2)
    (planned,) = sample.planned("b00", 1)
    text = sample.document_text(planned.example.document_id)
    prompt = RECIPE.render(text, planned.example.question)
    try:
        await engine.start()
        answers = await asyncio.gather(*(ask(engine, prompt, Decoding(8)) for _ in range(3)))
    finally:
        await engine.stop()
    for answer in answers:
        assert answer.queue_ms is not None
        assert answer.ttft_ms is not None
        assert answer.first_token is not None
        seen = (answer.first_token - answer.started) * 1000
        assert 0 < answer.queue_ms < answer.queue_ms + answer.ttft_ms <= seen
        assert answer.usage is not None
        assert answer.usage.cached_tokens is not None


def too_long_for_half(tmp_path: Path, entry: ModelEntry, recipe: Recipe) -> tuple[int, int]:
    """Measure documents around the window's length: calls answered, and never sent."""
    sample = LedgerSample(2, 2, max_tokens=4 * WINDOW, seed=2)
    plan = plan_of(sample, 2, recipe)
    with Ledger.open(tmp_path / "state.db") as ledger:
        summary = measure(plan, entry, ledger)
    assert summary.unchecked_truncation == summary.invalid_truncated == 0
    assert summary.sent == summary.answered
    return summary.answered, summary.context_overflow


@pytest.mark.local_model
@pytest.mark.timeout(600)
def test_a_llama_cpp_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_KEY", "for-tests-only")
    named = {"name": "small", "engine": "llamacpp", "weights": LOCAL_MODEL_FILE}
    weights = find_weights(ModelEntry.model_validate(named))
    with running("-c", LLAMA_SERVER, str(weights), str(WINDOW)) as url:
        entry = openai_entry(url, model_id="any name", api_key_env="LLAMA_KEY", concurrency=2)
        first, second = (asyncio.run(counts_as_it_reads(entry, RECIPES)) for _ in range(2))
        answered, overflow = too_long_for_half(tmp_path, entry, RECIPES[0])
    told = first.identity()
    assert told.hash == second.identity().hash
    assert str(told.fields["server_software"]).startswith("llama.cpp ")
    assert len(told.fields["server_chat_template"]) == 64
    assert told.window_tokens == WINDOW
    assert (answered > 0, overflow > 0, answered + overflow) == (True, True, 4)


@pytest.mark.vllm
@pytest.mark.timeout(1800)
def test_a_vllm_server(tmp_path: Path) -> None:
    from contextcliff_dagster.inference.engines.vllm.managed_server import VllmProcess

    served = {
        "name": "served",
        "engine": "vllm_server",
        "model_id": "reference-short",
        "dtype": "float32",
        "window_tokens": WINDOW,
        "vllm": {"kv_cache_gib": 0.25},
    }

    async def main() -> tuple[OpenAIEngine, tuple[int, int]]:
        process = VllmProcess(ModelEntry.model_validate(served))
        try:
            await process.start()
            entry = openai_entry(f"{process.address}/v1")
            found = await counts_as_it_reads(entry, RECIPES)
            await times_are_told(entry)
            return found, await asyncio.to_thread(too_long_for_half, tmp_path, entry, RECIPES[0])
        finally:
            await process.stop()

    engine, (answered, overflow) = asyncio.run(main())
    assert str(engine.identity().fields["server_software"]).startswith("vllm 0.")
    assert engine.window_tokens == WINDOW
    assert (answered > 0, overflow > 0, answered + overflow) == (True, True, 4)
