"""Questions of verbatim recall: one answer, in one place, in any script."""

from __future__ import annotations

import hashlib
import re
import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.corpora.folder.verbatim_recall import (
    Recall,
    letters,
    recall_questions,
    size,
)
from contextcliff_dagster.scoring.normalize import normalize_answer
from contextcliff_dagster_tests.support.files.scripts import SCRIPTS, prose

WORDS = st.sampled_from(
    ["Garden", "the", "a", "river", "RIVER", "stone", "straße", "STRASSE", "café", "cafe\u0301",
     "e.g.", "3.5", "don't", "re-use", "reuse", "庭", "石は", "ئۇ", "\u200b", "\U0001f40d"]
)  # fmt: skip
MARKS = st.sampled_from(
    [" ", " ", " ", "  ", ". ", ".\n", "\n", "\n\n", "。", "? ", "; ", ", ", "-\n"]
)
WORDY = st.lists(st.tuples(WORDS, MARKS), min_size=5, max_size=120).map(
    lambda pairs: "".join(word + mark for word, mark in pairs)
)
BEGINNINGS = st.sampled_from(
    ["The keeper of the silver lantern", "The keeper of a silver Lantern",
     "A captain who never slept",
     "The captain, who never slept", "Nobody in the river market",
     "银灯的看守人昨天晚上", "银灯的看守人，昨天晚上"]
)  # fmt: skip
RESTS = st.sampled_from(
    ["went down to the harbour at dawn.", "went down, to a harbour, at dawn!",
     "sold nine copper keys.",
     "Sold nine\ncopper keys.", "wrote letters to the orchard.",
     "走到港口去看船了。", "走到港口，去看船了。"]
)  # fmt: skip
ALIKE = st.lists(
    st.tuples(
        BEGINNINGS, st.sampled_from([" ", "\n", ", "]), RESTS, st.sampled_from([" ", "\n\n"])
    ),
    min_size=1,
    max_size=6,
).map(lambda parts: "".join("".join(part) for part in parts))
"""Sentences of a few beginnings and ends, some alike but for case, marks and articles."""
TEXTS = st.one_of(WORDY, ALIKE)


def by_seed(seed: int) -> Callable[[int], bytes]:
    return lambda start: hashlib.sha256(f"{seed}\n{start}".encode()).digest()


def asked_of(text: str, *, code: bool = False, most: int = 5, seed: int = 0) -> list[Recall]:
    return recall_questions(text, code=code, most=most, order=by_seed(seed))


def places(part: str, text: str) -> int:
    """How often the part occurs in the text, runs of blanks being one; overlaps count."""
    collapsed = re.sub(r"\s+", " ", text)
    return len(re.findall(f"(?={re.escape(part)})", collapsed))


def assert_sound(question: Recall, text: str) -> None:
    """One beginning, one continuation, and none other that a comparison of answers lets pass."""
    assert (
        question.statement
        == question.beginning
        + (" " if f"{question.beginning} {question.rest}" == question.statement else "")
        + question.rest
    )
    assert places(question.beginning, text) == 1
    assert places(question.rest, text) == 1
    assert places(question.statement, text) == 1
    # As scores compare: case, punctuation and articles aside, in whole words.
    padded = f" {normalize_answer(text)} "
    assert padded.count(f" {normalize_answer(question.rest)} ") <= 1
    assert question.rest.casefold() not in question.beginning.casefold()
    assert text[question.place :].startswith(question.rest.split(" ")[0])
    assert re.sub(r"\s+", " ", text[question.start :]).startswith(question.statement)
    assert 40 <= size(question.statement) <= 160


@given(TEXTS, st.booleans(), st.integers(1, 6), st.integers(0, 3))
def test_the_rest_is_the_only_continuation(text: str, code: bool, most: int, seed: int) -> None:
    questions = asked_of(text, code=code, most=most, seed=seed)
    assert len(questions) <= most
    for question in questions:
        assert_sound(question, text)
    ends = [(one.start, one.start + len(one.rest)) for one in questions]
    assert ends == sorted(ends)


@given(st.text(max_size=600), st.booleans())
def test_any_text_gives_sound_questions_or_none(text: str, code: bool) -> None:
    for question in asked_of(text, code=code):
        assert_sound(question, text)


@given(TEXTS)
def test_a_text_said_twice_gives_none(text: str) -> None:
    # Beginning and rest occur in both halves, whatever is between them.
    for question in asked_of(f"{text}\n\n{text}"):
        half = len(re.sub(r"\s+", " ", text))
        raise AssertionError(f"{question} in a text of {half} said twice")


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_asked_about_and_the_places_are_spread(script: str) -> None:
    text = prose(script, sentences=400)
    questions = asked_of(text, most=8)
    assert len(questions) == 8
    for question in questions:
        assert_sound(question, text)
        assert question.unit == "sentence"
    shares = [question.place / len(text) for question in questions]
    assert [int(8 * question.start / len(text)) for question in questions] == list(range(8)), shares


def test_code_is_asked_about_by_lines() -> None:
    lines = [
        f"    result_{number} = transform(source_{number}, mode='strict', depth={number + 3})"
        for number in range(60)
    ]
    text = "def work():\n" + "\n".join(lines) + "\n"
    questions = asked_of(text, code=True)
    assert len(questions) == 5
    for question in questions:
        assert_sound(question, text)
        assert question.unit == "line"
        assert question.statement in map(str.strip, lines)


def test_hard_wrapped_prose_is_asked_about_by_whole_sentences() -> None:
    text = prose("english", sentences=60).replace("\n\n", " ")
    wrapped = re.sub(r"(.{40,60}?) ", r"\1\n", text)
    questions = asked_of(wrapped)
    assert len(questions) == 5
    assert any("\n" in wrapped[q.start : q.start + len(q.statement)] for q in questions)
    for question in questions:
        assert_sound(question, wrapped)
        assert question.statement.endswith(".")


def test_the_right_words_score_and_others_do_not() -> None:
    text = prose("english", sentences=60)
    for script in ("english", "chinese", "arabic", "russian"):
        text = prose(script, sentences=60)
        for question in asked_of(text):
            accepted = [question.rest, question.statement]
            contained = get_contained()
            assert contained(f"{question.rest}", accepted) == 1.0
            assert contained(f'"{question.statement}"', accepted) == 1.0
            assert contained(question.rest[: len(question.rest) // 2], accepted) == 0.0
            assert contained(question.beginning, accepted) == 0.0


def get_contained() -> Callable[[str, list[str]], float]:
    from contextcliff_dagster.scoring.containment import contained

    return contained


def test_another_seed_asks_other_questions_and_the_same_the_same() -> None:
    text = prose("english", sentences=400)
    assert asked_of(text, seed=1) == asked_of(text, seed=1)
    assert asked_of(text, seed=1) != asked_of(text, seed=2)


def test_letters_leave_only_what_answers_differ_in() -> None:
    assert letters("The  cat’s a Straße!") == letters("CATS STRASSE") == "catsstrasse"
    assert letters(unicodedata.normalize("NFD", "Café")) == letters("café")


@pytest.mark.parametrize(
    ("before", "part", "times", "after"),
    [
        ("", ".", 1_000_000, ""),
        ("", "a", 3_000_000, ""),
        ("", "\n", 500_000, ""),
        ("", " \n", 300_000, ""),
        ("", "Word. ", 200_000, ""),
        ("", "- ", 300_000, ""),
        ("", "#", 300_000, "\n"),
        ("", "“", 300_000, "."),
        ("." * 1_000, "”", 300_000, ""),
        ("", "\u0301", 100_000, ""),
    ],
    ids=range(10),
)
def test_hostile_texts_take_no_long_time(before: str, part: str, times: int, after: str) -> None:
    started = time.process_time()
    assert asked_of(before + part * times + after) == []
    assert time.process_time() - started < 5
