"""Times to the first token that owe nothing to an earlier call: a recipe without prefix cache."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.inference.engines.base import Decoding, Engine, open_engine
from contextcliff_dagster.inference.engines.openai.wire_format import request
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import plan_calls
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE
from contextcliff_dagster.studies import find_study
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    dialect_server,
    faulty_server,
    openai_entry,
    plan_of,
    read_log,
)

TEMPLATE = "{document}{question}"
ON = Recipe(template=TEMPLATE, max_output_tokens=8, instructions=("{question}", "Say: {question}"))
OFF = Recipe.from_dict({**ON.to_dict(), "prefix_cache": False})
ENTRY = openai_entry("http://127.0.0.1:9/v1")


def test_it_is_another_recipe_and_calls_of_recipes_that_never_knew_it_stay_paid() -> None:
    assert OFF.hash != ON.hash
    assert OFF.replicate_hash(0) != ON.replicate_hash(0)
    assert json.loads(OFF.body)["prefix_cache"] is False, "recorded with the calls"
    assert "prefix_cache" not in json.loads(ON.body)
    assert Recipe.from_dict(json.loads(OFF.body)) == OFF
    assert OFF.render("D", "Q") == ON.render("D", "Q"), "nothing is added to the prompt"


def test_a_study_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study: dict[str, Any] = {
        "name": "cold",
        "corpus": {"kind": "reference"},
        "tokenizer": "reference",
        "models": ["reference-short"],
    }
    path = tmp_path / "cold.yaml"
    path.write_text(yaml.safe_dump(study) + "prompt: {prefix_cache: off}\n")
    assert find_study(str(path)).recipe().prefix_cache is False
    path.write_text(yaml.safe_dump(study))
    assert find_study(str(path)).recipe().prefix_cache is True


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_calls_of_one_document_stand_as_far_apart_as_they_can(
    bins: int, documents: int, questions: int
) -> None:
    sample = LedgerSample(bins, documents, max_tokens=80, questions=questions)
    n = documents * questions
    together, apart = (plan_calls(sample, "i", r, "c", sample.bins, n) for r in (ON, OFF))

    def asked(calls: Any) -> list[tuple[str, int]]:
        return sorted((call.example.example_id, call.replicate) for call in calls)

    assert asked(together) == asked(apart)
    assert [call.bin for call in together] == [call.bin for call in apart], "bin after bin"
    for name in sample.bins:
        order = [call.example.document_id for call in apart if call.bin == name]
        last: dict[str, int] = {}
        for place, document in enumerate(order):
            if document in last:
                between = set(order[last[document] + 1 : place])
                assert len(between) == documents - 1, "every other document comes first"
            last[document] = place


@pytest.mark.parametrize("mode", ["chat", "completion"])
def test_servers_are_told_in_their_own_words(mode: Any) -> None:
    prompt = Recipe(mode=mode, template=TEMPLATE).render("D", "Q")

    def body(dialect: str, prefix_cache: bool) -> dict[str, Any]:
        _, parts = request(ENTRY, prompt, Decoding(8, 0.0, prefix_cache), dialect)
        result: dict[str, Any] = json.loads(b"".join(parts))
        return result

    usual = body("plain", True)
    for dialect in ("vllm", "llamacpp", "koboldcpp", "nim"):
        assert body(dialect, True) == usual
    for dialect in ("plain", "koboldcpp", "nim"):
        assert body(dialect, False) == usual, "what a server may not know is not sent"
    assert body("llamacpp", False) == {**usual, "cache_prompt": False}
    salts = [body("vllm", False) for _ in range(3)]
    assert len({told.pop("cache_salt") for told in salts}) == 3, "no two calls share one"
    assert salts == [usual] * 3


def test_a_server_without_a_word_for_it_is_asked_in_another_order(tmp_path: Path) -> None:
    sample, log = LedgerSample(1, 4, max_tokens=100, questions=3), tmp_path / "log.jsonl"
    with faulty_server(["ok"], log) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1)
        for recipe in (ON, OFF):
            assert measure(plan_of(sample, 12, recipe), entry, ledger).sent == 24
    texts = [line["body"]["messages"][0]["content"] for line in read_log(log)]
    heads = [text.rsplit("?", 1)[0][:40] for text in texts]
    together, apart = heads[:24], heads[24:]
    assert Counter(together) == Counter(apart)
    assert sum(a == b for a, b in pairwise(together)) == 20
    assert sum(a == b for a, b in pairwise(apart)) == 0


@pytest.mark.parametrize(("kind", "option"), [("vllm", "cache_salt"), ("llamacpp", "cache_prompt")])
def test_what_answers_at_an_address_decides_the_word(
    kind: str, option: str, tmp_path: Path
) -> None:
    sample, log = LedgerSample(1, 2, max_tokens=100), tmp_path / "log.jsonl"
    with dialect_server(kind, log=log) as url, Ledger.open(tmp_path / "state.db") as ledger:
        for recipe in (ON, OFF):
            plan = plan_of(sample, 2, recipe)
            assert measure(plan, openai_entry(url), ledger).answered == 4
    sent = [line["options"] for line in read_log(log) if line["path"].endswith("completions")]
    assert [option in told for told in sent] == [False] * 4 + [True] * 4


async def _cached(engine: Engine) -> dict[bool, list[int]]:
    """Tokens that were read from the cache, of three questions on one document each way."""
    found: dict[bool, list[int]] = {}
    try:
        await engine.start()
        for number, recipe in enumerate((ON, OFF)):
            found[recipe.prefix_cache] = []
            for question in range(3):
                document = f"{number} " + "One line of some document. " * 60
                prompt = recipe.render(document, f"Number {question}?")
                answer = await ask(engine, prompt, Decoding(2, 0.0, recipe.prefix_cache))
                assert answer.usage
                found[recipe.prefix_cache].append(answer.usage.cached_tokens or 0)
    finally:
        await engine.stop()
    return found


def _judge(found: dict[bool, list[int]]) -> None:
    assert all(cached > 100 for cached in found[True][1:]), found
    assert found[False] == [0, 0, 0], found


@pytest.mark.local_model
def test_llamacpp_reads_every_prompt_anew() -> None:
    values = {"name": "small", "engine": "llamacpp", "weights": LOCAL_MODEL_FILE, "threads": 1}
    entry = ModelEntry.model_validate({**values, "window_tokens": 1024})
    _judge(asyncio.run(_cached(open_engine(entry))))


@pytest.mark.vllm
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["vllm", "vllm_server"])
def test_vllm_reads_every_prompt_anew(engine: str) -> None:
    # vLLM changes the process that it runs in.
    module = "contextcliff_dagster_tests.inference.execution.test_prefix_cache"
    done = subprocess.run(
        [sys.executable, "-m", module, engine],
        capture_output=True, text=True, env=os.environ, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    _judge({True: result["true"], False: result["false"]})


def _vllm(engine: str) -> None:
    values = {"name": "v", "engine": engine, "model_id": "reference-short", "dtype": "float32"}
    more = {"window_tokens": 8192, "concurrency": 1, "vllm": {"kv_cache_gib": 0.25}}
    entry = ModelEntry.model_validate({**values, **more})
    print(json.dumps(asyncio.run(_cached(open_engine(entry)))))


if __name__ == "__main__":
    _vllm(sys.argv[1])
