"""Positions, distances and bounds of parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.tasks.catalogue import TASKS
from contextcliff_dagster.extensions.visibility.tasks.task import Choice, Number, Space, clamp
from contextcliff_dagster_tests.extensions.visibility.spaces import configs, spaces


@given(st.data())
def test_distances_are_within_0_and_1_symmetric_and_0_for_the_same(data: st.DataObject) -> None:
    space = data.draw(spaces())
    a, b = data.draw(configs(space)), data.draw(configs(space))
    there, back = space.distances(a, b), space.distances(b, a)
    assert ((there >= 0) & (there <= 1)).all()
    assert (there == back).all()
    assert not space.distances(a, a).any()


@given(st.data())
def test_a_position_gives_its_value_back(data: st.DataObject) -> None:
    space = data.draw(spaces())
    config = data.draw(configs(space))
    again = space.at(space.positions(config))
    assert again == pytest.approx(config)
    assert ((space.positions(config) >= 0) & (space.positions(config) <= 1)).all()


def test_a_log_scale_has_its_middle_at_the_geometric_mean() -> None:
    rate = Number("rate", 0.01, 100, log=True)
    assert rate.at(0.5) == pytest.approx(1)
    assert rate.distance(0.01, 0.1) == pytest.approx(rate.distance(10, 100)) == pytest.approx(0.25)


def test_choices_share_the_positions_evenly() -> None:
    loss = Choice("loss", ("a", "b", "c"))
    assert [loss.at(place) for place in (0, 0.3, 0.34, 0.7, 1)] == ["a", "a", "b", "c", "c"]
    assert loss.distance("a", "c") == loss.distance("b", "c") == 1


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Number("x", 1, 1), "no finite bounds"),
        (lambda: Number("x", float("nan"), 1), "no finite bounds"),
        (lambda: Number("x", 0, 1, log=True), "needs a lower bound above 0"),
        (lambda: Number("x", 0.5, 2, integer=True), "bounds of an integer"),
        (lambda: Choice("x", ("a",)), "fewer than two"),
        (lambda: Space((Number("x", 0, 1),), {}), "each parameter once"),
        (lambda: Space((Number("x", 0, 1),) * 2, {"x": 0.5}), "each parameter once"),
    ],
)
def test_a_space_without_sense_is_refused(make: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()  # type: ignore[operator]


def test_every_task_begins_within_its_bounds() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS) >= 12
    for task in TASKS:
        clamped = clamp(task.space, dict(task.space.start))
        assert (clamped.events, dict(clamped.values)) == ((), dict(task.space.start)), task.name
