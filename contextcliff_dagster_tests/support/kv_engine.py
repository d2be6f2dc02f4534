"""Prompts for engine `kvpress`, its answers, and scripts in its environment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from contextcliff_dagster.inference.engines.base import Decoding, EngineSession
from contextcliff_dagster.inference.engines.kvpress.worker_process import kv_python
from contextcliff_dagster.inference.execution.single_request import Answer, ask
from contextcliff_dagster.inference.models.entry import KvOptions
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, SharedText
from contextcliff_dagster.store import PACKAGE
from contextcliff_dagster_tests.support.records.calls import LedgerSample

T = TypeVar("T")

ANEW = Decoding(8, prefix_cache=False)
POLICIES = ["snapkv", "h2o", "streaming_llm", "knorm", "tova", "expected_attention", "random"]
SAMPLE = LedgerSample(1, 6, max_tokens=600, questions=2)


def entry(policy: str | None = None, budget: float | None = None, **changes: Any) -> ModelEntry:
    values: dict[str, Any] = {"engine": "kvpress", "model_id": "reference-short", "threads": 1}
    if policy:
        values["kv"] = {"policy": policy} | ({} if budget is None else {"budget": budget})
    return ModelEntry.model_validate({"name": "pressed", **values, **changes})


PLAIN = Recipe(template="{document}{question}")
RECIPES = [
    Recipe(template="{document}{question}", system="Be brief."),
    Recipe("chat_prefill", template="{document}{question}", answer_prefix="9"),
    Recipe("completion", template="{document}{question}"),
]


def prompts(recipe: Recipe = PLAIN, n: int = 6) -> list[Prompt]:
    return [
        recipe.render(SharedText(SAMPLE.document_text(s.example.document_id)), s.example.question)
        for s in SAMPLE.planned("b00", n)
    ]


def run(session: EngineSession, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    return session.submit(work(pressed(session.engine, "none", 1.0))).result(timeout=600)


async def answers(engine: Any, asked: list[Prompt], most: int = 8) -> list[Answer]:
    return [await ask(engine, prompt, Decoding(most)) for prompt in asked]


def pressed(engine: Any, policy: str, budget: float) -> Any:
    """The same worker under another policy: its protocol takes one with each request."""
    engine._kv = KvOptions.model_validate({"policy": policy, "budget": budget})
    return engine


def texts(given: list[Answer]) -> list[tuple[str, str | None]]:
    return [(answer.text, answer.finish_reason) for answer in given]


def in_its_environment(script: Path, *arguments: str) -> Any:
    """What a script prints last, as JSON."""
    done = subprocess.run(
        [kv_python(), "-I", script, PACKAGE, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
