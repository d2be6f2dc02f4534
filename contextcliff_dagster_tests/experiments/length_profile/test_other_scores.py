"""The scores besides the primary one: the same means and intervals as if each were primary."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.experiments.length_profile.profile_and_report import other_scores

SETTINGS = AnalysisSettings(resamples=500)


def records(examples: int = 300, per_document: int = 1, replicates: int = 1) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    length = np.sort(draw.integers(100, 20_000, examples // per_document)).repeat(per_document)
    score = (draw.random(len(length)) < 0.8).astype(float)
    rows = pd.DataFrame(
        {
            "example_id": [f"e{i}" for i in range(len(length))],
            "document_id": [f"d{i // per_document}" for i in range(len(length))],
            "length_tokens": length,
            "em": score,
            "f1": np.round(np.maximum(score, draw.random(len(length))), 3),
        }
    )
    repeated = pd.concat([rows] * replicates, ignore_index=True)
    return repeated.assign(replicate=np.arange(replicates).repeat(len(rows)), score=repeated["em"])


@pytest.mark.parametrize(("per_document", "replicates"), [(1, 1), (3, 1), (1, 2)])
def test_as_if_it_were_the_primary_one(per_document: int, replicates: int) -> None:
    rows = records(per_document=per_document, replicates=replicates)
    context = ProfileContext(model="m", score_name="em")
    bins = profile_model(rows, [], SETTINGS, context).cliffs.bins
    found = other_scores(rows, bins, SETTINGS, "em")
    assert list(found) == ["f1"]
    primary = profile_model(rows.assign(score=rows["f1"]), [], SETTINGS, context).cliffs.bins
    for own, other in zip(primary, found["f1"], strict=True):
        assert (own.bin, own.n) == (other.bin, other.n)
        assert own.mean == pytest.approx(other.mean)
        # Resampled from another random stream.
        assert own.ci_low == pytest.approx(other.ci_low, abs=0.03)
        assert own.ci_high == pytest.approx(other.ci_high, abs=0.03)


def test_a_binary_score_has_the_exact_interval() -> None:
    rows = records()
    context = ProfileContext(model="m", score_name="f1")
    own = profile_model(rows, [], SETTINGS, context).cliffs.bins
    for b, other in zip(own, other_scores(rows, own, SETTINGS, "f1")["em"], strict=True):
        assert (b.mean, b.ci_low, b.ci_high) == (other.mean, other.ci_low, other.ci_high)


def test_scores_that_no_answer_has_are_left_out() -> None:
    rows = records().assign(f1=np.nan)
    assert other_scores(rows, [], SETTINGS, "em") == {}
