"""Means of the metrics against plain pandas, their intervals at any scale, and recitation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts.results import from_json, to_json
from contextcliff_dagster.extensions.continuation.results import (
    ContinuationResult,
    MetricSize,
    Recitation,
)
from contextcliff_dagster_tests.extensions.continuation.measured_study import (
    measured_result,
    measured_rows,
)
from contextcliff_dagster_tests.support.examples import examples


def sizes_of(result: ContinuationResult, metric: str, arm: int = 0) -> list[MetricSize]:
    (found,) = (one for one in result.metrics if one.name == metric)
    return list(found.arms[arm].sizes)


def test_means_are_those_of_passages_and_rounds() -> None:
    rows = measured_rows(("base", "hot"))
    rows.loc[::7, "lix"] = np.nan
    result = measured_result(rows.sample(frac=1.0, random_state=1))
    mine = rows[rows["arm"] == "hot"]
    for one in sizes_of(result, "lix", 1):
        here = mine[(mine["context_tokens"] == one.context_tokens) & mine["lix"].notna()]
        assert one.n == len(here)
        by_passage = here.groupby(["text", "passage"])["lix"].mean()
        assert one.n_passages == len(by_passage)
        assert one.mean == pytest.approx(by_passage.mean())
        assert one.rounds == pytest.approx(here.groupby("round")["lix"].mean().to_list())
        assert one.ci_low is not None
        assert one.ci_high is not None
        assert one.ci_low < one.mean < one.ci_high
    assert from_json(ContinuationResult, to_json(result)) == result


@examples(10)
@given(st.floats(1e-3, 1e4), st.floats(0, 1e4))
def test_intervals_follow_the_scale_of_the_metric(scale: float, shift: float) -> None:
    rows = measured_rows()
    first = sizes_of(measured_result(rows), "lix")
    moved = sizes_of(measured_result(rows.assign(lix=rows["lix"] * scale + shift)), "lix")
    for one, other in zip(first, moved, strict=True):
        ends = [one.ci_low, one.mean, one.ci_high]
        expected = [end * scale + shift for end in ends if end is not None]
        found = [other.ci_low, other.mean, other.ci_high]
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6 * scale)


@pytest.mark.parametrize(("metric", "least", "most"), [("commas", 0, None), ("rhythm", -1, 1)])
def test_intervals_end_where_the_metric_does(metric: str, least: float, most: float | None) -> None:
    rows = measured_rows()
    at_the_end = np.where(rows["passage"] == rows["passage"].iloc[0], 1.0, least)
    for one in sizes_of(measured_result(rows.assign(**{metric: at_the_end})), metric):
        assert one.mean is not None
        assert one.ci_low == least < one.mean
        assert one.ci_high is not None
        assert one.mean < one.ci_high <= (most or np.inf)


def test_what_is_not_measured_is_missing_and_never_zero() -> None:
    rows = measured_rows().drop(columns="lix").assign(rhythm=np.nan, commas=3.0)
    result = measured_result(rows)
    for name in ("lix", "rhythm", "far_coherence"):
        for one in sizes_of(result, name):
            assert (one.mean, one.ci_low, one.n) == (None, None, 0)
    constant = sizes_of(result, "commas")[0]
    assert (constant.mean, constant.ci_low) == (3.0, None)


def recited(rows: pd.DataFrame, **at: int) -> tuple[Recitation, list[str]]:
    result = measured_result(rows)
    assert result.recitation is not None
    return result.recitation, [one for one in result.warnings if "recites" in one]


def test_recitation_is_counted_and_warned_of_where_it_is_common() -> None:
    rows = measured_rows(("base", "hot"))
    found, warnings = recited(rows)
    assert not warnings
    assert sum(one.recited for arm in found.arms for one in arm.sizes) == 0
    longest = found.chance_run
    long = (rows["arm"] == "hot") & (rows["context_tokens"] == 4096)
    assert long.sum() == 24
    few = rows.copy()
    few.loc[few[long].index[:1], ["longest_run", "shared_runs"]] = (longest + 9, 0.5)
    found, warnings = recited(few)
    assert [one.recited for one in found.arms[1].sizes] == [0, 0, 0, 1]
    assert not warnings
    many = rows.copy()
    many.loc[many[long].index[:6], ["longest_run", "shared_runs"]] = (longest + 9, 0.5)
    (warning,) = recited(many)[1]
    assert "Arm hot recites: 6 of 24 continuations (25.0%) at 4,096 tokens" in warning


def test_without_an_overlap_in_the_records_nothing_is_said_of_recitation() -> None:
    assert measured_result(measured_rows().drop(columns="longest_run")).recitation is None
