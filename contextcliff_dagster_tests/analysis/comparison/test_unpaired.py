"""Measurements of other documents: compared by length, whatever their bins are called."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.comparison import Measured, compare
from contextcliff_dagster.analysis.contrast import (
    at_same_lengths,
    difference_interval,
    pair_records,
)
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import resample_weights
from contextcliff_dagster.contracts.results import Comparison
from contextcliff_dagster.reporting.comparison import comparison_markdown
from contextcliff_dagster_tests.support.records.planted_curves import (
    Curve,
    bins_of,
    flat,
    plant,
    ramp,
)


def strangers(records: pd.DataFrame) -> pd.DataFrame:
    names = {name: "other " + records[name] for name in ("document_id", "example_id")}
    return records.assign(**names)


def with_bins(records: pd.DataFrame) -> pd.DataFrame:
    """Records that name the bins of their own study."""
    rank = records["length_tokens"].rank(method="first") - 1
    return records.assign(bin=[f"b{int(at * 10 // len(rank)):02d}" for at in rank])


def compared(a: pd.DataFrame, b: pd.DataFrame) -> Comparison:
    return compare(Measured("A", a), Measured("B", b), bins_of(a), AnalysisSettings())


def test_bins_of_the_same_name_and_other_lengths_are_not_set_against_each_other() -> None:
    a = with_bins(plant(flat(0.9), 1, per_bin=40))
    longer = strangers(with_bins(plant(flat(0.9), 2, per_bin=40)))
    longer["length_tokens"] = 10 * longer["length_tokens"]
    comparison = compared(a, longer)
    assert [row.n_b for row in comparison.bins][:3] == [0, 0, 0]
    in_range = longer[longer["length_tokens"] <= a["length_tokens"].max()]
    assert sum(row.n_b for row in comparison.bins) == len(in_range) == comparison.overall.n_b
    outside = len(longer) - len(in_range)
    assert any(f"0 examples of A and {outside} of B" in one for one in comparison.warnings)


def test_longer_documents_alone_make_no_difference() -> None:
    a = plant(ramp(800), 1, per_bin=60)
    b = plant(ramp(800), 2, per_bin=60)
    # Of the short half every fifth document, of the long half all: a mean that is far lower.
    short = b["length_tokens"] < b["length_tokens"].median()
    longer = strangers(b[~short | (np.arange(len(b)) % 5 == 0)])
    assert longer["score"].mean() < a["score"].mean() - 0.15
    overall = compared(a, longer).overall
    assert abs(overall.difference) < 0.05
    assert overall.ci_low < 0 < overall.ci_high
    assert overall.mean_b - overall.mean_a == pytest.approx(overall.difference)
    assert overall.p_value > 0.05


def test_no_length_in_common_is_no_comparison() -> None:
    a = plant(flat(0.9), 1)
    longer = strangers(a.assign(length_tokens=a["length_tokens"] + 10_000))
    comparison = compared(a, longer)
    assert comparison.overall.difference is None
    assert "B and A have no length bin in common" in comparison.sentence
    assert "None" not in comparison_markdown(comparison)


@pytest.mark.parametrize("curve", [ramp(800), flat(0.6)])
def test_the_interval_at_the_same_lengths_holds_as_often_as_said(curve: Curve) -> None:
    """Means of lengths of which B has fewer short ones; 300 simulations, nominal 95%."""
    a = plant(flat(0.5), 0)
    b = strangers(plant(flat(0.5), 1))
    b = b[(b["length_tokens"] > 800) | (np.arange(len(b)) % 2 == 0)]
    pairs = pair_records(a, b, bins_of(a))
    means = [curve(side.length_tokens.astype(float)) for side in (pairs.a, pairs.b)]
    places = [pairs.a.bin_index, pairs.b.bin_index]
    inside = [np.isin(place, np.intersect1d(*places)) & (place >= 0) for place in places]
    places = [place[kept] for place, kept in zip(places, inside, strict=True)]

    def sums(scores: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array([np.ones(len(s)), s]) for s in scores]

    def difference(mixed: list[np.ndarray]) -> float:
        return float(mixed[1][1].sum() / mixed[1][0].sum() - mixed[0][1].sum() / mixed[0][0].sum())

    held = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        weights = [resample_weights(len(place), 400, rng) for place in places]
        true = [mean[kept] for mean, kept in zip(means, inside, strict=True)]
        drawn = [(rng.random(len(mean)) < mean).astype(float) for mean in true]
        truth = difference(at_same_lengths(sums(true), weights, places)[0])
        mixed, resampled = at_same_lengths(sums(drawn), weights, places)
        low, high = difference_interval(mixed[0], mixed[1], (resampled[0], resampled[1]), 0.95)
        held += low <= truth <= high
    assert held / 300 >= 0.915  # Of a true 95%, less than this has a probability of .005.


def test_bins_with_the_other_sign_are_named_as_such() -> None:
    a = plant(flat(0.5), 1, per_bin=80)
    early = a["length_tokens"] < 100
    worse = (np.random.default_rng(0).random(len(a)) < 0.05).astype(float)
    comparison = compared(a, a.assign(score=np.where(early, 1.0, worse)))
    assert "B scores lower than A" in comparison.sentence
    main, _, reverse = comparison.sentence.split(";")[0].partition("significantly the reverse in ")
    assert "b00" in reverse
    assert "b00" not in main
    assert "significantly so in b0" in main
    assert "b09" in main


@pytest.mark.parametrize("nameless", ["a", "b"])
def test_a_side_without_documents_is_paired_by_example(nameless: str) -> None:
    a = plant(flat(0.8), 1, questions=2)
    b = a.assign(score=plant(flat(0.4), 2, questions=2)["score"])
    sides = {"a": a, "b": b}
    sides[nameless] = sides[nameless].drop(columns="document_id")
    pairs = pair_records(sides["a"], sides["b"], bins_of(a))
    assert pairs.paired
    assert len(pairs.examples_a) == len(a)
    # The documents are those of the side that knows them.
    assert len(pairs.a.n) == len(a) / 2


def test_names_that_occur_twice_pair_nothing() -> None:
    a = plant(flat(0.8), 1).assign(example_id=lambda of: [f"q{i % 2}" for i in range(len(of))])
    b = a[:1].drop(columns="document_id")
    assert not pair_records(a, b, bins_of(a)).paired


def halves(of: pd.DataFrame) -> pd.Series:
    return of["score"] * 0.5


@pytest.mark.parametrize(
    ("change", "binary"), [(lambda of: of["score"], True), (halves, False)], ids=["0/1", "graded"]
)
def test_a_half_right_document_is_still_of_right_and_wrong_answers(
    change: Callable[[pd.DataFrame], pd.Series], binary: bool
) -> None:
    a = plant(flat(0.5), 1, questions=2)
    side = pair_records(a.assign(score=change(a)), a, bins_of(a)).a
    assert side.binary == binary
    assert {0.5} < set(side.s / side.n) or not binary
