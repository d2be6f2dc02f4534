"""How good answers up to a cap are: shown beside the cap, with a floor that refuses a policy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.profile import ProfileContext, profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.policy import PolicyError, SafeContext
from contextcliff_dagster.reporting.gallery import Entry, write_gallery
from contextcliff_dagster.reporting.html.payload import head_html
from contextcliff_dagster.reporting.terminal import comparison_line, risk_report
from contextcliff_dagster.reporting.wording import usefulness
from contextcliff_dagster.studies.sections import AnalysisSection
from contextcliff_dagster_tests.support.records.planted_curves import plant, ramp
from contextcliff_dagster_tests.support.records.reports import result_of, sample


def result(**changes: Any) -> Cliffs:
    return result_of(sample()[0] | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cap_score": 0.763}, "right 76% of the time"),
        ({"cap_score": 0.998}, "right more than 99% of the time"),
        ({"cap_score": 1.0}, "right 100% of the time"),
        ({"cap_score": None}, ""),
        (
            {"cap_score": 0.763, "score": {"name": "f1", "scale": 1}},
            "mean token F1 0.76",
        ),
        (
            {"cap_score": 0.763, "min_score": 0.8},
            "right 76% of the time, below the 0.80 that `min_score` asks for",
        ),
        ({"cap_score": 0.8, "min_score": 0.8}, "right 80% of the time"),
    ],
)
def test_words(changes: dict[str, Any], words: str) -> None:
    assert usefulness(result(**changes)) == words


def test_scores_without_a_name_are_right_or_wrong_if_all_are_0_or_1() -> None:
    named = {"cap_score": 0.5, "score": {"name": "score", "scale": 1}}
    bins = [b | {"sd": (b["mean"] * (1 - b["mean"])) ** 0.5} for b in sample()[0]["bins"]]
    assert usefulness(result(**named, bins=bins)) == "right 50% of the time"
    bins[3] = bins[3] | {"sd": 0.01}
    assert usefulness(result(**named, bins=bins)) == "mean score 0.50"


def test_the_score_up_to_the_cap_is_that_of_its_answers() -> None:
    rows = plant(ramp(1_600), 1)
    cliffs = profile_model(rows, [], AnalysisSettings(min_score=0.9), ProfileContext("m")).cliffs
    cap = cliffs.safe_cap_tokens
    assert cap is not None
    mean = rows.loc[rows["length_tokens"] <= cap, "score"].mean()
    assert cliffs.cap_score == pytest.approx(mean)
    assert cliffs.min_score == 0.9


def test_a_useless_cap_is_grey_and_recommends_nothing(tmp_path: Path) -> None:
    low = result(cap_score=0.76, min_score=0.8)
    lines = risk_report(low).splitlines()
    assert any(line.startswith("Safe Cap:") and "right 76% of the time" in line for line in lines)
    assert "Use this model at no length: right 76% of the time, below" in "\n".join(lines)
    assert not any("Hard cap inference context" in line for line in lines)
    assert "useless" in head_html([low])
    assert "useless" not in head_html([result(cap_score=0.8, min_score=0.8)])
    write_gallery([Entry("a.zip", "a" * 64, "reports/a/report", low)], tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    assert '<div class="entry useless"' in page
    assert "right 76% of the time" in page
    (row,) = json.loads((tmp_path / "gallery.json").read_text("utf-8"))["results"]
    assert (row["cap_score"], row["min_score"]) == (0.76, 0.8)


def test_a_long_useless_cap_does_not_come_first() -> None:
    good, long = (
        result(model="a", cap_score=0.92, safe_cap_tokens=382),
        result(model="c", cap_score=0.76, safe_cap_tokens=5_000, cliff=None, verdict="stable"),
    )
    line = comparison_line([good, long])
    assert line.startswith(
        "COMPARISON: Safe cap: a 382 tokens (right 92% of the time), "
        "c 5,000 tokens (right 76% of the time)"
    )


@pytest.mark.parametrize("mean", [0.76, None])
def test_there_is_no_policy_below_the_floor(mean: float | None) -> None:
    with pytest.raises(PolicyError, match=r"below the study's `min_score` of 0\.80"):
        SafeContext.from_cliffs(result(cap_score=mean, min_score=0.8), expires=100_000)
    SafeContext.from_cliffs(result(cap_score=mean), expires=100_000)
    SafeContext.from_cliffs(result(cap_score=0.8, min_score=0.8), expires=100_000)


def test_the_floor_of_a_baseline_cap_is_that_of_the_baseline() -> None:
    none = replace(result(min_score=0.99), safe_cap_tokens=None, baseline_cap_tokens=100)
    with pytest.raises(PolicyError, match="min_score"):
        SafeContext.from_cliffs(none, expires=100_000, allow_baseline=True)
    SafeContext.from_cliffs(replace(none, min_score=0.5), expires=100_000, allow_baseline=True)


@pytest.mark.parametrize("value", [-0.1, 1.1, "often"])
def test_a_floor_is_a_share(value: Any) -> None:
    with pytest.raises(ValueError, match="min_score"):
        AnalysisSection(min_score=value)


def test_another_score_has_its_own_curve_and_caps() -> None:
    rows = plant(ramp(1_600), 1)
    other = np.minimum(rows["score"] + 0.1, 1.0)
    rows = pd.DataFrame(rows).assign(em=rows["score"], f1=other)
    made = ProfileContext("m", score_name="em", primary="em")
    cliffs = profile_model(rows, [], AnalysisSettings(tolerance=0.25), made).cliffs
    by_value = {row.value: row for row in cliffs.sensitivity if row.factor == "score"}
    f1, em = by_value["token F1"], by_value["exact match"]
    assert not em.curve  # the result's own
    assert len(f1.curve) > 5
    caps = {cap.tolerance: cap.safe_cap_tokens for cap in f1.caps_by_tolerance}
    assert list(caps) == [0.1, 0.2, 0.25, 0.3]
    assert caps[0.25] == f1.safe_cap_tokens
    assert sorted(caps.values()) == list(caps.values())
