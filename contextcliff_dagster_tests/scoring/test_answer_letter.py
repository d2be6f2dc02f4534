"""The scorer of multiple choice."""

from __future__ import annotations

from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.corpora.benchmarks.item import choice_answers
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.scorers import Scores, open_scorer
from contextcliff_dagster.scoring.stated_answer import chosen_letter, chosen_letters

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


@pytest.mark.parametrize(
    "raw",
    [
        "答案是B。",
        "选B",
        "我选择B，因为文中说了。",
        "Ｂ",
        "B、Paris",
        "正解はB",
        "答案：B",
        "答案是B选项",
        "정답은 B",
    ],
)
def test_a_choice_is_read_in_other_languages(raw: str) -> None:
    assert score(raw) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("raw", "letters"),
    [
        ("BD", "BD"), ("B, D", "BD"), ("B and D", "BD"), ("(B) and (D)", "BD"), ("B;D.", "BD"),
        ("Both B and D", "BD"), ("The answers are B and D because of it.", "BD"), ("选BD", "BD"),
        ("B，D", "BD"), ("答案是B和D", "BD"), ("B. one\n\nD) another", "BD"), ("**B, D**", "BD"),
        ("I choose A, B, D", "ABD"), ("B", "B"), ("b", "B"), ("The answer is D.", "D"),
        ("B or D", ""), ("The answer is B or D", ""), ("A man walks in", "")
    ],
)  # fmt: skip
def test_several_letters_are_read(raw: str, letters: str) -> None:
    assert "".join(sorted(chosen_letters(raw))) == letters


@pytest.mark.parametrize("gold", ["BD", "B, D", "B and D", "B/D"])
def test_several_right_options_are_all_needed(gold: str) -> None:
    scorer = open_scorer("choice")
    for raw, em, f1 in (
        ("BD", 1, 1),
        ("D and B", 1, 1),
        ("B", 0, 0.25),
        ("BCD", 0, 0),
        ("A", 0, 0),
    ):
        scores = scorer(parse_answer(raw), [gold])
        assert (scores.em, scores.f1) == (em, f1), raw


def test_a_word_of_capitals_is_no_set_of_letters() -> None:
    assert open_scorer("choice")(parse_answer("BED"), ["BED"]).em == 1.0
    assert open_scorer("choice")(parse_answer("BDE"), ["BED"]).em == 0.0


def test_without_letters_the_text_is_scored() -> None:
    scorer = open_scorer("choice")
    assert scorer(parse_answer("It is Paris."), ["Paris"]) == (0.0, pytest.approx(0.5), 1.0)
    assert scorer(parse_answer("It is Paris."), []) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "raw",
    [
        "I'd go with B", "I\u2019d go with B.", "I'm sure it is B", "I'd say B: Paris", "It's B",
        "Correct: B", "The answer is 'B'", "B, I think", "Definitely (B)!", "答案不是A，而是B",
        "Option A is incorrect, so I'd go with B", "B is right, A is not", "It must be B, not C.",
        "A, C and D are all wrong; B is right", "The answer isn't A but B", "Option B is false.",
    ],
)  # fmt: skip
def test_the_only_letter_is_the_choice(raw: str) -> None:
    assert score(raw) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "raw",
    ["I'd go with C", "I", "I'm sure", "The answer is not B", "Neither B nor C", "B isn't right",
     "I think B, but A may be", "It's by F. B. Smith", "the B-side"],
)  # fmt: skip
def test_no_choice_is_read_into_other_words(raw: str) -> None:
    assert score(raw).em == 0.0


def test_a_pronoun_is_no_option() -> None:
    assert score("I'd say: Paris") == score("We say: Paris")
    scorer = open_scorer("choice")
    assert scorer(parse_answer("I'd go with I"), ["I"]).em == 0.0
    assert scorer(parse_answer("The answer is I"), ["I"]).em == 1.0
    assert scorer(parse_answer("I'd go with J"), ["J"]).em == 1.0
    assert scorer(parse_answer("A and B are both wrong, C is right"), ["C"]).em == 1.0
    assert scorer(parse_answer("A and B are both wrong, C is right"), ["AB"]).em == 0.0


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_text_has_scores_in_order(raw: str, right: int) -> None:
    em, f1, inside = score(raw, right)
    assert 0.0 <= em <= f1 <= 1.0
    assert em <= inside <= 1.0


@given(st.sampled_from(ascii_uppercase), st.sampled_from(["{}", "({})", "Answer: {}.", "**{}**"]))
def test_every_letter_is_read(letter: str, how: str) -> None:
    assert chosen_letter(how.format(letter)) == letter
