"""The parser removes what is not the answer, and nothing else."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.scoring.parse import parse_answer

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "line": {"type": "integer"}},
    "required": ["answer"],
}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("937915", "937915"),
        ("  937915\n", "937915"),
        ("937915<|end|>", "937915"),
        ("937915</s><|im_end|> ", "937915"),
        ("Answer: 937915", "937915"),
        ("**Final answer:** 937915", "937915"),
        ('"the red house"', "the red house"),
        ("**937915**", "937915"),
        ("```\n937915\n```", "937915"),
        ("<think>SKU-482, so ...</think>\n\n937915", "937915"),
        ("<think>one</think><THINK>two</THINK>937915", "937915"),
        ("The record says 111 first.\n</think>\n\n937915", "937915"),
        ("[THINK]111[/THINK]937915", "937915"),
        ("<seed:think>111</seed:think>937915", "937915"),
        ("<|begin_of_thought|>111<|end_of_thought|><|begin_of_solution|>937915", "937915"),
        (
            "<|channel|>analysis<|message|>111<|end|><|start|>assistant"
            "<|channel|>final<|message|>937915<|return|>",
            "937915",
        ),
        ("analysisThe user wants 111.assistantfinal937915", "937915"),
        ('"a" or "b"', '"a" or "b"'),
        ("The answer is 937915.", "The answer is 937915."),
        ("\u6771\u4eac", "\u6771\u4eac"),
        ("+", "+"),
        ("*", "*"),
    ],
)
def test_the_answer_is_taken_out(raw: str, text: str) -> None:
    parsed = parse_answer(raw)
    assert (parsed.text, parsed.error) == (text, None)


@pytest.mark.parametrize(
    "raw", [None, "", " \n\t", "...", "<|end|>", "<think>hm</think>", "Answer:", "\u2014", "\x00"]
)
def test_where_there_is_no_answer_the_parser_says_why(raw: str | None) -> None:
    parsed = parse_answer(raw)
    assert parsed.text is None
    assert parsed.error


def test_reasoning_that_never_ends_is_no_answer() -> None:
    parsed = parse_answer("<think>The record of SKU-482 says 937915, but")
    assert parsed.text is None
    assert parsed.error is not None
    assert "reasoning" in parsed.error


def test_a_prefix_that_the_server_repeats_is_removed_once() -> None:
    assert parse_answer("qty=937915", answer_prefix="qty=").text == "937915"
    assert parse_answer("937915", answer_prefix="qty=").text == "937915"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('{"answer": "937915"}', "937915"),
        ('```json\n{"answer": "937915", "line": 3}\n```', "937915"),
        ('<think>...</think>{"answer": "x"}<|end|>', "x"),
    ],
)
def test_with_a_schema_the_answer_is_the_value_of_its_key(raw: str, text: str) -> None:
    assert parse_answer(raw, output_schema=SCHEMA).text == text


def test_without_an_answer_key_it_is_the_only_required_one_or_the_whole() -> None:
    one = {"type": "object", "required": ["qty"]}
    assert parse_answer('{"qty": 5, "sku": 1}', output_schema=one).text == "5"
    two = {"type": "object", "required": ["qty", "sku"]}
    assert parse_answer('{"sku": 1, "qty": 5}', output_schema=two).text == '{"qty": 5, "sku": 1}'


@pytest.mark.parametrize(
    "raw",
    [
        "937915",
        '{"answer": "937915"',
        'Sure! {"answer": "937915"}',
        '{"answer": 937915}',
        '{"quantity": "937915"}',
        '["937915"]',
        "NaN",
        "[" * 100_000,
        "9" * 10_000,
    ],
)
def test_what_does_not_fit_the_schema_is_a_parse_failure(raw: str) -> None:
    parsed = parse_answer(raw, output_schema=SCHEMA)
    assert parsed.text is None
    assert parsed.error


def test_a_broken_schema_is_the_studys_fault() -> None:
    with pytest.raises(StudyError, match="output_schema"):
        parse_answer("{}", output_schema={"type": "no such type"})


@given(st.text())
def test_any_text_is_parsed(raw: str) -> None:
    parsed = parse_answer(raw)
    assert (parsed.text is None) == (parsed.error is not None)
    if parsed.text is not None:
        assert parsed.text in raw or "<" in raw


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ]{0,30}[A-Za-z0-9]", fullmatch=True))
def test_a_plain_answer_is_left_alone_bare_and_in_json(answer: str) -> None:
    assert parse_answer(answer).text == answer
    assert parse_answer(json.dumps({"answer": answer}), output_schema=SCHEMA).text == answer


@pytest.mark.parametrize(
    "part",
    ["<think>", "</think> a ", "</s>", "``` ", "x" * 10, " " * 10],
    ids=["open-thoughts", "ends-of-thoughts", "end-markers", "fences", "letters", "spaces"],
)
def test_a_huge_output_is_parsed_in_linear_time(part: str) -> None:
    started = time.process_time()
    parse_answer(part * 300_000)
    assert time.process_time() - started < 5.0
