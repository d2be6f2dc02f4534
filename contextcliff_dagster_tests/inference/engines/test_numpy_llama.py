"""The NumPy runtime gives the tokens that transformers gives, right answers and wrong ones."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from contextcliff_dagster.inference.engines.reference import LlamaModel
from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path
from contextcliff_dagster.reference.tokenizer import END, render_chat
from contextcliff_dagster.reference.warehouse_documents import iter_ledgers
from contextcliff_dagster_tests.support.requirements import require

TOKENIZER = Tokenizer.from_file(str(weights_path("reference-short") / "tokenizer.json"))
STOP = TOKENIZER.token_to_id(END)
TRAINED = {"reference-short": 256, "reference-long": 1_024}


def ledger_prompts(seed: int, n: int, low: int, high: int) -> Iterator[tuple[list[int], str]]:
    """Prompt ids and the expected answer; every second question is of level 2."""
    for index, ledger in enumerate(iter_ledgers(seed, n, low, high)):
        question = ledger.questions[index % 2]
        content = ledger.text + question.question
        prompt = render_chat([{"role": "user", "content": content}])
        yield TOKENIZER.encode(prompt).ids, question.answers[0]


@pytest.fixture(scope="module")
def short() -> LlamaModel:
    return LlamaModel.load(weights_path("reference-short"))


def test_it_answers_within_the_training_length(short: LlamaModel) -> None:
    right = [
        TOKENIZER.decode(list(short.generate(ids, 12, {STOP}))) == answer
        for ids, answer in ledger_prompts(1, 40, 39, 200)
    ]
    assert sum(right) >= 34


def test_tokens_stream_one_by_one_and_stop(short: LlamaModel) -> None:
    ids, _ = next(ledger_prompts(2, 1, 60, 120))
    whole = list(short.generate(ids, 12, {STOP}))
    stream = short.generate(ids, 12, {STOP})
    assert next(stream) == whole[0]
    assert list(stream) == whole[1:]
    assert list(short.generate(ids, 2, {STOP})) == whole[:2]
    assert list(short.generate(ids, 12, {whole[1]})) == whole[:1]
    assert list(short.generate(ids, 0, {STOP})) == []


def test_the_cache_gives_what_a_fresh_start_gives(short: LlamaModel) -> None:
    ids, _ = next(ledger_prompts(3, 1, 300, 500))
    stepwise = list(short.generate(ids, 6, set()))
    for _ in range(6):
        ids = [*ids, next(short.generate(ids, 1, set()))]
    assert ids[-6:] == stepwise


def test_threads_share_one_model(short: LlamaModel) -> None:
    prompts = [ids for ids, _ in ledger_prompts(4, 8, 100, 600)]
    alone = [list(short.generate(ids, 8, {STOP})) for ids in prompts]
    together: dict[int, list[int]] = {}

    def work(index: int) -> None:
        together[index] = list(short.generate(prompts[index], 8, {STOP}))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[index] for index in range(8)] == alone


def test_a_prompt_that_the_window_cannot_hold_is_refused_not_cut(short: LlamaModel) -> None:
    window = short.config.window
    with pytest.raises(ValueError, match=f"{window} tokens; the model's window is {window}"):
        short.generate([5] * window, 1, {STOP})
    with pytest.raises(ValueError, match="empty"):
        short.generate([], 1, {STOP})
    with pytest.raises(ValueError, match="Token ids run from 0"):
        short.generate([short.config.vocab_size], 1, {STOP})


def test_generation_ends_at_the_end_of_the_window(tmp_path: Path) -> None:
    model = _resized(tmp_path, max_position_embeddings=12)
    assert len(list(model.generate([5] * 10, 50, set()))) == 2


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a plain Llama"):
        _resized(tmp_path, model_type="qwen3")


def _resized(folder: Path, **changes: Any) -> LlamaModel:
    source = weights_path("reference-short")
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    (folder / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    return LlamaModel.load(folder)


@pytest.mark.torch
@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_greedy_tokens_are_those_of_transformers(name: str) -> None:
    require("torch")
    import torch
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(weights_path(name), dtype=torch.float32).eval()
    ours = LlamaModel.load(weights_path(name))
    length = TRAINED[name]
    prompts = [
        *ledger_prompts(11, 15, 39, length),
        *ledger_prompts(12, 15, length + 1, int(2.5 * length)),
    ]
    right = 0
    for ids, answer in prompts:
        tokens = list(ours.generate(ids, 12, {STOP}))
        expected = theirs.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=12,
            do_sample=False,
        )[0, len(ids) :].tolist()
        assert tokens == (expected[:-1] if expected[-1] == STOP else expected)
        right += TOKENIZER.decode(tokens) == answer
    assert 12 < right < 28, "the prompts should hold right answers and wrong ones"


@pytest.mark.torch
@pytest.mark.parametrize("tied", [True, False])
def test_grouped_queries_and_untied_heads(tied: bool, tmp_path: Path) -> None:
    require("torch")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1_024,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    theirs = LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = LlamaModel.load(tmp_path)
    rng = np.random.default_rng(0)
    for length in (1, 7, 128, 129, 400):
        ids = rng.integers(0, 300, length).tolist()
        expected = theirs.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, length, dtype=torch.long),
            max_new_tokens=8,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )[0, length:].tolist()
        assert list(ours.generate(ids, 8, set())) == expected
