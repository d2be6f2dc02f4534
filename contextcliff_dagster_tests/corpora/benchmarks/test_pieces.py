"""Where an answer is in the pieces of a document."""

from __future__ import annotations

import pytest

from contextcliff_dagster.corpora.benchmarks.item import answer_place


@pytest.mark.parametrize(
    ("text", "answer", "place"),
    [
        ("It is known that no one came.", "no", 17),
        ("It is known.", "no", 0),
        ("It cost US$5 then.", "$5", 10),
        ("It cost $55, or $5.", "$5", 16),
        ("\u5317\u4eac\u662f\u9996\u90fd", "\u9996\u90fd", 3),
        ("", "x", 0),
        ("anything", "", 0),
    ],
)
def test_an_answer_stands_by_itself(text: str, answer: str, place: int) -> None:
    assert answer_place(text, [(0, len(text))], [answer]) == place


def test_without_evidence_there_is_no_place() -> None:
    assert answer_place("no", [], ["no"]) is None
