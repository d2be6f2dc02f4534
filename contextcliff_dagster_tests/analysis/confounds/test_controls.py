"""A fall of difficulty is told from one of length, and so is what needs no document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.cliff import DropWindow, Finding, baseline_of, find_verdict
from contextcliff_dagster.analysis.control_tests import (
    ControlAnswers,
    ControlMeans,
    Pairs,
    no_context,
)
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.contracts.results.json_form import MeanScore
from contextcliff_dagster_tests.support.records.profiles import QUICK, assert_conforms, changed

N = 240


def plant(
    seed: int, *, hard: float = 0.0, lost: float = 0.0, known: tuple[float, float] = (0.0, 0.0)
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """From the middle on questions are harder by ``hard``, and reading loses ``lost``; ``known``:
    the share of questions before and beyond that the model answers without any text."""
    rng = np.random.default_rng(seed)
    lengths = np.sort(np.exp(rng.uniform(np.log(40), np.log(6_000), N)).astype(np.int64))
    beyond = np.arange(N) >= N // 2
    alone = 0.9 * (1 - hard * beyond)
    read = alone * (1 - lost * beyond)
    knows = rng.random(N) < np.where(beyond, known[1], known[0])

    def records(chance: Any) -> pd.DataFrame:
        score = (rng.random(N) < chance) | knows
        return pd.DataFrame(
            {
                "document_id": [f"d{i}" for i in range(N)],
                "example_id": [f"e{i}" for i in range(N)],
                "length_tokens": lengths,
                "score": score.astype(float),
            }
        )

    return records(read), {"no_context": records(np.zeros(N)), "oracle": records(alone)}


def judged(
    seed: int, names: tuple[str, ...] = ("no_context", "oracle"), **planted: Any
) -> dict[str, Any]:
    records, controls = plant(seed, **planted)
    known = frozenset(records["example_id"])
    given = [ControlAnswers(name, controls[name], known) for name in names]
    profile = profile_model(records, [], QUICK, ProfileContext("m", controls=given))
    assert_conforms(profile)
    return profile.cliffs


@pytest.mark.parametrize("seed", range(3))
def test_a_fall_of_length_stays_at_equal_difficulty(seed: int) -> None:
    cliffs = judged(seed, lost=0.6)
    assert cliffs.confounds.identified == "yes"
    (reason,) = cliffs.confounds.reasons
    assert "With the evidence alone, the model scores" in reason
    oracle = cliffs.controls[1]
    assert abs(oracle.drop - 0.6) < 0.12
    assert oracle.drop_ci_low < oracle.drop < oracle.drop_ci_high


@pytest.mark.parametrize("seed", range(3))
def test_a_fall_of_harder_questions_is_not_called_length(seed: int) -> None:
    cliffs = judged(seed, hard=0.6)
    assert cliffs.verdict in ("cliff", "gradual_decline", "decline")
    assert cliffs.confounds.identified == "no"
    (reason,) = cliffs.confounds.reasons
    assert "most of the drop comes from harder questions" in reason
    assert reason in cliffs.warnings
    assert cliffs.controls[1].drop < 0.3


def test_what_is_known_without_the_document_is_said_with_its_bin() -> None:
    cliffs = judged(0, lost=0.9, known=(0.4, 0.4))
    (control, _) = cliffs.controls
    assert control.name == "no_context"
    assert control.mean == pytest.approx(0.4, abs=0.1)
    assert len(control.bins) == 10
    assert all(one.ci_low <= one.mean <= one.ci_high for one in control.bins)
    said = " ".join(control.says)
    assert "Without the document, the model scores 0." in said
    assert ": the curve cannot be expected to fall below that" in said
    assert "reads less there than the curve shows" in said


def test_a_loss_of_questions_that_need_no_document_is_not_called_length() -> None:
    """Short documents ask what everybody knows, long ones do not; reading is bad everywhere."""
    records, controls = plant(1, known=(0.85, 0.05))
    rng = np.random.default_rng(9)
    worse = controls["no_context"]["score"].to_numpy()
    records["score"] = np.maximum(worse, (rng.random(N) < 0.15).astype(float))
    given = [ControlAnswers("no_context", controls["no_context"], frozenset())]
    cliffs = profile_model(records, [], QUICK, ProfileContext("m", controls=given)).cliffs
    assert cliffs.confounds.identified == "no"
    assert "questions that need no document" in cliffs.confounds.reasons[0]


def test_few_questions_that_need_no_document_decide_nothing() -> None:
    """They are just half of the loss, or three quarters of it, in few answers or in many."""
    half = Pairs(
        score=np.repeat([1.0, 0.0, 1.0, 0.0], [12, 8, 8, 12]),
        control=np.repeat([1.0, 0.0, 1.0, 0.0], [6, 14, 4, 16]),
        document=np.arange(40),
        beyond=np.repeat([False, True], 20),
    )
    more = replace(half, control=np.repeat([1.0, 0.0, 1.0, 0.0], [6, 14, 3, 17]))
    visible = replace(find_verdict_of(half), visible=True)

    def said(pairs: Pairs, times: int) -> tuple[str, str]:
        many = Pairs(
            np.tile(pairs.score, times),
            np.tile(pairs.control, times),
            np.arange(len(pairs.score) * times),
            np.tile(pairs.beyond, times),
        )
        mean = MeanScore(40, 0.2, 0.1, 0.3)
        means = ControlMeans(mean, [], mean, mean)
        beyond = DropWindow(1_000, None)
        _, identified, sentences = no_context(means, many, beyond, visible, QUICK)
        return identified, sentences[-1]

    for pairs, times in ((half, 1), (half, 100), (more, 1)):
        identified, sentence = said(pairs, times)
        assert identified == "not_assessed"
        assert "perhaps most of the drop" in sentence
    identified, sentence = said(more, 100)
    assert identified == "no"
    assert ": most of the drop" in sentence


def find_verdict_of(pairs: Pairs) -> Finding:
    """A finding over as many documents; only whether it is visible is asked of it."""
    count = len(pairs.score)
    lengths = np.arange(1, count + 1) * 100
    documents = Documents(lengths, np.ones(count), pairs.score, True)
    return find_verdict(documents, QUICK, baseline_of(documents, QUICK))


def test_controls_change_nothing_of_the_curve_and_an_oracle_of_few_is_not_judged() -> None:
    records, controls = plant(0, lost=0.6)
    plain = profile_model(records, [], QUICK, ProfileContext("m", created_at="2026-01-01")).cliffs
    few = controls["oracle"].iloc[::40]
    given = [ControlAnswers("oracle", few, frozenset(few["example_id"]))]
    context = ProfileContext("m", created_at="2026-01-01", controls=given)
    cliffs = profile_model(records, [], QUICK, context).cliffs
    assert changed(cliffs, plain) == {"controls"}
    (oracle,) = cliffs.controls
    assert (oracle.n, oracle.n_askable, oracle.n_all) == (6, 6, N)
    assert (oracle.identified, oracle.drop) == ("not_assessed", None)
    assert cliffs.confounds.identified == "not_assessed"


def test_an_oracle_that_the_model_cannot_answer_says_nothing_of_difficulty() -> None:
    records, controls = plant(0, lost=0.6)
    nothing = controls["oracle"].assign(score=0.0)
    given = [ControlAnswers("oracle", nothing, frozenset(records["example_id"]))]
    cliffs = profile_model(records, [], QUICK, ProfileContext("m", controls=given)).cliffs
    assert cliffs.confounds.identified == "not_assessed"
    assert "too few answers are right to measure how hard" in cliffs.controls[0].says[-1]
