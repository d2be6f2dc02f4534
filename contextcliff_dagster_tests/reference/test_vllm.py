"""vLLM loads the shipped weights as they are and gives the NumPy runtime's tokens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
import pytest
from tokenizers import Tokenizer

from contextcliff_dagster.inference.engines.reference import LlamaModel
from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path
from contextcliff_dagster.reference.tokenizer import END, render_chat
from contextcliff_dagster.reference.warehouse_documents import iter_ledgers
from contextcliff_dagster_tests.support.vllm_greedy import NEW_TOKENS

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
]

TOKENIZER = Tokenizer.from_file(str(weights_path("reference-short") / "tokenizer.json"))
STOP = TOKENIZER.token_to_id(END)
TRAINED = {"reference-short": 256, "reference-long": 1_024}
ROUNDING = 1e-4
"""Top logits, of a size of about 20, that are closer than this may change places between two ways
of adding up the same float32 numbers."""


def ledger_prompts(seed: int, n: int, low: int, high: int) -> Iterator[tuple[list[int], str]]:
    """Prompt ids and the expected answer; every second question is of level 2."""
    for index, ledger in enumerate(iter_ledgers(seed, n, low, high)):
        question = ledger.questions[index % 2]
        prompt = render_chat([{"role": "user", "content": ledger.text + question.question}])
        yield TOKENIZER.encode(prompt).ids, question.answers[0]


def by_vllm(name: str, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens without the end token."""
    module = "contextcliff_dagster_tests.support.vllm_greedy"
    done = subprocess.run(
        [sys.executable, "-m", module, str(weights_path(name)), "float32"],
        input=json.dumps(prompts),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return [tokens[:-1] if tokens[-1] == STOP else tokens for tokens in answers]


def gap(model: LlamaModel, ids: list[int]) -> float:
    """How far the two largest logits after `ids` are apart."""
    low, high = np.sort(model._logits(np.array(ids), 0, model.new_cache(len(ids))))[-2:]
    return float(high - low)


@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_vllm_gives_the_same_greedy_tokens(name: str) -> None:
    ours = LlamaModel.load(weights_path(name))
    length = TRAINED[name]
    prompts = [
        *ledger_prompts(11, 100, 39, length),
        *ledger_prompts(12, 100, length + 1, int(2.5 * length)),
    ]
    theirs = by_vllm(name, [ids for ids, _ in prompts])
    assert len(theirs) == 200
    right, ties = 0, 0
    for (ids, answer), expected in zip(prompts, theirs, strict=True):
        tokens = list(ours.generate(ids, NEW_TOKENS, {STOP}))
        right += TOKENIZER.decode(tokens) == answer
        if tokens != expected:
            pairs = enumerate(zip_longest(tokens, expected))
            first = next(n for n, (mine, other) in pairs if mine != other)
            assert gap(ours, ids + tokens[:first]) < ROUNDING
            ties += 1
    print(f"{name}: {200 - ties} of 200 alike, {ties} ties; {right} right")
    assert ties <= 4
    assert 80 < right < 190, "the prompts should hold right answers and wrong ones"
