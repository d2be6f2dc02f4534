"""Replies to numbers and values, and these to scores, margins and failure tags."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example, conform
from contextcliff_dagster.extensions.utilization.extraction import extract_answer, identifiers_in
from contextcliff_dagster.extensions.utilization.scoring import OF_DOCUMENT, score_rows
from contextcliff_dagster.extensions.utilization.tables import UTILIZATION_RECORDS

COLORS = ("red", "blue", "green")
WAREHOUSES = ("WH-0007", "WH-0042")


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("57", 57),
        ("57.", 57),
        ("  **57** ", 57),
        ("`57` units", 57),
        ("57.0", 57),
        ("57.5", 57.5),
        ("-3", -3),
        ("\u22123", -3),
        ("-0", 0),
        ("+4", 4),
        ("1,234", 1234),
        ("1 234 567", 1234567),
        ("1'234", 1234),
        ("12_345", 12345),
        ("Answer: 57", 57),
        ("**Answer:** 57", 57),
        ("**Answer: 57**", 57),
        ("100 - 43 = 57\nAnswer: 57", 57),
        ("Answer: 12\nNo, that misses a sale.\nFinal answer: 57", 57),
        ("Warehouse 42 (WH-0042) has 57 units of SKU-0017.", 57),
        ("At 12:00:00 on January 1st, 2024, Warehouse 42 sold 3 units.", 3),
        ("On 2024-01-01 12:00:00 it was 3.", 3),
        ("57 (fifty-seven), so 57", 57),
        ("zero", 0),
        ("Twelve.", 12),
        ("The weight from Node 3 to Node 4 is 9", 9),
        ("12 or 13", None),
        ("100 - 43 = 57", None),
        ("fifty-seven", None),
        ("I cannot tell.", None),
        ("", None),
        ("WH-0042", None),
        ("Answer:", None),
    ],
)
def test_the_one_number_of_a_reply(reply: str, number: float | None) -> None:
    answer = extract_answer(reply, "number").answer
    assert (answer if answer is None else float(answer)) == number


@given(
    st.integers(-(10**9), 10**9), st.sampled_from(["{}", "**{}**", "It is {}.", "a\nAnswer: {}"])
)
def test_every_number_is_read_as_it_is_written(number: int, around: str) -> None:
    for written in (str(number), f"{number:,}"):
        assert extract_answer(around.format(written), "number").answer == str(number)


@given(st.text(max_size=80))
def test_any_reply_can_be_read(reply: str) -> None:
    for form, choices in (("number", ()), ("value", COLORS), ("value", WAREHOUSES)):
        found = extract_answer(reply, form, choices)  # type: ignore[arg-type]
        assert (found.answer is None) == (found.problem is not None)


@pytest.mark.parametrize(
    ("reply", "choices", "answer"),
    [
        ("Blue", COLORS, "blue"),
        ("The color of Entity 42 is *blue*.", COLORS, "blue"),
        ("Not red but blue", COLORS, None),
        ("bluegreen", COLORS, None),
        ("7", ("1", "7", "8"), "7"),
        ("Entity 42 has a rating of 7.", ("1", "7", "8"), "7"),
        ("WH-0042", WAREHOUSES, "WH-0042"),
        ("wh-42", WAREHOUSES, "WH-0042"),
        ("SKU-0007 ends in Warehouse 42 (WH-0042).", WAREHOUSES, "WH-0042"),
        ("From Warehouse 7 to Warehouse 42", WAREHOUSES, None),
        ("Warehouse 7, Warehouse 9\nAnswer: Warehouse 42", WAREHOUSES, "WH-0042"),
        ("42", WAREHOUSES, None),
    ],
)
def test_the_one_value_of_a_reply(reply: str, choices: tuple[str, ...], answer: str | None) -> None:
    assert extract_answer(reply, "value", choices).answer == answer


def test_both_forms_of_an_identifier_are_one() -> None:
    assert identifiers_in("Entity 3 is E-0003") == ["E-0003", "E-0003"]
    assert identifiers_in("N-12345") == ["N-12345"]


def example(form: str = "number", answer: str = "57", choices: tuple[str, ...] = ()) -> Example:
    values: dict[str, Any] = dict.fromkeys(OF_DOCUMENT, "x")
    values |= dict.fromkeys(("scale_tokens", "seed", "records", "needed", "hops"), 3)
    metadata = {**values, "form": form, "choices": choices}
    return Example("e", "d", "How many?", (answer,), "lookup", metadata)


def scored(raw: str | None, of: Example | None = None, **row: Any) -> dict[str, Any]:
    whole = {
        **dict.fromkeys(("document_id", "task", "study", "campaign", "model", "bin"), "x"),
        **dict.fromkeys(("call_key", "identity_hash", "recipe_hash", "prompt_hash"), "x"),
        **dict.fromkeys(("replicate", "length_tokens", "attempts"), 1),
        "example_id": "e",
        "raw_output": raw,
        "no_answer": None,
        **row,
    }
    text = "WH-0042 sold 12 units and 5 more, in blue boxes."
    (record,) = score_rows([whole], {"e": of or example()}, lambda _: text)
    conform([record], UTILIZATION_RECORDS)
    return record


@pytest.mark.parametrize(
    ("raw", "tag"),
    [
        ("57", None),
        ("<think>12, 13</think>57", None),
        ("12", "wrong_evidence"),
        ("58", "hallucination"),
        ("12 or 57", "instruction_drift"),
        ("It is many.", "instruction_drift"),
        ("", "empty"),
        ("<think>57", "incompleteness"),
        ("I cannot find this.", "refusal"),
        ("unknown", "refusal"),
    ],
)
def test_a_wrong_answer_has_the_tag_of_the_house(raw: str, tag: str | None) -> None:
    record = scored(raw)
    assert record["failure"] == tag
    assert record["score"] == record["em"] == float(tag is None)
    assert record["failed"] == (tag is not None)


def test_a_reply_that_was_cut_is_incomplete() -> None:
    assert scored("12 and 13 and", finish_reason="length")["failure"] == "incompleteness"


def test_how_far_off_a_number_is() -> None:
    record = scored("60")
    assert record["margin_abs"] == 3
    assert record["margin_rel"] == pytest.approx(3 / 57)
    assert scored("57")["margin_abs"] == scored("57")["margin_rel"] == 0
    assert scored("2", example(answer="0"))["margin_rel"] == 2
    assert scored("12 or 13")["margin_abs"] is None
    assert scored("red", example("value", "blue", COLORS))["margin_abs"] is None


def test_a_value_is_evidence_where_the_document_states_it() -> None:
    of = example("value", "red", COLORS)
    assert scored("red", of)["score"] == 1
    assert scored("blue", of)["failure"] == "wrong_evidence"
    assert scored("green", of)["failure"] == "hallucination"
    chain = example("value", "WH-0007", WAREHOUSES)
    assert scored("Warehouse 42", chain)["failure"] == "wrong_evidence"


def test_the_reasons_are_kept_apart_from_the_answer() -> None:
    record = scored("100 less 43 is 57.\nAnswer: 57")
    assert record["thought"] == "100 less 43 is 57."
    assert record["score"] == 1


@pytest.mark.parametrize("tag", ["context_overflow", "transport_error", "invalid_truncated"])
def test_what_is_no_answer_is_neither_right_nor_wrong(tag: str) -> None:
    record = scored(None, no_answer=tag)
    assert record["failure"] == tag
    assert [record.get(name) for name in ("score", "failed", "margin_abs")] == [None] * 3
