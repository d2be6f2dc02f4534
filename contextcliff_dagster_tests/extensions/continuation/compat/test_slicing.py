"""Context sizes, the common end of their texts, and the trim to a sentence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import DataError, StudyError
from contextcliff_dagster.extensions.continuation.compat.slicing import (
    context_lengths,
    pruned,
    sliced,
    source_text,
    trimmed,
)


class Pieces:
    """A token is a run of characters with the white space before it."""

    def count(self, text: str) -> int:
        return len(re.findall(r"\s*\S+|\s+\Z", text))


STORY = " ".join(f"Line {k} of the story ends here." for k in range(400))


@given(st.integers(200, 900), st.integers(10, 60), st.lists(st.integers(30, 400), min_size=1))
def test_every_size_ends_where_the_author_goes_on(
    max_context: int, max_tokens: int, sizes: list[int]
) -> None:
    made = sliced(source_text(STORY * 2), Pieces(), max_context, max_tokens, "Go on.")
    assert Pieces().count(made.text) <= max_context
    assert made.text.endswith(("here.", "\n\n"))
    assert not made.repeated
    for size in sizes:
        if not made.has(size):
            with pytest.raises(DataError, match="does not fit"):
                made.context(size)
            continue
        context = made.context(size)
        assert made.text.endswith(context + made.ground_truth)
        assert Pieces().count(context) == size - max_tokens - made.overhead


def test_a_short_text_is_repeated() -> None:
    made = sliced("One two three. Four five.", Pieces(), 100, 10, "Go on.")
    assert made.repeated
    assert Pieces().count(made.text) > 50
    assert made.context(60).count("One two") > 1


def test_text_is_normalised_and_cut_to_four_fifths() -> None:
    given_text = "First line--\r\nsecond  ﬁne.\n\n\n \nNext\rone." + " " * 4 + "x" * 7
    assert source_text(given_text) == "First line— second  fine.\n\nNext one."
    with pytest.raises(DataError, match="empty"):
        source_text(" \n ")


def test_without_a_boundary_characters_are_counted() -> None:
    assert pruned("word " * 500, Pieces(), 100) == ("word " * 500)[:200]


@given(st.text(alphabet=st.sampled_from("aA1 .!?\"'”“\n")))
def test_trimming_twice_changes_nothing_and_keeps_the_beginning(text: str) -> None:
    once = trimmed(text)
    assert text.startswith(once)
    assert trimmed(once) == once


def test_sizes_are_checked() -> None:
    assert context_lengths(8192, 2) == [2048, 3072, 4096, 6144, 8192]
    for wrong in (0, 3, -2):
        with pytest.raises(StudyError, match="power of two"):
            context_lengths(8192, wrong)
