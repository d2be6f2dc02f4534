"""What a tolerance means in answers, for the score in use."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.cliffs import ScoreName
from contextcliff_dagster.reporting.wording import lost_of, tolerance_sentences
from contextcliff_dagster_tests.support.records.reports import result_of, sample


def with_score(name: str, tolerance: float = 0.3, mean: float | None = 0.5) -> Cliffs:
    result = result_of(sample()[0])
    return replace(
        result,
        score=ScoreName(name, 1),
        tolerance=tolerance,
        baseline=replace(result.baseline, mean=mean),
    )


@given(st.floats(0.001, 0.999))
def test_never_more_answers_are_lost_than_the_tolerance_allows(tolerance: float) -> None:
    lost, of = lost_of(tolerance)
    assert lost / of <= tolerance + 1e-9
    assert tolerance - lost / of < 0.001


def test_right_or_wrong_scores_are_counted_in_answers() -> None:
    for name in ("em", "contained"):
        (text,) = tolerance_sentences([with_score(name)], ["m"])
        assert text == (
            "A tolerance of 30% means: of every 10 answers that are right on short documents, up "
            "to 3 may be lost, at worst from 0.50 to 0.35."
        )
    (text,) = tolerance_sentences([with_score("em", 0.05)], ["m"])
    assert "of every 20 answers that are right on short documents, up to 1 may be lost" in text


def test_graded_scores_are_not_counted_in_answers() -> None:
    (f1,) = tolerance_sentences([with_score("f1")], ["m"])
    assert "token F1, the overlap in words" in f1
    assert "may fall to 70% of its mean on short documents, at worst from 0.50 to 0.35" in f1
    assert "Partly right answers count partly." in f1
    (own,) = tolerance_sentences([with_score("bleu")], ["m"])
    assert own.startswith("A tolerance of 30% means: the mean score may fall to 70%")


def test_one_sentence_for_models_that_share_tolerance_and_score() -> None:
    two = [with_score("em"), with_score("em", mean=0.9)]
    (text,) = tolerance_sentences(two, ["a", "b"])
    assert text.endswith("may be lost (a from 0.50 to 0.35; b from 0.90 to 0.63).")
    assert len(tolerance_sentences([*two, with_score("f1")], ["a", "b", "c"])) == 2
    (bare,) = tolerance_sentences([with_score("em", mean=None)], ["a"])
    assert bare.endswith("up to 3 may be lost.")
