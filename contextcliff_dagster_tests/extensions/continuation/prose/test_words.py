"""Words and sentences: laws of typography, and cases that naive rules get wrong."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.continuation.prose.metrics import metrics_of
from contextcliff_dagster.extensions.continuation.prose.words import canonical_text, read_prose
from contextcliff_dagster_tests.extensions.continuation.prose.passages import PASSAGES
from contextcliff_dagster_tests.extensions.continuation.prose.typography import (
    TYPOGRAPHIES,
    Typography,
    set_in,
)


@given(st.sampled_from(PASSAGES), TYPOGRAPHIES)
@example(PASSAGES[0], Typography(("“", "”"), "’", "—", "-", "…", " ", None, "NFD"))
@example(PASSAGES[0], Typography(("‘", "’"), "’", " – ", "\u2011", ". . .", "\r\n", None, "NFD"))
def test_typography_moves_no_metric(text: str, look: Typography) -> None:
    assert metrics_of(read_prose(set_in(text, look))) == metrics_of(read_prose(text))


@given(st.text())
def test_any_text_is_read_and_its_canonical_form_reads_the_same(text: str) -> None:
    prose = read_prose(text)
    assert canonical_text(prose.text) == prose.text
    assert read_prose(prose.text).words == prose.words
    assert prose.sentence_lengths.sum() <= len(prose.words)
    assert (prose.sentence_lengths > 0).all()
    assert len(prose.sentences()) == len(prose.sentence_lengths)


@given(st.sampled_from(PASSAGES), st.integers(0, 400))
def test_the_first_words_are_those_of_the_whole(text: str, count: int) -> None:
    whole = read_prose(text)
    first = whole.first(count)
    assert first.words == whole.words[:count]
    assert first.sentences() == whole.sentences()[: len(first.sentence_ends)]


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("Mr. Lund met Mrs. Hale at St. Mary's. He bowed.", [8, 2]),
        ("Mr Lund met J. R. Hale. He bowed.", [6, 2]),
        ("“Come here!” he cried. “Now?” “Now.”", [4, 1, 1]),
        ("'Come here!' She ran.", [2, 2]),
        ("I waited… and waited. Then… Nothing came.", [4, 1, 2]),
        ("It cost 3.50 in 1987. It was cheap.", [5, 3]),
        ("He brought bread, cheese, etc. Then he left.", [5, 3]),
        ("She likes pears, e.g. ripe ones. Yes.", [7, 1]),
        ("It was I. She knew.", [3, 2]),
        ("The U.S. Army came. It left the U.S. They stayed.", [5, 5, 2]),
        ("Washington, D.C. is hot. J.R.R. Lund left (with the U.K. Guard).", [5, 10]),
        ("It was the end.[1] He left.[2][13] “Now!”[4] She ran.", [5, 4, 2, 2]),
        ("no capitals here. none at all. not one", [3, 3]),
        ("See No. 5 there. No. I won't.", [4, 1, 2]),
        ("Gone!!! Really?! (Yes.) [No.]", [1, 1, 1, 1]),
        ("他来了。她走了！", [3, 3]),
        ("No mark ends this", []),
        ("... !!! ---", []),
        ("", []),
    ],
)
def test_sentences(text: str, lengths: list[int]) -> None:
    assert read_prose(text).sentence_lengths.tolist() == lengths


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the sea—grey, flat—lay", "the sea grey flat lay"),
        ("a well-kept, half‑hearted to-day", "a well kept half hearted to day"),
        ("the boys’ boat; ’tis don’t rock’n’roll", "the boys boat tis don't rock'n'roll"),
        ("‘He said “no” to her,’ I said", "he said no to her i said"),
        ("_very_ **good** *indeed*", "very good indeed"),
        ("naïve café ﬁnd", "naïve café find"),
        ("in 1,000 or 3.5 at 10:30", "in 1,000 or 3.5 at 10:30"),
        ("co\u00adoper\u00adate", "cooperate"),
        ("他来了", "他 来 了"),
        ("हिन्दी में", "हिन्दी में"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert list(read_prose(text).words) == words.split()
