"""Every size ends at the same point, a sentence ends there, and nothing is repeated or cut off."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.continuation.passages import (
    Point,
    ReadText,
    author_after,
    choose_points,
    context_before,
    first_that,
    read_text,
)
from contextcliff_dagster.extensions.continuation.prose.words import read_prose
from contextcliff_dagster.extensions.continuation.section import context_sizes
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.o200k import O200K

WORDS = (
    "the mill river old garden went slowly evening and house toward Mr. Hale “Yes!” letter".split()
)


def story(sentences: int, seed: int) -> str:
    """Paragraphs of made-up sentences, with quotes, titles and abbreviations."""
    rng = random.Random(seed)
    parts = []
    for _ in range(sentences):
        words = [rng.choice(WORDS) for _ in range(rng.randint(3, 30))]
        parts.append("It was " + " ".join(words) + rng.choice([".", ".”", "?", "!"]))
        parts.append("\n\n" if rng.random() < 0.15 else " ")
    return "".join(parts).strip()


def text_of(sentences: int = 900, seed: int = 0) -> ReadText:
    return read_text("story", story(sentences, seed), O200K)


@examples(25)
@given(st.integers(0, 10**6), st.integers(1, 8), st.sampled_from([300, 1000]))
def test_points_are_sentence_ends_with_room_before_and_after(
    seed: int, passages: int, before: int
) -> None:
    text = text_of()
    points = choose_points(text, passages, before, 200, seed)
    assert points == choose_points(text, passages, before, 200, seed)
    assert [point.at for point in points] == sorted({point.at for point in points})
    for point in points:
        assert point.at in set(text.ends)
        assert O200K.count(text.text[: point.at]) >= before
        assert O200K.count(text.text[point.at :]) >= 200
    for one, following in pairwise(points):
        assert O200K.count(text.text[one.at : following.at]) >= 190, "passages overlap"


@example(27, [5])
@examples(25)
@given(st.integers(0, 100), st.lists(st.integers(5, 2000), min_size=1, max_size=6))
def test_contexts_are_suffixes_of_one_another_and_fit(seed: int, sizes: list[int]) -> None:
    (point,) = choose_points(text_of(), 1, 2000, 200, seed)
    contexts = [context_before(point, size, O200K) for size in sorted(sizes)]
    whole = point.text.text[: point.at]
    for size, context in zip(sorted(sizes), contexts, strict=True):
        assert whole.endswith(context)
        assert 0 < O200K.count(context) <= size
        if size > 100:  # no sentence of the story is as long
            assert O200K.count(context) > size - 100
            before = whole[: len(whole) - len(context)].rstrip()
            assert not before or len(before) in point.text.ends
    for short, long in pairwise(contexts):
        assert long.endswith(short)


def test_a_sentence_longer_than_the_context_is_cut_at_a_blank() -> None:
    text = read_text("long", "word " * 4000 + "end. " + "And more. " * 3, O200K)
    context = context_before(Point("long-00", text, text.ends[0]), 50, O200K)
    assert context.startswith("word ")
    assert 45 <= O200K.count(context) <= 50


@given(st.integers(1, 300))
def test_the_author_goes_on_where_the_context_ends(words: int) -> None:
    (point,) = choose_points(text_of(), 1, 1000, 900, 3)
    passage = author_after(point, words)
    assert len(read_prose(passage).words) == words
    assert read_prose(point.text.text[point.at :]).text.startswith(passage)


def test_a_text_that_is_too_short_is_named() -> None:
    with pytest.raises(StudyError, match=r"Text 'story' has [\d,]+ tokens; 5 passages of 500"):
        choose_points(text_of(60), 5, 4000, 500, 0)
    with pytest.raises(StudyError, match="no sentence end"):
        choose_points(read_text("story", "word " * 9000, O200K), 2, 1000, 100, 0)


def test_sizes_are_doublings_with_geometric_points_between() -> None:
    assert context_sizes(8192) == (2048, 4096, 8192)
    assert context_sizes(8192, divisions=1) == (2048, 2896, 4096, 5793, 8192)
    assert context_sizes(10_000) == (2048, 4096, 8192, 10_000)
    assert context_sizes(1000, 512) == (512, 1000)
    with pytest.raises(StudyError, match="below the smallest"):
        context_sizes(1000)


@given(st.integers(0, 300), st.integers(0, 310), st.integers(-20, 400))
def test_the_first_that_holds_is_found_from_any_guess(count: int, first: int, guess: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        assert 0 <= number < count
        asked.append(number)
        return number >= first

    assert first_that(holds, count, guess) == min(first, count)
    assert len(asked) <= 2 * max(1, abs(guess - first) + 1).bit_length() + 3 or not count
