"""Cap and verdict under other choices: each variant is what its words say, the first the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.profile import AnalysisSettings, profile_model
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting.length_profile.scope import sensitivity_sections
from contextcliff_dagster.reporting.markdown import as_markdown
from contextcliff_dagster_tests.support.records.planted_curves import bins_of, plant, ramp, step
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, assert_conforms

SETTINGS = AnalysisSettings(resamples=100, permutations=99)
GRADED = replace(CONTEXT, primary="f1", score_name="f1")


def cliffs_of(records: pd.DataFrame, settings: AnalysisSettings = SETTINGS) -> Cliffs:
    profile = profile_model(records, bins_of(records), settings, GRADED)
    assert_conforms(profile)
    return profile.cliffs


def rows_of(cliffs: Cliffs, factor: str) -> dict[str, dict[str, Any]]:
    return {r.value: r for r in cliffs.sensitivity if r.factor == factor}


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    """Graded scores with two replicates, a tokenizer of its own, and calls that were lost."""
    found = plant(step(1_500, 0.8, 0.3), 3, graded=True, replicates=2)
    lost = found.index[::23]
    found = found.assign(f1=found.score, em=(found.score > 0.6) * 1.0)
    found["prompt_tokens"] = 2 * found["length_tokens"] + 30
    found.loc[lost, ["score", "f1", "em"]] = np.nan
    found.loc[lost, "failure"] = "transport_error"
    return found


@pytest.fixture(scope="module")
def cliffs(records: pd.DataFrame) -> Cliffs:
    return cliffs_of(records)


def test_the_first_row_and_those_of_the_made_choices_are_the_result(cliffs: Cliffs) -> None:
    first, *others = cliffs.sensitivity
    result = (cliffs.verdict, cliffs.safe_cap_tokens, cliffs.cliff.location_tokens)
    for row in (first, *(r for r in others if r.reported)):
        assert (row.verdict, row.safe_cap_tokens, row.location_tokens) == result
        assert row.n == cliffs.n
    reported = {(r.factor, r.value) for r in others if r.reported}
    assert reported == {
        ("tolerance", "30%"), ("baseline", "shortest 15%"), ("score", "token F1")
    }  # fmt: skip


def test_every_choice_that_the_records_allow_is_varied(cliffs: Cliffs) -> None:
    factors = {r.factor for r in cliffs.sensitivity}
    assert factors == {
        "as reported", "tolerance", "baseline", "bins", "score", "tokenizer", "replicates",
        "missing",
    }  # fmt: skip
    assert list(rows_of(cliffs, "tolerance")) == ["10%", "20%", "30%", "40%", "50%"]
    assert len(rows_of(cliffs, "bins")) == 3
    bare = cliffs_of(plant(ramp(800), 1).drop(columns=["prompt_tokens", "replicate"]))
    assert {r.factor for r in bare.sensitivity} == {
        "as reported", "tolerance", "baseline", "bins", "score"
    }  # fmt: skip


def test_caps_by_tolerance_are_those_of_the_result(cliffs: Cliffs) -> None:
    rows = rows_of(cliffs, "tolerance")
    for entry in cliffs.caps_by_tolerance:
        assert rows[f"{entry.tolerance:.0%}"].safe_cap_tokens == entry.safe_cap_tokens


def test_another_tokenizer_of_the_same_documents_moves_no_cap(cliffs: Cliffs) -> None:
    (row,) = rows_of(cliffs, "tokenizer").values()
    assert row.safe_cap_tokens == pytest.approx(cliffs.safe_cap_tokens, rel=0.01)
    assert row.location_tokens == pytest.approx(cliffs.cliff.location_tokens, rel=0.03)


def test_missing_calls_count_as_wrong_and_as_right(cliffs: Cliffs, records: pd.DataFrame) -> None:
    rows = rows_of(cliffs, "missing")
    lost = int(records["score"].isna().sum())
    assert list(rows) == [f"{lost} missing calls as wrong", f"{lost} missing calls as right"]
    everything = records["example_id"].nunique()
    assert {r.n for r in rows.values()} == {everything}
    # All calls beyond 800 tokens lost: worst case a cliff there, best case none.
    far = records[records["length_tokens"] > 800].index
    holes = records.assign(score=0.8 + 0.1 * np.sin(np.arange(len(records))))
    thinned = far[::2]
    holes.loc[thinned, "score"] = np.nan
    holes.loc[thinned, "failure"] = "transport_error"
    holes.loc[holes["score"].notna(), "failure"] = None
    found = {v.split()[-1]: r for v, r in rows_of(cliffs_of(holes), "missing").items()}
    assert found["wrong"].verdict in ("cliff", "gradual_decline", "decline")
    assert found["right"].verdict == "stable"


def test_documents_beyond_the_window_are_not_imputed(records: pd.DataFrame) -> None:
    over = records.assign(failure=records["failure"].replace("transport_error", "context_overflow"))
    assert not rows_of(cliffs_of(over), "missing")


def test_the_worst_replicate_scores_no_better() -> None:
    records = plant(step(1_500, 0.8, 0.3), 5, graded=True, replicates=3)
    worst = records.sort_values("score").drop_duplicates("example_id")
    alone = cliffs_of(worst)
    row = rows_of(cliffs_of(records), "replicates")["the worst"]
    assert row.n == alone.n
    assert row.safe_cap_tokens == alone.safe_cap_tokens


def test_the_report_shows_one_table_with_the_first_row_as_the_answer(
    cliffs: Cliffs,
) -> None:
    page = "\n".join(as_markdown(sensitivity_sections(cliffs)))
    assert page.count("| tolerance |") == 5
    assert "(reported)" in page
    assert not sensitivity_sections(replace(cliffs, sensitivity=[]))


def test_it_can_be_left_out(records: pd.DataFrame) -> None:
    plain = cliffs_of(records, replace(SETTINGS, second_opinions=False))
    assert plain.sensitivity == []
    assert plain.certify.further is None
