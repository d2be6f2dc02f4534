"""Which rounds count: laws of batches, retries and replacements."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.continuation.compat.runs import ATTEMPTS, chosen_rounds


def figures(cloze: float) -> dict[str, float]:
    return {"cloze_score": cloze, "vocabulary_diversity": 0.5}


USUAL = [figures(x) for x in (20, 21, 22, 23, 24, 22, 21, 23, 22, 20)]
FAR = figures(-400)

outcomes = st.lists(
    st.one_of(st.none(), st.floats(-500, 64).map(figures)), min_size=80, max_size=80
)


@given(outcomes, st.integers(1, 20), st.booleans())
def test_asking_ends_and_what_counts_is_a_full_batch(
    answers: list[Any], size: int, drawn: bool
) -> None:
    asked = 0
    while (batch := chosen_rounds(answers[:asked], size, drawn=drawn)).state == "open":
        assert batch.needed > asked
        asked = batch.needed
    assert asked <= ATTEMPTS * size + 0.3 * size
    if batch.state == "failed":
        assert batch.chosen == batch.replaced == ()
        return
    assert len(batch.chosen) == len(set(batch.chosen)) == size
    assert None not in [answers[number] for number in batch.chosen]
    assert set(batch.chosen).isdisjoint(batch.replaced)


@given(outcomes, st.integers(1, 20))
def test_more_answers_change_no_batch_that_is_done(answers: list[Any], size: int) -> None:
    asked = 0
    while (batch := chosen_rounds(answers[:asked], size)).state == "open":
        asked = batch.needed
    later = chosen_rounds(answers, size)
    assert (later.state, later.chosen, later.replaced) == (
        *(batch.state, batch.chosen, batch.replaced),
    )


def test_an_outlier_is_replaced_in_its_place_and_not_examined_again() -> None:
    rounds = [*USUAL[:4], FAR, *USUAL[5:]]
    assert chosen_rounds(rounds, 10).needed == 11
    batch = chosen_rounds([*rounds, FAR], 10)
    assert (batch.state, batch.chosen, batch.replaced) == (
        *("done", (0, 1, 2, 3, 10, 5, 6, 7, 8, 9), (4,)),
    )


def test_a_failed_replacement_leaves_the_batch_as_it_was() -> None:
    batch = chosen_rounds([*USUAL[:9], FAR, None], 10)
    assert (batch.state, batch.chosen, batch.replaced) == ("done", tuple(range(10)), ())


def test_a_short_round_fails_its_batch_and_the_next_rounds_are_another_try() -> None:
    rounds = [*USUAL[:9], None]
    assert chosen_rounds(rounds, 10).needed == 20
    assert chosen_rounds([*rounds, *USUAL], 10).chosen == tuple(range(10, 20))
    assert chosen_rounds(rounds, 10, drawn=False).state == "failed"
    assert chosen_rounds(rounds * 3, 10).state == "failed"
