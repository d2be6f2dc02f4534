"""An answer is contained where it occurs as whole words and whole numbers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.scoring.containment import (
    LEAST_QUESTIONS,
    Haystack,
    contained,
    copied_share,
    not_in_text,
)
from contextcliff_dagster.scoring.normalize import answer_tokens, bare


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("The quantity of SKU-482 is 937915.", "937915"),
        ("qty=937915", "937915"),
        ("937915kg", "937915"),
        ("It was PARIS, of course", "paris"),
        ("She said \u201cdon\u2019t\u201d.", "don't"),
        ("in the\nred   house", "the red house"),
        ("the Capital, Paris", "capital Paris"),  # equal tokens after normalisation
        ("\u7b54\u3048\u306f\u6771\u4eac\u3067\u3059", "\u6771\u4eac"),
        ("It costs 12, or 13", "12"),
        ("x+y", "+"),
        ("3.5", "3.5"),
        ("1,200 pieces", "1,200"),
        ("answer: C++.", "C++"),
    ],
)
def test_it_stands_inside(output: str, answer: str) -> None:
    assert contained(output, ["nowhere", answer]) == 1.0


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("112", "12"),
        ("120", "12"),
        ("12.5", "12"),
        ("0.12", "12"),
        ("1,200", "200"),
        ("I do not know", "no"),
        ("Parisian", "Paris"),
        ("anything", ""),
        ("anything", "   "),
        ("", "x"),
    ],
)
def test_part_of_a_word_or_number_is_not_it(output: str, answer: str) -> None:
    assert contained(output, [answer]) == 0.0


@given(st.text(max_size=40), st.text(max_size=40), st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True))
def test_set_apart_by_spaces_it_is_found_anywhere(before: str, after: str, answer: str) -> None:
    assert contained(f"{before} {answer} {after}", [answer]) == 1.0


_PIECES = st.sampled_from(
    "12|0|a|the|cat|Cat|\u20ac|.|-|'| |\n|e\u0301|\u00e9|\u0301|"
    "\u6771|\u4eac|\u0e01|\u0e34|\uff11|\u200b|\u2019|,".split("|")
)


_TEXTS = st.lists(_PIECES, max_size=4).map("".join)


@given(_TEXTS, _TEXTS, _TEXTS, st.sampled_from("-'.\u200b"))
def test_equal_tokens_in_a_row_are_always_held(
    before: str, phrase: str, after: str, sign: str
) -> None:
    text = f"{before} {sign.join(phrase)} {after}"
    tokens = answer_tokens(phrase)
    if tokens and f" {' '.join(tokens)} " in f" {' '.join(answer_tokens(text))} ":
        assert Haystack(text).holds(phrase)


@given(st.text(min_size=1, max_size=60))
def test_every_text_with_a_visible_character_holds_itself(text: str) -> None:
    assert Haystack(text).holds(text) == bool(bare(text))


def test_a_long_document_is_searched_in_linear_time() -> None:
    document = Haystack("aab " * 500_000)
    started = time.process_time()
    assert not document.holds("aab " * 5_000 + "c")
    assert not document.holds("b" * 1_000)
    assert time.process_time() - started < 5.0


def test_copied_answers_are_a_share_of_the_questions() -> None:
    spans = [(f"answer {i}", i % 4 > 0) for i in range(40)]
    assert copied_share(spans) == 0.75
    assert copied_share(spans[:LEAST_QUESTIONS]) == 0.75
    assert copied_share(spans[: LEAST_QUESTIONS - 1]) is None


def test_choices_and_counts_stand_in_any_text_and_are_no_copies() -> None:
    assert copied_share([("ABCD"[i % 4], True) for i in range(40)]) is None


def test_questions_without_an_answer_in_their_document_are_counted() -> None:
    texts = {"a": "Anna was born in Uppsala.", "b": "大会在厦门大学举办。"}
    examples = [
        Example(str(n), document, "?", answers, "t")
        for n, (document, answers) in enumerate(
            [
                ("a", ("Boston", "Uppsala")),
                ("a", ("Boston",)),
                ("b", ("厦门大学",)),
                ("b", ("北京大学",)),
                ("a", ("Yes.",)),
            ]
        )
    ]
    missing, asked = not_in_text(examples, texts.__getitem__)
    assert ([one.example_id for one in missing], asked) == (["1", "3"], 4)
