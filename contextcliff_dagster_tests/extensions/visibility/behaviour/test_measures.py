"""Behaviour: what moves, what stays, what goes round, and whose steps count."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.behaviour import (
    Behaviour,
    StabilityMetric,
    Step,
    behaviour_of,
)
from contextcliff_dagster.extensions.visibility.tasks.task import Config, Number, Space, clamp
from contextcliff_dagster_tests.extensions.visibility.spaces import SPACE, configs, spaces

RATE = Space((Number("rate", 0.01, 100, log=True),), {"rate": 1.0})


def walk(*rates: float, space: Space = RATE) -> Behaviour:
    first, *later = ({"rate": rate} for rate in rates)
    return behaviour_of(space, [Step(first, "start"), *(Step(one, "model", one) for one in later)])


def proposed(space: Space, proposals: list[object]) -> Behaviour:
    current: Config = space.start
    steps = [Step(current, "start")]
    for proposal in proposals:
        clamped = clamp(space, proposal)
        base, current = current, clamped.onto(current)
        steps.append(Step(current, "model", proposal, events=clamped.events, base=base))
    return behaviour_of(space, steps)


@given(st.data())
def test_every_figure_is_within_0_and_1_and_kinds_of_steps_add_up(data: st.DataObject) -> None:
    space = data.draw(spaces())
    few = data.draw(st.lists(configs(space), min_size=1, max_size=3))
    tried = data.draw(st.lists(st.sampled_from(few), min_size=1, max_size=12))
    sources = st.sampled_from(["model", "fallback"])
    steps = [Step(tried[0], "start"), *(Step(one, data.draw(sources)) for one in tried[1:])]
    found = behaviour_of(space, steps)
    shares = [found.churn, found.changed_parameters, found.stagnation, found.oscillation]
    shares += [found.novelty, found.fallback_share, *found.churn_by_parameter.values()]
    assert all(0 <= share <= 1 for share in shares if share is not None)
    if found.model_steps:
        kinds = (found.stagnation or 0) + (found.oscillation or 0) + (found.novelty or 0)
        assert kinds == pytest.approx(1)
        mean = sum(found.churn_by_parameter.values()) / len(space.names)
        assert found.churn == pytest.approx(mean)
    else:
        assert (found.churn, found.stagnation, found.novelty) == (None, None, None)


def test_staying_and_going_round_are_two_things() -> None:
    """The reference calls both an instability of .9."""
    stayed, circled = walk(*[1.0] * 11), walk(*[1.0, 10.0] * 5, 1.0)
    assert (stayed.stagnation, stayed.oscillation) == (1, 0)
    assert (circled.stagnation, circled.oscillation) == (0, pytest.approx(0.9))
    for rates in ([1.0] * 11, [1.0, 10.0] * 5 + [1.0]):
        theirs = StabilityMetric().evaluate_trace([{"config": {"rate": rate}} for rate in rates])
        assert theirs["instability_score"] > 0.8


def test_churn_is_the_same_for_the_same_ratio_on_a_log_scale() -> None:
    assert walk(0.01, 0.1).churn == pytest.approx(0.25)
    assert walk(10, 100).churn == pytest.approx(0.25)


def test_churn_does_not_grow_with_the_number_of_parameters() -> None:
    many = Space(tuple(Number(f"p{k}", 0, 10) for k in range(8)), {f"p{k}": 0.0 for k in range(8)})
    ends = [dict.fromkeys(many.names, value) for value in (0.0, 10.0)]
    steps = [Step(ends[0], "start"), Step(ends[1], "model", ends[1])]
    assert behaviour_of(many, steps).churn == 1
    theirs, _ = StabilityMetric().calculate_config_distance(*ends)
    assert theirs == pytest.approx(8)


def test_steps_of_a_fallback_are_nobodys_behaviour() -> None:
    steps = [
        Step({"rate": 1.0}, "start"),
        Step({"rate": 100.0}, "fallback", unparsable=True),
        Step({"rate": 100.0}, "model", {"rate": 100.0}),
        Step({"rate": 100.0}, "fallback"),
    ]
    found = behaviour_of(RATE, steps)
    assert (found.steps, found.model_steps) == (3, 1)
    assert (found.churn, found.stagnation) == (0, 1)
    assert found.fallback_share == pytest.approx(2 / 3)
    assert found.unparsable_share == pytest.approx(1 / 3)


def test_changes_that_met_a_bound_are_counted_among_the_changes_asked_for() -> None:
    assert proposed(SPACE, [{"depth": 9, "rate": 7.0, "loss": "l1"}]).clamped_changes == 0.5
    assert proposed(SPACE, [{"depth": 9}, {"depth": 99}, {"depth": 99}]).clamped_changes == (
        pytest.approx(2 / 3)
    ), "asking again for what lies beyond is a change asked for"
    assert proposed(SPACE, [{"depth": 5}, {}, [1], {"rate": math.nan}]).clamped_changes is None


def test_a_whole_number_is_the_same_as_a_float_or_integer_and_true_is_none() -> None:
    assert walk(1, 1.0).stagnation == 1


def test_a_run_without_steps_has_no_behaviour() -> None:
    found = behaviour_of(RATE, [Step({"rate": 1.0}, "start")])
    assert (found.steps, found.churn, found.fallback_share) == (0, None, None)
    assert found.churn_by_parameter == {}


def test_a_step_from_the_best_moves_from_the_step_before_all_the_same() -> None:
    """Churn is over steps as they were trained; changes asked for are from what was shown."""
    steps = [
        Step({"rate": 1.0}, "start"),
        Step({"rate": 100.0}, "model", {"rate": 100.0}, base={"rate": 1.0}),
        Step({"rate": 1.0}, "model", {"rate": 1.0}, base={"rate": 1.0}),
    ]
    found = behaviour_of(RATE, steps)
    assert found.churn == pytest.approx(0.5)
    assert found.clamped_changes == 0
