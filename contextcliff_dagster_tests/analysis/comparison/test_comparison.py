"""Comparisons: real differences are found and placed, noise is not, and all at the stated rates."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.comparison import Measured, compare
from contextcliff_dagster.analysis.contrast import (
    adjusted_p_values,
    difference_interval,
    pair_records,
    student,
)
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import loss_lengths, resample_weights
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.contracts.results import Comparison, to_json
from contextcliff_dagster_tests.support.records.planted_curves import (
    bins_of,
    flat,
    plant,
    ramp,
    step,
)
from contextcliff_dagster_tests.support.records.profiles import schema


def other_answers(records: pd.DataFrame, score: np.ndarray) -> pd.DataFrame:
    return records.assign(score=score)


def compared(a: pd.DataFrame, b: pd.DataFrame, **more: object) -> Comparison:
    result = compare(Measured("A", a), Measured("B", b), bins_of(a), AnalysisSettings())
    schema("comparison").validate(json.loads(json.dumps(to_json(result), allow_nan=False)))
    return result


def test_a_halved_cliff_is_found_where_it_is() -> None:
    a = plant(ramp(1_600), 1)
    b = other_answers(a, plant(ramp(800), 1).score.to_numpy())
    comparison = compared(a, b)
    assert comparison.paired
    assert comparison.n == 200
    sure = [row.bin for row in comparison.bins if row.p_value <= 0.05]
    assert sure
    assert set(sure) <= {"b05", "b06", "b07", "b08"}
    shift = comparison.loss_shift
    assert shift.ci_low < 0.5 < shift.ci_high < 1
    assert "B scores lower than A" in comparison.sentence


def test_the_order_of_rows_and_the_side_do_not_matter() -> None:
    a = plant(ramp(1_600), 1)
    b = other_answers(a, plant(ramp(800), 1).score.to_numpy())
    forth, shuffled = compared(a, b), compared(a, b.sample(frac=1, random_state=3))
    assert replace(forth, created_at="") == replace(shuffled, created_at="")
    back = compared(b, a)
    assert back.overall.difference == pytest.approx(-forth.overall.difference)
    assert back.overall.p_value == forth.overall.p_value
    assert back.loss_shift.ratio == pytest.approx(1 / forth.loss_shift.ratio)


def test_the_same_answers_differ_nowhere() -> None:
    a = plant(step(900, 0.95, 0.2), 2)
    comparison = compared(a, a)
    assert comparison.overall.difference == 0
    assert {row.p_value for row in comparison.bins} == {1.0}
    assert comparison.loss_shift.ratio == 1
    assert "No difference" in comparison.sentence
    # Seen in no document is not excluded: no interval is a point.
    assert all(row.ci_low < 0 < row.ci_high for row in comparison.bins)


def test_without_a_shared_example_it_says_unpaired() -> None:
    a, b = plant(flat(0.9), 1), plant(flat(0.4), 2)
    b["example_id"], b["document_id"] = "other " + b["example_id"], "other " + b["document_id"]
    comparison = compared(a, b)
    assert not comparison.paired
    assert comparison.n is None
    assert comparison.overall.p_value <= 0.001
    assert any("Unpaired" in warning for warning in comparison.warnings)
    assert comparison.loss_shift.ratio is None


def test_only_what_both_answered_is_compared() -> None:
    a = plant(flat(0.9), 1)
    b = a.iloc[20:].copy()
    b.loc[b.index[:5], ["score", "failure"]] = [None, "transport_error"]
    comparison = compared(a, b)
    assert comparison.n == 175
    assert comparison.a.left_out == 25
    assert any("25 examples of A" in warning for warning in comparison.warnings)


def test_a_side_without_answers_is_refused() -> None:
    a = plant(flat(0.9), 1)
    with pytest.raises(ContextCliffError, match="B has no scored answer"):
        compared(a, a.assign(score=None, failure="transport_error"))


@pytest.mark.parametrize("paired", [True, False])
def test_noise_alone_is_significant_as_rarely_as_said(paired: bool) -> None:
    """Questions of one document correlated; any p of the family at 5%, 200 simulations."""
    a = plant(flat(0.5), 0, questions=2)
    b = a if paired else a.assign(example_id="x" + a["example_id"])
    pairs = pair_records(a, b, bins_of(a))
    assert pairs.paired == paired
    false = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        level = rng.beta(4, 2, 100)
        other = level if paired else rng.beta(4, 2, 100)
        drawn = replace(
            pairs,
            a=replace(pairs.a, s=rng.binomial(2, level).astype(float)),
            b=replace(pairs.b, s=rng.binomial(2, other).astype(float)),
        )
        false += bool(np.nanmin(adjusted_p_values(drawn, 199, rng)) <= 0.05)
    assert false <= 20  # 5% of 200 is 10; more than 20 has a probability of .001


def test_the_length_of_a_loss_is_found() -> None:
    rng = np.random.default_rng(0)
    a = plant(step(1_000, 0.9, 0.3), 5, per_bin=100)
    side = pair_records(a, a, bins_of(a)).a
    weights = resample_weights(len(side.n), 100, rng)
    lengths = loss_lengths(side.length_tokens, side.n, side.s, weights, 0.3, 0.0)
    assert np.exp(lengths[0]) == pytest.approx(1_000, rel=0.15)
    assert np.quantile(lengths[1:], 0.025) <= np.log(1_000) <= np.quantile(lengths[1:], 0.975)
    stable = loss_lengths(side.length_tokens, side.n, 0.9 * side.n, weights, 0.3, 0.0)
    assert np.isinf(stable).all()


def test_intervals_of_few_documents_hold_as_often_as_said() -> None:
    """Twenty paired documents: without Student's t it would be 92.9% of nominal 95%."""
    rng = np.random.default_rng(0)
    one = np.ones(20)
    weights = resample_weights(20, 1_000, rng)
    held = 0
    for _ in range(3_000):
        before, change = rng.uniform(0.4, 0.5, 20), rng.normal(0.1, 0.1, 20)
        low, high = difference_interval(
            np.array([one, before]), np.array([one, before + change]), (weights, weights), 0.95
        )
        held += low <= 0.1 <= high
    assert 0.94 <= held / 3_000 <= 0.965


def test_student_widens_for_few_documents_and_not_for_many() -> None:
    few, some, many = student(2.8, np.array([5.0, 20.0, 1e6]))
    assert few > some > many
    assert many == pytest.approx(2.8, abs=1e-4)
