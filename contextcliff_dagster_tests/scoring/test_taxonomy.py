"""Every failure tag, on outputs written by hand as models give them; and the order of the tags."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import UNSCORED_TAGS, Example, FailureTag
from contextcliff_dagster.scoring.containment import Haystack, contained
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.taxonomy import tag_failure

LEDGER = """Ledger of day 217
 SKU-482 qty=937915
 SKU-036 sub=482;
 SKU-771 qty=120034
"""
STORY = (
    "Anna Karlsson was born in Uppsala in 1872, the third of five children. Her father kept the "
    "lighthouse at Grankulla. In 1899 she moved to Boston, where she met Edward Pike, a printer. "
    '"I cannot find my way home," she wrote that winter. They married in Salem on 4 May 1901. '
    "The house on Derby Street had green shutters and a garden of foxgloves."
)
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}


def tag(
    raw: str | None,
    *,
    question: str = "Where was Anna Karlsson born?",
    accepted: tuple[str, ...] = ("Uppsala",),
    document: str = STORY,
    finish_reason: str | None = "stop",
    schema: dict[str, object] | None = None,
) -> str:
    parsed = parse_answer(raw, output_schema=schema)
    return tag_failure(
        parsed,
        Example("e", "d", question, accepted, "lookup"),
        document=lambda: Haystack(document),
        finish_reason=finish_reason,
        asks_schema=schema is not None,
        holds_accepted=contained(parsed.visible, accepted) == 1.0,
    )


def ledger_tag(raw: str, finish_reason: str | None = "stop") -> str:
    return tag(
        raw,
        question="Find SKU-482?",
        accepted=("937915",),
        document=LEDGER,
        finish_reason=finish_reason,
    )


def two_hop_tag(raw: str) -> str:
    accepted = ("482; qty=937915", "qty=937915", "937915")
    return tag(raw, question="Find SKU-036?", accepted=accepted, document=LEDGER)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "",
        "   \n\n",
        "...",
        "<|end|>",
        "<think>The document says Uppsala.</think>\n",
        "\u2014\u2014",
        "\u200b\ufeff",
    ],
)
def test_empty(raw: str | None) -> None:
    assert tag(raw) == tag(raw, schema=SCHEMA) == FailureTag.EMPTY


@pytest.mark.parametrize("raw", ['{"answer": ""}', '{"answer": " ... "}'])
def test_an_empty_answer_in_good_json_is_empty(raw: str) -> None:
    assert tag(raw, schema=SCHEMA) == FailureTag.EMPTY


@pytest.mark.parametrize(
    "raw",
    [
        "Uppsala",
        '{"answer": "Uppsala"',
        '{"city": "Uppsala"}',
        '{"answer": 1872}',
        'Here is the JSON you asked for: {"answer": "Uppsala"}',
        "{'answer': 'Uppsala'}",
        "I am sorry, I cannot answer that.",
        "{}",
        "null",
    ],
)
def test_schema_violation(raw: str) -> None:
    assert tag(raw, schema=SCHEMA) == FailureTag.SCHEMA_VIOLATION


@pytest.mark.parametrize(
    "raw",
    [
        "I am sorry, but the text does not say where she was born.",
        "I'm sorry, I can't help with that.",
        "I\u2019m really sorry, but I can\u2019t determine that from the passage.",
        "Her birthplace is not mentioned in the document.",
        "I cannot find the birthplace of Anna Karlsson in the provided text.",
        "The document does not specify where she was born.",
        "There is no information about her birth in the passage.",
        "As an AI language model I do not have access to this document.",
        "Unanswerable.",
        "N/A",
        "Unknown",
        "Not found",
        "I don't know.",
        "It is impossible to say.",
    ],
)
def test_refusal(raw: str) -> None:
    assert tag(raw) == FailureTag.REFUSAL


def test_a_filtered_reply_is_a_refusal_too() -> None:
    assert tag("Anna was", finish_reason="content_filter") == FailureTag.REFUSAL


def test_a_refusal_in_json_is_a_refusal_where_it_fits_the_schema() -> None:
    assert tag('{"answer": "not mentioned"}', schema=SCHEMA) == FailureTag.REFUSAL


def test_words_of_refusal_quoted_from_the_document_are_no_refusal() -> None:
    question = "What did Anna Karlsson write about Boston?"
    raw = "I cannot find my way home"
    assert tag(raw, question=question, accepted=("that it was cold",)) != FailureTag.REFUSAL


@pytest.mark.parametrize(
    ("raw", "finish_reason"),
    [
        ("Anna Karlsson was born in", "stop"),
        ("She was born in the", "stop"),
        ("Boston, Massachusetts", "length"),
        ("Boston,", "stop"),
        ("Born (according to her letters", "stop"),
        ("Her father kept the lighthouse, and", None),
        ("<think>The passage mentions Uppsala, Boston and", "length"),
        ("Boston Boston Boston Boston Boston", "max_tokens"),
    ],
)
def test_incompleteness(raw: str, finish_reason: str | None) -> None:
    assert tag(raw, finish_reason=finish_reason) == FailureTag.INCOMPLETENESS


@pytest.mark.parametrize("raw", ["qty=", "SKU-", "SKU-482 qty="])
def test_a_record_begun_and_not_ended_is_incomplete(raw: str) -> None:
    assert ledger_tag(raw) == FailureTag.INCOMPLETENESS


@pytest.mark.parametrize("raw", ["482", "482;"])
def test_the_first_of_two_steps_alone_is_incomplete(raw: str) -> None:
    assert two_hop_tag(raw) == FailureTag.INCOMPLETENESS


@pytest.mark.parametrize(
    "raw",
    [
        # the answer, in another form than asked
        "Anna Karlsson was born in Uppsala.",
        "Uppsala, Sweden",
        # a summary of the end instead of an answer
        "The passage describes a house on Derby Street with green shutters and a garden of "
        "foxgloves where the couple lived for many years after they had been married.",
        # about something else
        "The lighthouse stands on a rocky shore.",
        "Here is a haiku on winter evenings.",
        # repeats the instructions
        "You asked me a question. I will now read what you gave me carefully, think step by step, "
        "and reply with the value only as requested.",
    ],
)
def test_instruction_drift(raw: str) -> None:
    assert tag(raw) == FailureTag.INSTRUCTION_DRIFT


@pytest.mark.parametrize(
    "raw",
    ["Boston", "Salem", "Grankulla.", "Derby Street", "1872", "She was born in Salem in 1901."],
)
def test_wrong_evidence(raw: str) -> None:
    assert tag(raw) == FailureTag.WRONG_EVIDENCE


@pytest.mark.parametrize("raw", ["120034", "SKU-771", "qty=120034", "SKU-771 qty=120034", "771"])
def test_a_value_of_another_record_is_wrong_evidence(raw: str) -> None:
    assert ledger_tag(raw) == FailureTag.WRONG_EVIDENCE


@pytest.mark.parametrize(
    "raw",
    [
        "Paris",
        "Stockholm, Sweden",
        "She was born in Gothenburg.",
        "1873",
        "Uppsalaby",
        "\u6771\u4eac",
    ],
)
def test_hallucination(raw: str) -> None:
    assert tag(raw) == FailureTag.HALLUCINATION


@pytest.mark.parametrize("raw", ["937914", "93791", "SKU-482 qty=120035", "qty=555555"])
def test_a_value_of_no_record_is_a_hallucination(raw: str) -> None:
    assert ledger_tag(raw) == FailureTag.HALLUCINATION


@pytest.mark.parametrize(
    ("raw", "finish_reason", "schema", "first"),
    [
        ("", "length", SCHEMA, FailureTag.EMPTY),
        ("I am sorry, I cannot", "length", SCHEMA, FailureTag.SCHEMA_VIOLATION),
        ("I am sorry, I cannot", "length", None, FailureTag.REFUSAL),
        ("The lighthouse stands on a rocky shore and", "length", None, FailureTag.INCOMPLETENESS),
        ("green shutters and a garden of foxgloves", "stop", None, FailureTag.INSTRUCTION_DRIFT),
        ("green shutters", "stop", None, FailureTag.WRONG_EVIDENCE),
    ],
)
def test_the_first_tag_that_fits_is_given(
    raw: str, finish_reason: str, schema: dict[str, object] | None, first: FailureTag
) -> None:
    assert tag(raw, finish_reason=finish_reason, schema=schema) == first


def test_the_document_is_read_only_where_the_tag_depends_on_it() -> None:
    def unread() -> Haystack:
        raise AssertionError("the document was read")

    for raw, reason in [("", "stop"), ("Boston", "length"), ("Unknown.", "stop")]:
        parsed = parse_answer(raw)
        example = Example("e", "d", "Where?", ("x",), "lookup")
        tag_failure(parsed, example, document=unread, finish_reason=reason)


@given(st.text(max_size=200), st.text(max_size=40), st.lists(st.text(max_size=20), max_size=3))
def test_any_failed_output_has_one_of_the_answer_tags(
    raw: str, question: str, accepted: list[str]
) -> None:
    found = tag(raw, question=question, accepted=tuple(accepted))
    assert found not in UNSCORED_TAGS
    wrapped = json.dumps({"answer": raw})
    assert tag(wrapped, question=question, accepted=tuple(accepted), schema=SCHEMA) in {
        *set(FailureTag) - UNSCORED_TAGS - {FailureTag.SCHEMA_VIOLATION}
    }


@pytest.mark.parametrize("part", ["x" * 6, "word ", "( ", "not ", "1" * 2])
def test_a_huge_output_is_tagged(part: str) -> None:
    assert tag(part * 500_000) in set(FailureTag) - UNSCORED_TAGS
