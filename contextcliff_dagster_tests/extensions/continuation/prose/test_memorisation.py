"""Verbatim overlap, against a slow count of all stretches, and what passages share by chance."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.continuation.prose.words import (
    Overlap,
    chance_overlap,
    read_prose,
    verbatim_overlap,
)
from contextcliff_dagster_tests.extensions.continuation.prose.passages import (
    HARBOUR,
    LETTER,
    ORCHARD,
)
from contextcliff_dagster_tests.extensions.continuation.prose.typography import (
    TYPOGRAPHIES,
    Typography,
    set_in,
)

FEW_WORDS = st.lists(st.sampled_from("a b c".split()), max_size=14).map(" ".join)
NONE = Overlap(0, None)


def stretches(text: str) -> set[str]:
    words = text.split()
    ends = range(len(words) + 1)
    return {" ".join(words[a:b]) for a in ends for b in ends if a < b}


@given(FEW_WORDS, FEW_WORDS)
def test_the_longest_run_is_that_of_all_stretches(a: str, b: str) -> None:
    common = stretches(a) & stretches(b)
    assert verbatim_overlap(a, b).longest_run == max((len(s.split()) for s in common), default=0)


@given(TYPOGRAPHIES)
def test_a_recitation_in_another_typography_is_a_whole_one(look: Typography) -> None:
    overlap = verbatim_overlap(set_in(HARBOUR, look), HARBOUR)
    assert overlap.longest_run == len(read_prose(HARBOUR).words)
    assert overlap.shared_runs == 1.0


def test_a_recited_part_stands_out_against_what_passages_share() -> None:
    words = (HARBOUR + ORCHARD + LETTER).split()
    passages = [" ".join(words[at : at + 90]) for at in range(0, len(words) - 90, 90)]
    chance = chance_overlap([passages])
    assert chance.pairs > 7
    assert chance.longest_run < 8
    assert chance.shared_runs == 0.0
    recited = verbatim_overlap(ORCHARD[:400] + HARBOUR[100:220], HARBOUR)
    assert 15 < recited.longest_run < 25
    assert 0.0 < (recited.shared_runs or 0.0) < 0.5
    assert chance.is_recited(recited)
    assert not chance.is_recited(verbatim_overlap(ORCHARD, HARBOUR))


def test_short_and_empty_texts() -> None:
    assert verbatim_overlap("", HARBOUR) == NONE
    assert verbatim_overlap(HARBOUR, "").longest_run == 0
    assert verbatim_overlap("The harbour was empty", HARBOUR) == Overlap(4, None)
    assert chance_overlap([]).pairs == 0
    assert not chance_overlap([]).is_recited(NONE)
