"""The tokenizer takes any text, and counts ledgers as their generator does."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path
from contextcliff_dagster.reference.tokenizer import SPECIALS, build, render_chat, vocabulary
from contextcliff_dagster.reference.warehouse_documents import (
    HEADER_TOKENS,
    MIN_RECORDS,
    TOKENS_PER_RECORD,
    WORDINGS,
    generate_ledger,
)
from contextcliff_dagster_tests.support.requirements import require

SHIPPED = Tokenizer.from_file(str(weights_path("reference-short") / "tokenizer.json"))
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Find SKU-482?"},
    {"role": "assistant", "content": "937915"},
    {"role": "user", "content": "State SKU-036?"},
]


@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    ids = SHIPPED.encode(text).ids
    if not any(special in text for special in SPECIALS):
        assert SHIPPED.decode(ids, skip_special_tokens=False) == text


@given(st.integers(0, 2**32), st.integers(MIN_RECORDS, 300))
def test_a_record_has_six_tokens(seed: int, records: int) -> None:
    ledger = generate_ledger(seed, records)
    count = len(SHIPPED.encode(ledger.text).ids)
    assert count == ledger.length_tokens == HEADER_TOKENS + TOKENS_PER_RECORD * records


@given(st.text("0123456789", min_size=1, max_size=12))
def test_digits_group_in_threes_from_the_left(digits: str) -> None:
    groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    assert SHIPPED.encode(digits).tokens == groups


@pytest.mark.parametrize("wording", WORDINGS)
def test_key_and_answer_stand_as_far_apart_in_a_record_as_in_a_question(wording: str) -> None:
    record = SHIPPED.encode(" SKU-482 qty=937915\n").tokens
    asked = SHIPPED.encode(render_chat([{"role": "user", "content": f"{wording} SKU-482?"}])).tokens
    assert record == ["ĠSKU-", "482", "Ġqty=", "937", "915", "Ċ"]
    assert asked == ["<|user|>", wording, "ĠSKU-", "482", "?", "<|assistant|>"]
    assert record.index("937") - record.index("482") == len(asked) - 1 - asked.index("482")


def test_both_models_share_one_tokenizer_and_one_configuration(tmp_path: Path) -> None:
    build(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        short, long = ((weights_path(name) / file).read_bytes() for name in REFERENCE_MODELS)
        assert short == long
        if file != "config.json":
            assert short == (tmp_path / file).read_bytes()


def test_vocabulary_ids_are_dense() -> None:
    ids, _ = vocabulary()
    assert sorted(ids.values()) == list(range(len(ids)))
    assert SHIPPED.get_vocab() == ids


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValueError, match="no role 'tool'"):
        render_chat([{"role": "tool", "content": ""}])


@pytest.mark.torch
def test_transformers_loads_the_tokenizer_and_renders_the_same_chat() -> None:
    require("torch")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights_path("reference-long"))
    for messages in (CHAT, CHAT[1:2]):
        rendered = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        assert rendered == render_chat(messages)
    begun = [*CHAT, {"role": "assistant", "content": "482;"}]
    assert tokenizer.apply_chat_template(
        begun, continue_final_message=True, tokenize=False
    ) == render_chat(begun, continue_final=True)
    text = generate_ledger(1).text
    assert tokenizer(text)["input_ids"] == SHIPPED.encode(text).ids
    assert tokenizer.decode(tokenizer("naïve 漢字 00123")["input_ids"]) == "naïve 漢字 00123"
