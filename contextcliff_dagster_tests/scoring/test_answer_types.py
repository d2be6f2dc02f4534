"""What kind of answers a study has, and the count that shows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.scoring.typed import (
    INSTRUCTIONS,
    NAMED_AND_SCORED,
    AnswerType,
    study_type,
)

TEXT = "The red barn by the old mill was sold to Ada Byron in spring. " * 3
ANSWERS: dict[AnswerType, list[str]] = {
    "choice": ["A", "B", "C"],
    "yes_no": ["yes", "no"],
    "number": ["EUR 1,250", "17", "3.5 km"],
    "date": ["3 March 2024", "2021-05-06"],
    "list": ["pears; plums; apples", "oats; barley"],
    "label": ["approved", "refused"],
    "span": ["red barn", "old mill", "Ada Byron", "spring", "barn", "mill", "sold", "by", "the",
             "was", "in", "to", "Ada"],
    "free": [f"Because of reason {word}, they left" for word in "abcdefghijklmn"],
}  # fmt: skip


def examples(answers: list[str]) -> list[Example]:
    return [Example(str(i), "d", "Q?", (answer,), "qa") for i, answer in enumerate(answers)]


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_type_comes_with_the_count_that_shows_it(kind: AnswerType) -> None:
    found = study_type(examples(ANSWERS[kind] * 4), lambda _: TEXT)
    n = 4 * len(ANSWERS[kind])
    looked_up = f"{n if kind == 'span' else 0} of {n} stand in the documents word for word"
    assert found.kind == kind
    assert found.why == {"label": f"2 in {n}", "span": looked_up, "free": looked_up}.get(
        kind, f"{n} of {n}"
    )


@given(numbers=st.integers(1, 300), others=st.integers(0, 300))
def test_numbers_are_asked_for_where_nearly_all_answers_are(numbers: int, others: int) -> None:
    answers = [str(n) for n in range(numbers)] + [f"word{n}" for n in "x" * others]
    found = study_type(examples(answers), lambda _: "")
    assert (found.kind == "number") == (numbers >= 0.95 * (numbers + others))
    if found.kind == "number":
        assert found.why == f"{numbers} of {numbers + others}"


def test_every_type_has_its_instruction_and_its_name() -> None:
    assert set(NAMED_AND_SCORED) == set(INSTRUCTIONS) == set(ANSWERS)
