"""Replies in every manner: the same answers are right, and wrong ones stay wrong.

The phrasings in `manners` were written without knowledge of the rules that read them.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.typed import typed_scorer
from contextcliff_dagster_tests.scoring.manners import (
    MANNERS,
    QUESTIONS,
    TYPES,
    Question,
    reply,
    wrong_reply,
)
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, QUICK

CLIFF_TOKENS, DOCUMENTS = 6_900, 160


def right(question: Question, text: str) -> float:
    labels = (question.answer, *question.others) if question.kind == "label" else ()
    scorer = typed_scorer(question.text, labels)
    return scorer(parse_answer(text), [question.answer]).em


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("manner", MANNERS)
def test_a_right_answer_is_right_in_every_manner(kind: str, manner: str) -> None:
    seen = [
        right(question, reply(question, manner, random.Random(f"{seed} {question.text}")))
        for question in QUESTIONS[kind]
        for seed in range(5)
    ]
    assert np.mean(seen) >= 0.95


@pytest.mark.parametrize("kind", TYPES)
def test_a_wrong_answer_is_wrong_whatever_else_it_says(kind: str) -> None:
    taken = [
        right(question, wrong_reply(question, random.Random(f"{seed} {question.text}")))
        for question in QUESTIONS[kind]
        for seed in range(15)
    ]
    assert len(taken) >= 125
    assert np.mean(taken) <= 0.01


@cache
def cap_of(kind: str, manner: str) -> int:
    """The cap of answers that are right in .93 up to the cliff and in .35 beyond, in a manner."""
    rng = np.random.default_rng(7)
    lengths = np.sort(np.exp(rng.uniform(np.log(300), np.log(30_000), DOCUMENTS)).astype(int))
    rows = []
    for place, length in enumerate(lengths):
        question = QUESTIONS[kind][place % len(QUESTIONS[kind])]
        given = question
        if rng.random() >= (0.93 if length < CLIFF_TOKENS else 0.35):
            given = replace(
                question, answer=question.others[0], others=(question.answer, *question.others[1:])
            )
        text = reply(given, manner, random.Random(f"{place} {manner}"))
        rows.append((length, right(question, text), f"d{place}"))
    records = pd.DataFrame(rows, columns=["length_tokens", "score", "document_id"])
    settings = AnalysisSettings(resamples=100, permutations=199, second_opinions=False)
    result = profile_model(records, [], settings, CONTEXT).cliffs
    assert result.verdict != "floor"
    return result.safe_cap_tokens or 0


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("manner", MANNERS)
def test_the_cap_is_that_of_terse_answers(kind: str, manner: str) -> None:
    terse, cap = cap_of(kind, "terse"), cap_of(kind, manner)
    assert QUICK.tolerance == 0.3
    assert 0.85 * terse <= cap < CLIFF_TOKENS
