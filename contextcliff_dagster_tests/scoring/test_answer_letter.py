"""The scorer of multiple choice."""

from __future__ import annotations

from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.corpora.benchmarks.answers import choice_answers
from contextcliff_dagster.scoring.answer_letter import chosen_letter
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.scorers import Scores, open_scorer

OPTIONS = ("Rome", "Paris", "the old town of Bern", "a small island")


def score(raw: str, right: int = 1) -> Scores:
    return open_scorer("choice")(parse_answer(raw), choice_answers(OPTIONS, right))


@pytest.mark.parametrize(
    "raw",
    [
        "B", "b", "(B)", "b.", " **B** ", "B. Paris", "B) Paris", "(B) Paris", "B: Paris", "Paris",
        "paris.", "The answer is B", "The answer is B because of the river.", "Answer: B",
        "Answer: (B) Paris", "The correct option is **B**.", "I choose B.", "the best choice is B!",
        "It might be A, but the answer is B.", "Option B", "B\nParis is named in the text.",
        "$\\boxed{B}$", "B - Paris", "The right answer would be option B, Paris.",
    ],
)  # fmt: skip
def test_a_choice_is_read_however_it_is_said(raw: str) -> None:
    assert score(raw) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "raw",
    [
        "A", "C) the old town of Bern", "The answer is C. Paris is only mentioned.", "A or B",
        "Answer: A, B", "The answer is B or C.", "Both A and B", "None of these", "", "Z",
        "(A) Rome", "Answer: C (not B)",
    ],
)  # fmt: skip
def test_another_choice_or_two_are_wrong(raw: str) -> None:
    assert score(raw).em == 0.0


def test_articles_and_pronouns_are_no_letters() -> None:
    assert chosen_letter("The answer is a small island") is None
    assert chosen_letter("The answer is A small island") is None
    assert chosen_letter("I think so") is None
    assert chosen_letter("A man walks in") is None
    assert chosen_letter("The answer is A") == "A"
    assert chosen_letter("The answer is A because of it") == "A"
    assert score("a small island", right=3) == (1.0, 1.0, 1.0)
    assert score("It is a town on a hill", right=0) == (0.0, 0.0, 0.0)


def test_without_letters_the_text_is_scored() -> None:
    scorer = open_scorer("choice")
    assert scorer(parse_answer("It is Paris."), ["Paris"]) == (0.0, pytest.approx(0.5), 1.0)
    assert scorer(parse_answer("It is Paris."), []) == (0.0, 0.0, 0.0)


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_text_has_scores_in_order(raw: str, right: int) -> None:
    em, f1, inside = score(raw, right)
    assert 0.0 <= em <= f1 <= 1.0
    assert em <= inside <= 1.0


@given(st.sampled_from(ascii_uppercase), st.sampled_from(["{}", "({})", "Answer: {}.", "**{}**"]))
def test_every_letter_is_read(letter: str, how: str) -> None:
    assert chosen_letter(how.format(letter)) == letter
