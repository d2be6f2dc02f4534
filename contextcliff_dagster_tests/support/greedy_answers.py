"""Any engine over the same questions about real source text, in a process of its own.

``python -m contextcliff_dagster_tests.support.greedy_answers`` takes an entry of models.yaml as
JSON on stdin, and writes what was answered, JSON too, as its last line.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from contextcliff_dagster.inference.engines.base import Decoding, open_engine
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe
from contextcliff_dagster_tests.support.files.source_lines import source_documents

RECIPE = Recipe(
    instructions=("Copy the whole line of the text above that begins with: {question}",),
    max_output_tokens=32,
)


@dataclass(frozen=True)
class Answers:
    """In the order of `prompts`; ``seconds`` without the engine's start."""

    texts: list[str]
    finish_reasons: list[str]
    prompt_tokens: list[int]
    completion_tokens: int
    seconds: float


def prompts() -> list[Prompt]:
    """Twenty: two lines of each of ten documents of the standard library."""
    return [
        RECIPE.render(document.text, line.beginning)
        for document in source_documents(10, (600, 2400), lines=2)
        for line in document.lines
    ]


async def answers(entry: ModelEntry) -> Answers:
    engine = open_engine(entry)
    await engine.start()
    try:
        started = time.perf_counter()
        found = [await ask(engine, prompt, Decoding(32)) for prompt in prompts()]
        seconds = time.perf_counter() - started
    finally:
        await engine.stop()
    usages = [answer.usage for answer in found if answer.usage]
    return Answers(
        [answer.text for answer in found],
        [str(answer.finish_reason) for answer in found],
        [usage.prompt_tokens or 0 for usage in usages],
        sum(usage.completion_tokens or 0 for usage in usages),
        seconds,
    )


def answers_of(entry: dict[str, Any]) -> Answers:
    """`answers`, from a process of their own."""
    # One thread: where others compute, too, vLLM's threads on the CPU mostly wait for each other.
    one_thread = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        env={**os.environ, **one_thread},
        input=json.dumps(entry),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Answers(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    named = ModelEntry.model_validate(json.load(sys.stdin))
    print(json.dumps(asdict(asyncio.run(answers(named)))))
