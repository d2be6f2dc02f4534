"""The plain threshold rules, as written."""

from __future__ import annotations

import pytest

from contextcliff_dagster.analysis.robustness import threshold_rules
from contextcliff_dagster.contracts.results.cliffs import Rule
from contextcliff_dagster.contracts.results.json_form import BinResult
from contextcliff_dagster_tests.support.records.profiles import bin_of


def row(key: int, mean: float | None, sd: float | None, failures: float | None) -> BinResult:
    return bin_of(
        bin=f"b0{key}",
        edge_low=1_000 * key,
        mean=mean,
        sd=sd,
        variance=None if sd is None else sd**2,
        failure_rate=failures,
    )


def by_name(bins: list[BinResult], window: int | None = 10_000) -> dict[str, Rule]:
    return {rule.name: rule for rule in threshold_rules(bins, window)}


def test_each_rule_fires_at_its_first_bin() -> None:
    rules = by_name(
        [
            row(0, 0.9, 0.1, 0.1),
            row(1, 0.88, 0.15, 0.12),
            row(2, 0.8, 0.2, 0.2),
            row(3, 0.5, 0.4, 0.5),
        ]
    )
    assert rules["transition_sd"].at_bin == "b02"
    assert rules["transition_sd"].threshold == pytest.approx(0.2)
    assert rules["variance"].at_bin == "b01"
    assert rules["mean_drop"].at_bin == "b03"
    assert rules["mean_drop"].value == pytest.approx(1 - 0.5 / 0.9)
    assert rules["failure_rate_spike"].at_bin == "b02"
    assert (rules["first_failing_edge"].value, rules["first_failing_edge"].at_bin) == (
        2_000,
        "b02",
    )
    assert rules["critical_threshold"].value == pytest.approx(0.2)


def test_a_value_on_its_threshold_is_not_above_it_by_rounding() -> None:
    assert 1 - 0.7 / 1.0 > 0.3  # the trap
    assert not by_name([row(0, 1.0, 0.1, 0), row(1, 0.7, 0.1, 0)])["mean_drop"].fired
    assert by_name([row(0, 1.0, 0.1, 0), row(1, 0.699, 0.1, 0)])["mean_drop"].fired


def test_an_sd_above_a_quarter_cannot_double() -> None:
    rules = by_name([row(0, 0.5, 0.26, 0.3), row(1, 0.4, 0.49, 0.6)])
    assert not rules["transition_sd"].reachable
    assert not rules["transition_sd"].fired
    assert rules["transition_sd"].value == pytest.approx(0.49)
    assert by_name([row(0, 0.5, 0.25, 0.3), row(1, 0.4, 0.5, 0.6)])["transition_sd"].fired


def test_a_variance_of_an_eighth_cannot_double() -> None:
    assert not by_name([row(0, 0.5, 0.36, 0), row(1, 0.5, 0.5, 0)])["variance"].reachable


def test_a_failure_rate_needs_both_a_doubling_and_ten_points() -> None:
    assert not by_name([row(0, 1, 0, 0.02), row(1, 1, 0, 0.11)])["failure_rate_spike"].fired
    assert not by_name([row(0, 1, 0, 0.30), row(1, 1, 0, 0.45)])["failure_rate_spike"].fired
    assert by_name([row(0, 1, 0, 0.02), row(1, 1, 0, 0.12)])["failure_rate_spike"].fired
    assert not by_name([row(0, 1, 0, 0.6), row(1, 1, 0, 1.0)])["failure_rate_spike"].reachable
    assert not by_name([row(0, 1, 0, None), row(1, 1, 0, None)])["failure_rate_spike"].reachable


def test_against_a_baseline_without_spread_any_spread_fires_and_none_does_not() -> None:
    same = by_name([row(0, 1, 0, 0), row(1, 1, 0, 0)])
    assert not same["transition_sd"].fired
    assert by_name([row(0, 1, 0, 0), row(1, 0.9, 0.1, 0)])["transition_sd"].fired


@pytest.mark.parametrize("bins", [[], [row(0, None, None, None)], [row(0, 0.5, 0.2, 0.1)]])
def test_without_a_later_bin_nothing_can_fire(bins: list[BinResult]) -> None:
    for rule in threshold_rules(bins, None):
        assert not rule.fired
        assert rule.at_bin is None


def test_empty_bins_are_passed_over() -> None:
    rules = by_name([row(0, None, None, None), row(1, 0.9, 0.1, 0.1), row(2, 0.2, 0.4, 0.8)])
    assert rules["mean_drop"].at_bin == "b02"
    assert rules["first_failing_edge"].value == 2_000
