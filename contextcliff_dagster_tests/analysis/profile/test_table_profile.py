"""Tables of means: concluded as their 0/1 answers would be, and never beyond the loss they hide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.cliff import Conclusion, baseline_of, conclude
from contextcliff_dagster.analysis.design.true_curves import Curve
from contextcliff_dagster.analysis.profile import examples_of, profile_table
from contextcliff_dagster.analysis.records import AnalysisSettings, clean_records
from contextcliff_dagster.score_files import MeansTable

QUICK = AnalysisSettings(permutations=199, resamples=100, second_opinions=False)
LENGTHS = np.geomspace(1_000, 128_000, 10).round().astype(np.int64)


def table_of(curve: Curve, n: int, seed: int) -> MeansTable:
    """Means of ``n`` 0/1 answers at each of ten lengths."""
    rng = np.random.default_rng(seed)
    mean = curve.mean(np.arange(10) / 10, np.log(LENGTHS))
    return MeansTable(None, LENGTHS, rng.binomial(n, mean) / n, np.full(10, float(n)))


def concluded(table: MeansTable, seed: int = 0) -> Conclusion:
    settings = replace(QUICK, seed=seed)
    documents = clean_records(examples_of(table), []).documents()
    return conclude(documents, settings, baseline_of(documents, settings))


@pytest.mark.parametrize(
    "curve",
    [Curve("flat", 0.95), Curve("step", 0.9, 0.6, 0.5), Curve("ramp", 0.8, 0.6, 0.3, 0.7)],
    ids=lambda curve: curve.shape,
)
def test_what_is_said_of_a_table_is_concluded_from_its_answers(curve: Curve) -> None:
    table = table_of(curve, 60, 1)
    said = profile_table(table, QUICK, ProfileContext("m"))
    conclusion = concluded(table)
    assert (said.verdict, said.safe_cap_tokens) == (
        conclusion.finding.verdict.value,
        conclusion.cap.tokens,
    )


def test_the_answers_of_a_table_have_its_means_and_n() -> None:
    table = table_of(Curve("step", 0.9, 0.6, 0.5), 60, 2)
    answers = examples_of(table).groupby("length_tokens")["score"].agg(["mean", "size"])
    assert list(answers["size"]) == list(table.n)
    assert list(answers["mean"]) == pytest.approx(list(table.mean))
    assert set(examples_of(table)["score"]) == {0.0, 1.0}


def test_caps_of_tables_stay_before_a_planted_loss() -> None:
    """Forty steps at random lengths; benchmarks/aggregated.py has the rates of all classes."""
    rng = np.random.default_rng(5)
    unsafe, reached = 0, []
    for seed in range(40):
        place = rng.uniform(0.2, 0.85)
        conclusion = concluded(table_of(Curve("step", 0.65, 0.6, place), 50, seed), seed)
        last_safe = int(np.ceil(place * 10 - 1e-9)) - 1
        cap = (
            -1
            if conclusion.cap.tokens is None
            else int(np.searchsorted(LENGTHS, conclusion.cap.tokens))
        )
        unsafe += cap > last_safe
        reached.append((cap + 1) / (last_safe + 1))
    assert unsafe <= 2
    assert np.median(reached) >= 0.7
