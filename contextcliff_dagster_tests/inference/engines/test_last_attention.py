"""Where the last token attends: shares that are shares, and what whole eager attention gives."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contextcliff_dagster.inference.engines.attention import (
    SINK_TOKENS,
    LastAttention,
    evidence_tokens,
    read_prompt,
)
from contextcliff_dagster.inference.engines.base import Decoding, Engine
from contextcliff_dagster.inference.engines.reference import ReferenceEngine
from contextcliff_dagster.inference.engines.transformers import TransformersEngine
from contextcliff_dagster.inference.execution.single_request import Answer, ask
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, SharedText
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.support.records.calls import LedgerSample, reference_entry

Shares = dict[str, Any]
LENGTHS = (150, 600, 2_500)


def shares_of(rows: list[NDArray[np.float64]], held: NDArray[np.bool_] | None) -> Shares:
    """The definition, a head at a time, of weights over the whole prompt."""
    shown: Shares = {"entropy": [], "sinks": [], "evidence": []}
    for layer in rows:
        n = layer.shape[1]
        nats = [sum(-p * np.log(p) for p in head if p > 0) for head in layer]
        shown["entropy"].append([one / np.log(n) for one in nats])
        shown["sinks"].append([sum(h[:4]) for h in layer])
        if held is not None:
            shown["evidence"].append([sum(h[i] for i in range(4, n) if held[i]) for h in layer])
    return shown if held is not None else {**shown, "evidence": None}


def close(shown: Shares, expected: Shares) -> None:
    for name, values in expected.items():
        if values is None:
            assert shown[name] is None
        else:
            np.testing.assert_allclose(shown[name], values, atol=1e-4)


@given(st.integers(2, 40), st.integers(1, 3), st.data())
def test_shares_are_shares_and_entropy_is_one_for_even_attention(
    tokens: int, heads: int, data: st.DataObject
) -> None:
    weight = st.floats(0, 1e6, allow_subnormal=False)
    row = st.lists(weight, min_size=tokens, max_size=tokens).filter(lambda w: sum(w) > 1e-6)
    weights = np.array(data.draw(st.lists(row, min_size=heads, max_size=heads)))
    held = np.array(data.draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens)))
    on, off = LastAttention(tokens, held), LastAttention(tokens, ~held)
    for layer in (weights, np.full((heads, tokens), 7.0)):
        on.add(layer)
        off.add(layer)
    shown, rest = json.loads(on.to_json()), json.loads(off.to_json())
    entropy, sinks = np.array(shown["entropy"]), np.array(shown["sinks"])
    assert entropy.min() >= 0
    assert entropy.max() <= 1
    np.testing.assert_allclose(entropy[1], 1, atol=1e-6)
    np.testing.assert_allclose(sinks[1], min(1, SINK_TOKENS / tokens), atol=1e-6)
    whole = sinks + np.array(shown["evidence"]) + np.array(rest["evidence"])
    np.testing.assert_allclose(whole, 1, atol=1e-5)


def test_a_head_that_looks_at_one_token_has_no_entropy_and_its_place_decides_the_share() -> None:
    held = np.zeros(50, np.bool_)
    held[[2, 20]] = True
    seen = LastAttention(50, held)
    for place in (0, 2, 20, 30):
        seen.add(np.eye(50)[[place]])
    shown = json.loads(seen.to_json())
    assert shown["entropy"] == [[0.0]] * 4
    assert shown["sinks"] == [[1.0], [1.0], [0.0], [0.0]]
    assert shown["evidence"] == [[0.0], [0.0], [1.0], [0.0]]


def test_a_window_s_weights_are_those_of_the_last_tokens() -> None:
    held = np.arange(10) >= 8
    whole, window = LastAttention(10, held), LastAttention(10, held)
    weights = np.array([[0.0, 0, 0, 1, 1, 1, 1, 1, 2, 3]])
    whole.add(weights)
    window.add(weights[:, 3:])
    assert window.to_json() == whole.to_json()


@given(st.text(min_size=3, max_size=60), st.data())
def test_tokens_of_the_evidence_are_those_that_touch_it(text: str, data: st.DataObject) -> None:
    place = st.integers(0, len(text))
    pairs = st.tuples(place, place).filter(lambda pair: pair[0] < pair[1])
    spans = tuple(data.draw(st.lists(pairs, max_size=4)))
    prompt = replace(Recipe().render(SharedText(text), "Why?"), evidence=spans)

    def render(one: Prompt) -> str:
        return f"<user>{one.messages[0].content}<end>"

    whole = render(prompt)
    ends = [len("<user>") + place for span in spans for place in span]
    drawn = data.draw(st.lists(st.integers(0, len(whole)), max_size=30))
    cuts = sorted({0, len(whole), *ends, *drawn})
    offsets = list(pairwise(cuts))
    held = evidence_tokens(prompt, render, offsets)
    wanted = {len("<user>") + i for a, b in spans for i in range(a, b)}
    touched = [bool(wanted & set(range(a, b))) for a, b in offsets]
    assert (held is None) == (not wanted)
    assert held is None or held.tolist() == touched
    assert evidence_tokens(prompt, lambda one: render(one).replace(text, ""), offsets) is None


def prompts() -> list[Prompt]:
    """Of each length one with its evidence known, and one without, in several modes."""
    asked = []
    for tokens in LENGTHS:
        sample = LedgerSample(1, 1, max_tokens=tokens)
        (one,) = sample.planned("b00", 1)
        text = sample.document_text(one.example.document_id)
        at = text.index(one.example.answers[0])
        for recipe in (
            Recipe(template="{document}{question}"),
            Recipe("completion", template="{document}{question}"),
        ):
            plain = recipe.render(SharedText(text), one.example.question)
            asked += [plain, replace(plain, evidence=((at - 9, at + 3), (0, 12)))]
    return asked


def answers(engine: Any, asked: list[Prompt]) -> list[Answer]:
    async def main(engine: Engine) -> list[Answer]:
        await engine.start()
        try:
            shown = [await ask(engine, prompt, Decoding(4, attention=True)) for prompt in asked]
            plain = [await ask(engine, prompt, Decoding(4)) for prompt in asked]
        finally:
            await engine.stop()
        assert [one.text for one in shown] == [one.text for one in plain]
        assert not any("attention" in one.extra for one in plain)
        return shown

    return asyncio.run(main(engine))


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_both_engines_show_what_whole_eager_attention_gives() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    weights = str(weights_path("reference-short"))
    through_torch = ModelEntry.model_validate(
        {"name": "t", "engine": "transformers", "weights": weights, "dtype": "float32"}
    )
    asked = prompts()
    engine = ReferenceEngine(reference_entry())
    ours = answers(engine, asked)
    theirs = answers(TransformersEngine(through_torch), asked)
    asyncio.run(engine.start())
    model = AutoModelForCausalLM.from_pretrained(
        weights, dtype=torch.float32, attn_implementation="eager"
    )
    for prompt, one, other in zip(asked, ours, theirs, strict=True):
        ids = engine.encode(prompt)
        with torch.inference_mode():
            layers = model(torch.tensor([ids]), output_attentions=True).attentions
        rows = [layer[0, :, -1].double().numpy() for layer in layers]
        held = None
        if prompt.evidence:
            held = evidence_tokens(
                prompt, lambda p: render_of(engine, p), engine._encoding(prompt).offsets
            )
            assert held is not None
            # The first twelve characters and the line's end, three digits a token at most.
            assert 4 < held.sum() < 24
        for answer in (one, other):
            close(json.loads(str(answer.extra["attention"])), shares_of(rows, held))
    asyncio.run(engine.stop())


def render_of(engine: ReferenceEngine, prompt: Prompt) -> str:
    assert engine._tokenizer is not None
    return str(engine._tokenizer.decode(engine.encode(prompt), skip_special_tokens=False))


SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.6,
    "attn_implementation": "sdpa",
}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Qwen2", {}),
        ("Llama", {"attention_bias": True}),
        ("Mistral", {"sliding_window": 24}),
        (
            "Gemma2",  # knows eager attention alone
            {
                "sliding_window": 24,
                "attn_logit_softcapping": 3.0,
                "attn_implementation": "eager",
            },
        ),
        ("Gemma3Text", {"sliding_window": 24}),
    ],
)
@pytest.mark.parametrize("tokens", [1, 23, 24, 25, 200])
def test_biases_windows_and_caps_are_the_architecture_s_own(
    kind: str, options: dict[str, Any], tokens: int
) -> None:
    import torch
    import transformers

    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **options})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(1, 97, (tokens,)).tolist()
    held = np.arange(tokens) % 7 == 5
    seen = LastAttention(tokens, held)
    cache = transformers.DynamicCache(config=config)
    logits = read_prompt(model, ids, cache, seen)
    assert config._attn_implementation == options.get("attn_implementation", "sdpa")
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        whole = model(torch.tensor([ids]), output_attentions=True)
    torch.testing.assert_close(logits[:, -1], whole.logits[:, -1], atol=1e-4, rtol=1e-4)
    shown = json.loads(seen.to_json())
    if tokens == 1:
        assert shown["sinks"] == [[1.0] * 4] * 4
        return
    rows = [layer[0, :, -1].double().numpy() for layer in whole.attentions]
    if "sliding_window" in options and tokens > 24:
        assert min((row > 0).sum(axis=1).max() for row in rows) == 24
    close(shown, shares_of(rows, held))


@pytest.mark.torch
def test_a_hybrid_shows_its_layers_that_attend() -> None:
    import torch
    import transformers

    torch.manual_seed(1)
    kinds = ["conv", "full_attention", "conv", "full_attention"]
    config = transformers.Lfm2Config(
        **{**SMALL, "layer_types": kinds, "block_ff_dim": 48, "block_auto_adjust_ff_dim": False}
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(1, 97, (60,)).tolist()
    seen = LastAttention(60)
    read_prompt(model, ids, transformers.DynamicCache(config=config), seen)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        whole = model(torch.tensor([ids]), output_attentions=True).attentions
    shown = json.loads(seen.to_json())
    assert [len(layer) for layer in shown["entropy"]] == [4, 4, 0, 0]
    own = {**shown, "entropy": shown["entropy"][:2], "sinks": shown["sinks"][:2]}
    close(own, shares_of([layer[0, :, -1].double().numpy() for layer in whole], None))


def test_layers_may_have_different_heads() -> None:
    seen = LastAttention(5, np.arange(5) == 4)
    for heads in (2, 3):
        seen.add(np.eye(5)[-heads:])
    seen.add(None)
    assert json.loads(seen.to_json())["evidence"] == [[0.0, 1.0], [0.0, 0.0, 1.0], []]
