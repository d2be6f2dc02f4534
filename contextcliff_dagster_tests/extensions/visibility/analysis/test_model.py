"""The analysis of one model: laws that hold of any records, planted effects, grids with holes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.contracts.results.json_form import from_json, to_json
from contextcliff_dagster.extensions.visibility.analysis.model import analyse_model
from contextcliff_dagster.extensions.visibility.results import AxisEffect, VisibilityResult
from contextcliff_dagster.extensions.visibility.section import PlannedRun, runs_of
from contextcliff_dagster_tests.extensions.visibility.analysis.planted_runs import (
    noisy,
    planted_records,
    planted_section,
)
from contextcliff_dagster_tests.support.examples import examples


def _effect(result: VisibilityResult, axis: str, outcome: str = "regret") -> AxisEffect:
    (effect,) = (one for one in result.effects if (one.axis, one.outcome) == (axis, outcome))
    return effect


def _bounds_help(run: PlannedRun) -> float:
    return -0.2 if run.axes.bounds == "shown" else 0.0


def test_a_planted_effect_has_its_sign_and_its_size() -> None:
    section = planted_section()
    result = analyse_model(planted_records(section, noisy(_bounds_help)), section)
    bounds, task = _effect(result, "bounds"), _effect(result, "task")
    assert bounds.verdict == "better"
    assert result.verdict == "helps"
    assert bounds.ci_low is not None
    assert bounds.ci_high is not None
    assert bounds.ci_low < -0.2 < bounds.ci_high < 0
    assert bounds.difference == pytest.approx(
        np.mean([one.difference for one in bounds.by_benchmark])
    )
    assert task.verdict != "better"
    assert (bounds.n_pairs, bounds.n_clusters) == (16, 8)
    assert result.headline[1].startswith("Showing the bounds lowers the regret: -0.")


@examples(10)
@given(st.integers(0, 1000))
def test_swapped_labels_change_the_sign_and_no_p_value(seed: int) -> None:
    section = planted_section()
    regret = noisy(_bounds_help, seed)
    swapped = {"hidden": "shown", "shown": "hidden"}

    def other(run: PlannedRun) -> list[float]:
        bounds = swapped[run.axes.bounds]
        return list(regret(replace(run, axes=replace(run.axes, bounds=bounds))))  # type: ignore[arg-type]

    one, two = (
        _effect(analyse_model(planted_records(section, each), section), "bounds")
        for each in (regret, other)
    )
    assert one.difference is not None
    assert two.difference is not None
    assert one.difference == pytest.approx(-two.difference)
    assert one.ci_low == pytest.approx(-(two.ci_high or 0))
    assert one.p_value == pytest.approx(two.p_value, abs=0.02)


@examples(5)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(random: Random) -> None:
    section = planted_section(seeds=2)
    records = planted_records(section, noisy(_bounds_help))
    order = list(range(len(records)))
    random.shuffle(order)
    assert analyse_model(records.iloc[order], section) == analyse_model(records, section)


def test_constant_outcomes_have_no_difference_and_no_nan() -> None:
    section = planted_section(task=["hidden", "placebo", "shown"], history=[0, 5])
    records = planted_records(section, lambda run: [0.5] * 3)
    result = analyse_model(records, section)
    assert result.verdict == "no_benefit" or result.verdict == "undecided"
    for effect in result.effects:
        if effect.outcome == "clamped_changes":
            continue
        assert (effect.difference, effect.p_value, effect.p_holm) == (0.0, 1.0, None), effect
        assert effect.ci_low is not None
        assert effect.ci_low < 0 < (effect.ci_high or 0)
        assert effect.standardised is None
    assert all((one.difference, one.p_value) == (0.0, 1.0) for one in result.interactions)
    assert "NaN" not in str(to_json(result))
    assert result.plan == []


@examples(15)
@given(st.data())
def test_holes_are_named_and_fill_themselves_with_nothing(data: st.DataObject) -> None:
    section = planted_section(seeds=2)
    records = planted_records(section, noisy(_bounds_help))
    kept = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    left = records[np.array(kept)]
    result = analyse_model(left, section)
    steps = left.groupby("run").size().to_dict()
    whole = {run for run, n in steps.items() if n == section.steps}
    assert result.n_runs == len(whole)
    lacking = {one.run: one.steps for one in result.missing}
    assert lacking == {
        run.key: steps.get(run.key, 0) for run in runs_of(section) if run.key not in whole
    }
    for axis in ("task", "bounds"):
        pairs = 0
        for run in runs_of(section):
            hidden = replace(run, axes=replace(run.axes, **{axis: "hidden"}))  # type: ignore[arg-type]
            pairs += run != hidden and {run.key, hidden.key} <= whole
        assert _effect(result, axis).n_pairs == pairs
    assert from_json(VisibilityResult, to_json(result)) == result


def test_an_unanswered_step_takes_its_run_out() -> None:
    section = planted_section(seeds=2)
    records = planted_records(section, noisy(_bounds_help))
    records.loc[3, "failure"] = "context_overflow"
    result = analyse_model(records, section)
    assert [one.run for one in result.missing] == [records.loc[3, "run"]]
    assert "1 of 16 runs have a step without an answer" in result.warnings[0]
    nothing = analyse_model(records.iloc[:0], section)
    assert (nothing.n_runs, nothing.verdict) == (0, "undecided")


def test_a_step_with_two_records_is_refused() -> None:
    section = planted_section(seeds=2)
    records = planted_records(section, noisy(_bounds_help))
    with pytest.raises(ContextCliffError, match=r"Step 1 of run .* has two records"):
        analyse_model(pd.concat([records, records.iloc[:1]]), section)


def test_length_and_content_of_a_text_are_told_apart() -> None:
    section = planted_section(task=["hidden", "placebo", "shown"], seeds=8)

    def longer_prompts_harm(run: PlannedRun) -> float:
        return 0.0 if run.axes.task == "hidden" else 0.2

    result = analyse_model(planted_records(section, noisy(longer_prompts_harm)), section)
    verdicts = {
        one.contrast: one.verdict
        for one in result.effects
        if one.axis == "task" and one.outcome == "regret"
    }
    assert (verdicts["length"], verdicts["shown"]) == ("worse", "worse")
    assert verdicts["content"] in ("undecided", "no_benefit")
    assert any(one.startswith("Another text of the length of the text") for one in result.headline)


def test_no_benefit_needs_the_whole_interval() -> None:
    section = planted_section(seeds=12)
    same = analyse_model(planted_records(section, noisy(lambda run: 0.0, spread=0.05)), section)
    few = planted_section(seeds=2)
    wide = analyse_model(planted_records(few, noisy(lambda run: 0.0, spread=0.2)), few)
    assert same.verdict == "no_benefit"
    assert wide.verdict == "undecided"
    excluded = _effect(same, "task").excluded
    assert excluded is not None
    assert 0 < excluded < section.margin


def test_the_limit_of_the_benefit_is_beyond_the_interval() -> None:
    section = planted_section(seeds=6)

    def helps_a_little(run: PlannedRun) -> float:
        return -0.08 if run.axes.bounds == "shown" else 0.0

    result = analyse_model(planted_records(section, noisy(helps_a_little)), section)
    bounds = _effect(result, "bounds")
    assert bounds.excluded is not None
    assert bounds.ci_low is not None
    assert -bounds.ci_low < bounds.excluded < -bounds.ci_low + 0.1
    assert _effect(result, "bounds", "churn").excluded is None


def test_where_nothing_is_left_to_gain_no_benefit_shows_nothing() -> None:
    section = planted_section(seeds=12)
    regret = noisy(lambda run: -0.4, spread=0.02)
    task = _effect(analyse_model(planted_records(section, regret), section), "task")
    assert task.mean_reference == pytest.approx(0.1, abs=0.02)
    assert task.excluded is not None
    assert task.excluded < section.margin
    assert task.verdict == "undecided"


def test_an_interaction_is_the_difference_of_two_effects() -> None:
    section = planted_section(seeds=6)

    def both_help(run: PlannedRun) -> float:
        shown = run.axes.bounds == "shown" and run.axes.task == "shown"
        return -0.3 if shown else 0.0

    result = analyse_model(planted_records(section, noisy(both_help)), section)
    (one,) = result.interactions
    assert {one.axis, one.other} == {"task", "bounds"}
    assert one.difference == pytest.approx(-0.3, abs=0.1)
    assert one.p_holm is not None
    assert one.p_holm < 0.05


def test_a_single_seed_has_no_test() -> None:
    section = planted_section(benchmarks=["toy"], seeds=1)
    result = analyse_model(planted_records(section, noisy(_bounds_help)), section)
    bounds = _effect(result, "bounds")
    assert bounds.difference is not None
    assert (bounds.ci_low, bounds.p_value, bounds.excluded) == (None, None, None)
    assert any("single seed" in one for one in result.warnings)


def test_searches_are_compared_over_the_same_seeds() -> None:
    section = planted_section(seeds=3)
    records = planted_records(section, lambda run: [0.9, 0.5, 0.4])
    curves = {("toy", seed): np.array([0.9, 0.6, 0.3]) for seed in range(2)}
    result = analyse_model(records, section, baselines={"random": curves})
    (search,) = result.searches
    assert search.n_clusters == 2
    assert search.regret == pytest.approx(0.3)
    assert search.difference == pytest.approx(0.1)
    assert [point.regret for point in search.curve.points] == pytest.approx([0.9, 0.6, 0.3])
    assert search.area == pytest.approx(0.6)
    with pytest.raises(ContextCliffError, match="curves of search random"):
        analyse_model(records, section, baselines={"random": {("toy", 0): np.ones(2)}})


def test_curves_begin_at_the_start() -> None:
    section = planted_section(history=[0, 5])
    records = planted_records(section, lambda run: [0.9, 0.5, 0.1 if run.axes.history else 0.3])
    result = analyse_model(records, section)
    by_level = {one.level: one for one in result.curves if one.axis == "history"}
    assert [point.regret for point in by_level["5"].points] == pytest.approx([0.9, 0.5, 0.1])
    assert [point.regret for point in by_level["0"].points] == pytest.approx([0.9, 0.5, 0.3])
    cell = next(one for one in result.cells if one.levels["history"] == "5")
    assert cell.means["regret"] == pytest.approx(0.1)
    assert cell.means["area"] == pytest.approx(0.5)
    assert sum(one.n_runs for one in result.cells) == result.n_runs


def test_pairs_that_try_the_same_configurations_are_named() -> None:
    section = planted_section()
    records = planted_records(section, noisy(lambda run: 0.0))
    same = "In 32 of 32 pairs both runs tried the same configurations"
    assert [one for one in analyse_model(records, section).warnings if one.startswith(same)]
    elsewhere = records["run"].str.contains("b1") & (records["step"] == 1)
    records.loc[elsewhere, "config"] = records.loc[elsewhere, "start_config"]
    half = "In 16 of 32 pairs both runs"
    assert [one for one in analyse_model(records, section).warnings if one.startswith(half)]
    elsewhere = records["run"].str.contains("t1m0r0b0") & (records["step"] == 2)
    records.loc[elsewhere, "config"] = records.loc[elsewhere, "start_config"]
    warnings = analyse_model(records, section).warnings
    assert not [one for one in warnings if "pairs both runs tried" in one], "a minority"
