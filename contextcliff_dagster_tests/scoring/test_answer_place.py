"""Where an answer is, is said only where it occurs once, as containment finds it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.scoring.containment import answer_positions, contained

WORDS = "Ada", "Berg", "ada-berg", "the", "12", "1,200", "U.S.", "us", "937915kg", "\u6771\u4eac"
SIGNS = "caf\u00e9", "cafe\u0301", "\u201cAda\u201d", "a\u20ac", ".", ",", "-", "\u200b"
PIECES = st.sampled_from([*WORDS, *SIGNS])
BETWEEN = st.sampled_from(["", " ", "\n\n", "  ", "\t", ". ", ", "])
TEXTS = st.lists(st.tuples(PIECES, BETWEEN), max_size=12).map(
    lambda pairs: "".join(map("".join, pairs))
)
ANSWERS = st.lists(TEXTS, min_size=1, max_size=3)


def place(text: str, *answers: str) -> int | None:
    (share,) = answer_positions(text, [answers])
    return None if share is None else round(share * len(text))


@pytest.mark.parametrize(
    ("text", "answers", "marked"),
    [
        ("It is in aisle 12, not in 112.", ["12"], "12,"),
        ("Signed by\n  ADA   Berg, and others", ["Ada Berg", "Berg"], "ADA"),
        ("On behalf of U.S. and others", ["US"], "U.S."),
        ("weighs 937915kg", ["937915"], "9"),
        ("caf\u00e9s, a caf\u00e9 and more", ["cafe\u0301"], "caf\u00e9 and"),
        ("\u5728\u6771\u4eac\u3002", ["\u6771\u4eac"], "\u6771"),
        ("She said \u201cdon\u2019t\u201d, twice.", ["don't"], "don"),
    ],
)
def test_the_one_occurrence_is_found(text: str, answers: list[str], marked: str) -> None:
    found = place(text, *answers)
    assert found is not None
    assert abs(found - text.index(marked)) <= 1


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("Ada met Ada.", ["Ada"]),
        ("Ada met Bo.", ["Ada", "Bo"]),
        ("The U.S. is not us.", ["US"]),
        ("937915kg or 937,915", ["937915"]),
        ("\u6771\u4eac\u6771\u4eac", ["\u6771\u4eac"]),
        ("Yes, it is so.", ["yes"]),
        ("A or B", ["B"]),
        ("Parisian", ["Paris"]),
        ("anything", [" "]),
        ("", ["x1"]),
    ],
)
def test_no_occurrence_two_and_chance_have_no_place(text: str, answers: list[str]) -> None:
    assert place(text, *answers) is None


@given(TEXTS, ANSWERS)
def test_what_has_a_place_is_contained_and_what_is_there_twice_has_none(
    text: str, answers: list[str]
) -> None:
    if place(text, *answers) is not None:
        assert contained(text, answers)
    assert place(f"{text} betwixt {text}", *answers) is None


@given(TEXTS, TEXTS, st.sampled_from(["Zoe Quill", "4711", "q-7"]))
def test_a_planted_answer_is_found_where_it_was_planted(
    before: str, after: str, answer: str
) -> None:
    text = f"{before} {answer} {after}"
    (share,) = answer_positions(text, [[answer.lower(), f"{answer}!"]])
    assert share is not None
    at = round(share * len(text))
    invisible = sum(text.count(each) for each in "\u200b\ufeff\u0301")
    assert abs(at - len(before) - 1) <= invisible
    if text.isascii():
        assert at == len(before) + 1


def test_a_long_document_is_looked_through_in_linear_time() -> None:
    text = "The quick brown fox, number 12, jumps over 3.5 lazy dogs.\n" * 8_000
    text = f"{text[:200_000]} Zoe Quill {text[200_000:]}"
    started = time.process_time()
    assert answer_positions(text, [["zoe quill"], ["quick brown"]])[1] is None
    assert time.process_time() - started < 5.0
