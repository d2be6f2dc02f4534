"""A fall that is all mix is not called length's, and one that is length's is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.profile import ProfileContext, profile_model
from contextcliff_dagster.analysis.records import MOST_VALUES, AnalysisSettings, categories_of
from contextcliff_dagster.analysis.statistics.rank_tests import cells_of, standardise
from contextcliff_dagster.contracts.results.questions import Confounds
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.records.planted_curves import Floats, bins_of, lengths_of
from contextcliff_dagster_tests.support.records.profiles import (
    CONTEXT,
    QUICK,
    assert_conforms,
    changed,
)
from contextcliff_dagster_tests.support.records.reports import page_of

EASY, HARD = 0.9, 0.35


def plant(seed: int, hard: Floats, lost: Floats, per_bin: int = 30) -> pd.DataFrame:
    """Ten bins: share of hard questions and share of the score that length costs, by bin."""
    rng = np.random.default_rng(seed)
    lengths = np.sort(lengths_of(rng, per_bin))
    place = np.arange(len(lengths)) // per_bin
    is_hard = rng.random(len(lengths)) < hard[place]
    chance = np.where(is_hard, HARD, EASY) * (1 - lost[place])
    return pd.DataFrame(
        {
            "document_id": [f"d{i}" for i in range(len(lengths))],
            "example_id": [f"e{i}" for i in range(len(lengths))],
            "length_tokens": lengths,
            "score": (rng.random(len(lengths)) < chance).astype(float),
            "kind": np.where(is_hard, "hard", "easy"),
        }
    )


def analysed(records: pd.DataFrame) -> tuple[dict[str, Any], dict[str, Any]]:
    profile = profile_model(records, bins_of(records), QUICK, CONTEXT)
    assert_conforms(profile)
    return profile.cliffs, profile.metrics


RISING = np.linspace(0.1, 0.9, 10)
EVEN = np.full(10, 0.4)
NOTHING, HALF = np.zeros(10), np.repeat([0.0, 0.5], 5)


def test_a_fall_that_is_all_mix_is_not_called_length() -> None:
    for seed in range(4):
        cliffs, metrics = analysed(plant(seed, RISING, NOTHING))
        assert cliffs.confounds.identified == "no"
        (reason,) = cliffs.confounds.reasons
        assert reason in cliffs.warnings
        assert "kinds of question" in reason
        (row,) = metrics.mix
        assert row.drop < 0.5 * row.drop_as_measured
        first, last = row.bins[0], row.bins[-1]
        assert first.mean - last.mean > 0.3
        shares = [np.array(b.n) / sum(b.n) for b in (first, last)]
        assert row.values == ["easy", "hard"]
        assert shares[1][1] - shares[0][1] > 0.5
        report = page_of([cliffs])
        assert report.count("Length is not shown to be the cause") == 1


@pytest.mark.parametrize("hard", [EVEN, np.linspace(0.2, 0.7, 10)], ids=["even", "varying"])
def test_a_loss_of_length_is_told_at_an_equal_mix(hard: Floats) -> None:
    errors = []
    for seed in range(4):
        cliffs, metrics = analysed(plant(seed, hard, HALF))
        assert cliffs.confounds.identified == "yes"
        assert not set(cliffs.confounds.reasons) & set(cliffs.warnings)
        errors.append(metrics.mix[0].drop - 0.5)
        report = page_of([cliffs])
        assert (
            "Is length the cause, or other questions? With an equal mix of kinds of question"
            in report
        )
    assert abs(np.median(errors)) < 0.08


def test_a_score_that_falls_to_nothing_is_a_loss() -> None:
    cliffs, _ = analysed(plant(0, EVEN, np.repeat([0.0, 1.0], 5)))
    assert cliffs.confounds.identified == "yes"


def test_other_questions_in_longer_documents_cannot_be_told_from_length() -> None:
    cliffs, _ = analysed(plant(0, np.repeat([0.0, 1.0], 5), NOTHING))
    assert cliffs.confounds.identified == "no"
    assert "cannot be separated" in cliffs.confounds.reasons[0]


def test_a_balanced_grid_of_lengths_and_positions_is_separated() -> None:
    """Each position once at each length, as in a needle test: few answers, but one mix."""
    grid = [(length, place / 10) for length in (1, 2, 4, 8, 12, 16, 24) for place in range(11)]
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(grid, columns=["length_tokens", "evidence_position"])
    rows["length_tokens"] *= 1_000
    rows["score"] = (
        rng.random(len(rows)) < np.where(rows["length_tokens"] < 9_000, 0.95, 0.2)
    ) * 1.0
    cliffs = profile_model(rows, [], AnalysisSettings(), ProfileContext("m")).cliffs
    assert cliffs.cliff is not None
    assert cliffs.confounds.identified == "yes"
    assert "same mix of evidence positions" in cliffs.confounds.reasons[0]


def test_a_mix_that_hides_a_loss_is_said() -> None:
    """Long documents with easier questions: as measured nothing falls."""
    hard = np.repeat([0.9, 0.1], 5)
    hidden = np.repeat([0.0, 1 - (0.1 * EASY + 0.9 * HARD) / (0.9 * EASY + 0.1 * HARD)], 5)
    cliffs, metrics = analysed(plant(1, hard, hidden, 60))
    assert cliffs.verdict == "stable"
    assert metrics.mix[0].drop > 0.3
    assert cliffs.confounds.identified == "no"
    assert "hides" in cliffs.confounds.reasons[0]


def test_where_nothing_depends_on_length_positions_do_not_hide_it() -> None:
    """The likeliest place of a drop is often so late that no mix could be compared beyond it."""
    verdicts = []
    for seed in range(30):
        records = plant(seed, EVEN, NOTHING, 20)
        places = np.random.default_rng(seed).random(len(records))
        records = records.assign(evidence_position=places, kind=None)
        fast = replace(QUICK, second_opinions=False)
        verdicts.append(profile_model(records, [], fast, CONTEXT).cliffs.confounds.identified)
    assert verdicts.count("no") <= 3


def test_without_categories_nothing_is_assessed_and_with_them_nothing_else_changes() -> None:
    records = plant(0, RISING, NOTHING)
    plain, _ = analysed(records.drop(columns="kind"))
    one, _ = analysed(records.assign(kind="all"))
    assert plain.confounds == Confounds("not_assessed", [])
    assert one == plain
    audited, _ = analysed(records)
    assert changed(plain, audited) == {"confounds", "mix", "warnings"}
    assert set(plain.warnings) < set(audited.warnings)


@examples(12)
@given(st.permutations(["alpha", "beta", "gamma"]))
def test_other_names_for_the_categories_change_nothing(names: list[str]) -> None:
    records = plant(3, np.linspace(0.2, 0.7, 10), HALF)
    records["kind"] = records["kind"].where(np.arange(len(records)) % 3 > 0, "third")
    renamed = records.assign(
        kind=records["kind"].map(dict(zip(_names(records), names, strict=True)))
    )
    (a, first), (b, second) = analysed(records), analysed(renamed)
    assert a.confounds.identified == b.confounds.identified
    one, other = first.mix[0], second.mix[0]
    for field in ("drop", "drop_ci_low", "drop_ci_high", "drop_as_measured"):
        assert getattr(one, field) == pytest.approx(getattr(other, field))
    for left, right in zip(one.bins, other.bins, strict=True):
        assert left.standardised == pytest.approx(right.standardised)
        assert sorted(left.n) == sorted(right.n)


def _names(records: pd.DataFrame) -> list[str]:
    return sorted(records["kind"].unique())


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_one_category_is_the_curve_as_measured(seed: int, questions: int) -> None:
    rng = np.random.default_rng(seed)
    group = np.repeat(rng.integers(-1, 3, 40), questions)
    document = np.repeat(np.arange(40), questions)
    score = rng.random(len(group))
    cells = cells_of(group, np.zeros_like(group), document, score, (3, 1))
    standardised = standardise(cells, np.ones(1), 2)
    for i in range(3):
        if cells.documents[i, 0] >= 2:
            assert standardised.mean[i] == pytest.approx(score[group == i].mean())
            assert standardised.covered[i] == 1
        else:
            assert np.isnan(standardised.mean[i])


def test_questions_of_one_document_that_agree_count_as_one() -> None:
    rng = np.random.default_rng(0)
    score = (rng.random(200) < 0.5).astype(float)
    category, group = rng.integers(0, 2, 200), np.zeros(200, np.int64)
    mix = np.array([0.5, 0.5])
    once = standardise(cells_of(group, category, np.arange(200), score, (1, 2)), mix, 2)
    again = [np.repeat(x, 5) for x in (group, category, np.arange(200), score)]
    repeated = standardise(cells_of(*again, (1, 2)), mix, 2)
    assert repeated.mean == pytest.approx(once.mean)
    assert repeated.variance == pytest.approx(once.variance)


def test_a_column_with_a_value_for_every_file_names_no_category() -> None:
    many = [f"file {i}" for i in range(MOST_VALUES + 1)]
    assert categories_of(pd.DataFrame({"source": many})) == {}
    assert categories_of(pd.DataFrame({"source": [["a"], ["b"]], "task": ["t", "t"]})) == {}
    (levels,) = categories_of(pd.DataFrame({"level": [2.0, None, 1.0]})).values()
    assert list(levels) == ["2", "", "1"]
