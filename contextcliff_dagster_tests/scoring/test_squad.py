"""Exact match and F1 agree with the published SQuAD evaluation, and keep their laws on any text."""

from __future__ import annotations

import collections
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.scoring.containment import contained
from contextcliff_dagster.scoring.normalize import (
    answer_tokens,
    exact_match,
    normalize_answer,
    token_f1,
)

ASCII = st.text(alphabet=string.printable, max_size=80)
WORDS = st.lists(
    st.sampled_from(["the", "a", "An", "red", "House", "42", "U.S.", "don't", "---", "(x)"]),
    max_size=8,
).map(" ".join)


# The definitions of Rajpurkar et al. 2016 (v1.1) and 2018 (answers without tokens), as published.
def published_normalisation(s: str) -> str:
    no_punctuation = "".join(ch for ch in s.lower() if ch not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", no_punctuation).split())


def published_f1(prediction: str, truth: str) -> float:
    given, gold = (
        published_normalisation(prediction).split(),
        published_normalisation(truth).split(),
    )
    if not given or not gold:
        return float(given == gold)
    shared = sum((collections.Counter(given) & collections.Counter(gold)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(given), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Denver Broncos", "denver broncos"),
        ("Denver  Broncos.", "denver broncos"),
        ("Santa Clara, California", "santa clara california"),
        ("Levi's Stadium", "levis stadium"),
        ("a an the", ""),
        ("theatre and anthem", "theatre and anthem"),
        ("an-the", "anthe"),  # punctuation goes before articles
        ("$25 million", "25 million"),
        ("", ""),
        ("\t\n ", ""),
    ],
)
def test_normalisation_is_squads(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal == published_normalisation(text)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("\u201cLa Bohe\u0300me\u201d", "la boh\u00e8me"),
        ("1914\u20131918", "19141918"),
        ("\u00c9COLE", "\u00e9cole"),
        ("\u6771\u4eac\u3002", "\u6771 \u4eac"),
        ("10\u00a0000", "10 000"),
        ("\U0001f600", "\U0001f600"),
    ],
)
def test_beyond_ascii_punctuation_and_encoding_do_not_count(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


@given(ASCII)
def test_on_ascii_normalisation_equals_the_published_one(text: str) -> None:
    assert normalize_answer(text) == published_normalisation(text)


@given(st.text())
def test_normalising_twice_changes_only_articles_that_punctuation_held_apart(text: str) -> None:
    once = normalize_answer(text)
    assert set(answer_tokens(once)) <= set(once.split())


@given(WORDS, st.lists(WORDS.filter(lambda w: bool(normalize_answer(w))), min_size=1, max_size=4))
def test_scores_equal_the_published_ones_wherever_an_accepted_answer_has_tokens(
    answer: str, accepted: list[str]
) -> None:
    normal = published_normalisation(answer)
    assert exact_match(answer, accepted) == max(
        float(normal == published_normalisation(gold)) for gold in accepted
    )
    assert token_f1(answer, accepted) == pytest.approx(
        max(published_f1(answer, gold) for gold in accepted)
    )


@pytest.mark.parametrize(
    ("answer", "accepted", "em", "f1"),
    [
        ("Denver Broncos", ["The Denver Broncos", "Broncos"], 1.0, 1.0),
        ("the Broncos of Denver", ["Denver Broncos"], 0.0, 0.8),
        ("Carolina Panthers", ["Denver Broncos"], 0.0, 0.0),
        ("gold gold", ["gold"], 0.0, 2 / 3),
        ("", ["gold"], 0.0, 0.0),
    ],
)
def test_the_best_accepted_answer_counts(
    answer: str, accepted: list[str], em: float, f1: float
) -> None:
    assert exact_match(answer, accepted) == em
    assert token_f1(answer, accepted) == pytest.approx(f1)


@pytest.mark.parametrize(("gold", "right"), [("A", "a."), ("The", "the"), ("+", "+"), ("%", " % ")])
def test_an_answer_that_normalisation_would_erase_is_still_an_answer(gold: str, right: str) -> None:
    assert exact_match(right, [gold]) == token_f1(right, [gold]) == 1.0
    for wrong in ("", "B", "an", "-"):
        assert exact_match(wrong, [gold]) == token_f1(wrong, [gold]) == 0.0


@given(st.text(max_size=60), st.lists(st.text(max_size=30), max_size=4))
def test_scores_lie_between_0_and_1_and_exact_match_never_exceeds_the_others(
    answer: str, accepted: list[str]
) -> None:
    em, f1 = exact_match(answer, accepted), token_f1(answer, accepted)
    assert 0.0 <= em <= f1 <= 1.0 + 1e-12
    assert contained(answer, accepted) in (0.0, 1.0)
    if any(normalize_answer(gold) == normalize_answer(answer) != "" for gold in accepted):
        assert em == f1 == contained(answer, accepted) == 1.0


@given(st.text(max_size=40), st.lists(st.text(max_size=20), min_size=1, max_size=3), st.text())
def test_another_accepted_answer_never_lowers_a_score(
    answer: str, accepted: list[str], more: str
) -> None:
    wider = [*accepted, more]
    assert exact_match(answer, wider) >= exact_match(answer, accepted)
    assert token_f1(answer, wider) >= token_f1(answer, accepted)
    assert contained(answer, wider) >= contained(answer, accepted)


@given(WORDS, WORDS)
def test_f1_with_one_accepted_answer_is_symmetric(a: str, b: str) -> None:
    if normalize_answer(a) and normalize_answer(b):
        assert token_f1(a, [b]) == pytest.approx(token_f1(b, [a]))
