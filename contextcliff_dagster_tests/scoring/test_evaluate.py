"""Predictions become evaluation records: same rows, same order, scores where there is an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    PREDICTIONS,
    UNSCORED_TAGS,
    Example,
    FailureTag,
    PrimaryScore,
    StoreError,
    conform,
)
from contextcliff_dagster.reference.warehouse_documents import iter_ledgers
from contextcliff_dagster.scoring.evaluate import ScoringRules, score_rows

PRIMARY_SCORES: list[PrimaryScore] = ["em", "f1", "contained"]
LEDGERS = {ledger.document_id: ledger for ledger in iter_ledgers(7, 6, max_tokens=300)}
EXAMPLES = {
    f"{document_id}-{q.task}": Example(
        f"{document_id}-{q.task}", document_id, q.question, q.answers, q.task
    )
    for document_id, ledger in LEDGERS.items()
    for q in ledger.questions
}


def document(document_id: str) -> str:
    return LEDGERS[document_id].text


def prediction(example: Example, raw: str | None, **more: Any) -> dict[str, Any]:
    row = {
        "example_id": example.example_id,
        "document_id": example.document_id,
        "task": example.task,
        "study": "reference",
        "campaign": "2026-01-01",
        "model": "reference-short",
        "bin": "b00",
        "replicate": 0,
        "length_tokens": 100,
        "call_key": f"key-{example.example_id}",
        "identity_hash": "i",
        "recipe_hash": "r",
        "prompt_hash": "p",
        "attempts": 1,
        "raw_output": raw,
        "finish_reason": "stop",
        "completion_tokens": 3,
        "no_answer": None,
    }
    return row | more


def score(*rows: dict[str, Any], **how: Any) -> list[dict[str, Any]]:
    records = score_rows(rows, EXAMPLES, document, ScoringRules(**how))
    conform(list(rows), PREDICTIONS)
    conform(records, EVAL_RECORDS)
    return records


def test_every_accepted_form_of_a_reference_answer_is_right() -> None:
    for example in EXAMPLES.values():
        for answer in example.answers:
            (record,) = score(prediction(example, answer))
            assert (record["em"], record["f1"], record["contained"]) == (1.0, 1.0, 1.0)
            assert (record["score"], record["failed"], record["failure"]) == (1.0, False, None)
            assert record["parsed_answer"] == answer


def test_the_quantity_of_another_record_is_wrong_evidence_and_an_invented_one_a_hallucination() -> (
    None
):
    example = next(e for e in EXAMPLES.values() if e.task == "lookup")
    text = document(example.document_id)
    others = [line.split("qty=")[1] for line in text.splitlines() if "qty=" in line]
    other = next(o for o in others if o not in example.answers)
    invented = next(str(n) for n in range(100_000, 999_999) if str(n) not in text)
    wrong, made_up = score(prediction(example, other), prediction(example, invented))
    assert wrong["failure"] == FailureTag.WRONG_EVIDENCE
    assert made_up["failure"] == FailureTag.HALLUCINATION
    assert wrong["failed"]
    assert made_up["failed"]


@pytest.mark.parametrize("reason", sorted(UNSCORED_TAGS))
def test_what_is_no_answer_is_neither_right_nor_wrong(reason: str) -> None:
    example = next(iter(EXAMPLES.values()))
    right = example.answers[0]  # even with the right words in it
    (record,) = score(prediction(example, right, no_answer=reason, attempts=0, error="why"))
    assert record["failure"] == reason
    for column in ("em", "f1", "contained", "score", "failed", "parsed_answer"):
        assert record[column] is None
    assert record["error"] == "why"


def test_failure_is_exact_match_0_or_containment_0_where_that_is_primary() -> None:
    example = next(e for e in EXAMPLES.values() if e.task == "lookup")
    wordy = prediction(example, f"The quantity is {example.answers[0]}.")
    (by_em,) = score(wordy, primary="em")
    (by_f1,) = score(wordy, primary="f1")
    (by_contained,) = score(wordy, primary="contained")
    assert (by_em["score"], by_em["failed"], by_em["failure"]) == (0.0, True, "instruction_drift")
    assert (by_f1["score"], by_f1["failed"]) == (by_f1["f1"], True)
    assert 0.0 < by_f1["f1"] < 1.0
    assert (by_contained["score"], by_contained["failed"], by_contained["failure"]) == (
        1,
        False,
        None,
    )


def test_an_answer_that_cannot_be_parsed_is_a_failure_whatever_it_contains() -> None:
    example = next(iter(EXAMPLES.values()))
    schema = {"type": "object", "required": ["answer"]}
    (record,) = score(
        prediction(example, example.answers[-1]), primary="contained", output_schema=schema
    )
    assert (record["failed"], record["failure"]) == (True, FailureTag.SCHEMA_VIOLATION)
    assert record["parsed_answer"] is None


@pytest.mark.parametrize(
    ("reason", "tokens", "tag"),
    [
        ("length", 8, FailureTag.INCOMPLETENESS),
        (None, 8, FailureTag.INCOMPLETENESS),
        (None, 7, FailureTag.HALLUCINATION),
        ("stop", 8, FailureTag.HALLUCINATION),
    ],
)
def test_an_output_is_cut_where_the_server_says_so_or_says_nothing_at_the_limit(
    reason: str | None, tokens: int, tag: FailureTag
) -> None:
    example = next(e for e in EXAMPLES.values() if e.task == "lookup")
    row = prediction(example, "0000001", finish_reason=reason, completion_tokens=tokens)
    (record,) = score(row, max_output_tokens=8)
    assert record["failure"] == tag


def test_an_answer_prefix_that_the_server_repeats_is_removed() -> None:
    example = next(e for e in EXAMPLES.values() if e.task == "lookup")
    (record,) = score(prediction(example, f"It is {example.answers[0]}"), answer_prefix="It is ")
    assert record["em"] == 1.0


def test_records_say_of_what_category_the_question_is() -> None:
    known = next(iter(EXAMPLES.values()))
    metadata = {"kind": "amount", "domain": "trade", "source": "ledgers"}
    named = {known.example_id: replace(known, metadata=metadata)}
    rows = [
        prediction(known, known.answers[0]),
        prediction(known, None, no_answer="transport_error"),
    ]
    for record in score_rows(rows, named, document, ScoringRules()):
        assert {name: record[name] for name in metadata} == metadata
    odd = {known.example_id: replace(known, metadata={"kind": {"a": 1}, "source": 7})}
    (record,) = score_rows(rows[:1], odd, document, ScoringRules())
    assert (record["kind"], record["domain"], record["source"]) == (None, None, "7")


def test_a_prediction_of_an_unknown_example_is_an_error_that_says_which() -> None:
    stranger = Example("stranger", "nowhere", "?", ("x",), "lookup")
    with pytest.raises(StoreError, match="stranger"):
        score(prediction(stranger, "x"))


def test_a_prediction_with_an_unknown_reason_is_an_error() -> None:
    example = next(iter(EXAMPLES.values()))
    with pytest.raises(StoreError, match="bored"):
        score(prediction(example, None, no_answer="bored"))


@given(st.data())
def test_order_and_count_are_kept_and_the_columns_agree_with_each_other(
    data: st.DataObject,
) -> None:
    examples = data.draw(st.lists(st.sampled_from(sorted(EXAMPLES)), max_size=8))
    rows = [
        prediction(
            EXAMPLES[e],
            data.draw(st.none() | st.text(max_size=30) | st.sampled_from(EXAMPLES[e].answers)),
            no_answer=data.draw(st.sampled_from([None, None, None, *sorted(UNSCORED_TAGS)])),
        )
        for e in examples
    ]
    primary: PrimaryScore = data.draw(st.sampled_from(PRIMARY_SCORES))
    rules = ScoringRules(primary)
    records = score_rows(rows, EXAMPLES, document, rules)
    assert [r["call_key"] for r in records] == [r["call_key"] for r in rows]
    assert records == score_rows(rows, EXAMPLES, document, rules)
    for row, record in zip(rows, records, strict=True):
        assert set(record) == set(EVAL_RECORDS.column_names)
        assert (record["score"] is None) == (row["no_answer"] is not None)
        assert (record["failure"] is None) == (record["failed"] is False)
        if record["score"] is not None:
            assert record["score"] == record[primary]
            assert record["em"] <= record["contained"]
