"""What becomes of a proposal: always something that can be trained, and always with an account."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.tasks.task import Reason, clamp
from contextcliff_dagster_tests.extensions.visibility.spaces import SPACE, spaces

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.integers().map(lambda k: k**200)
    | st.text()
    | st.sampled_from(["1e999", "nan", "-inf", "true", "L1", " 7 ", "9" * 5000, "0x10"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@given(st.data())
def test_clamped_values_are_clamped_to_themselves(data: st.DataObject) -> None:
    space = data.draw(spaces())
    proposal = data.draw(st.dictionaries(st.sampled_from(space.names), ANYTHING))
    once = clamp(space, proposal)
    again = clamp(space, once.values)
    assert again.values == once.values
    assert not again.events
    positions = space.positions(once.onto(space.start))
    assert ((positions >= 0) & (positions <= 1)).all()


@given(ANYTHING | st.dictionaries(st.sampled_from(SPACE.names) | st.text(), ANYTHING))
def test_whatever_is_not_executed_as_proposed_is_an_event(proposal: object) -> None:
    clamped = clamp(SPACE, proposal)
    json.dumps([[one.proposed, one.executed] for one in clamped.events], allow_nan=False)
    if not isinstance(proposal, dict):
        assert [one.reason for one in clamped.events] == [Reason.NO_OBJECT]
        return
    silent = proposal.keys() - {one.parameter for one in clamped.events}
    for name in silent & set(SPACE.names):
        assert clamped.values[name] == proposal[name]
        assert type(clamped.values[name]) is type(proposal[name]) or name in ("rate", "shift")
    assert set(clamped.values) <= set(SPACE.names)


@pytest.mark.parametrize(
    ("name", "value", "executed", "reason"),
    [
        ("rate", math.nan, None, Reason.NAN),
        ("rate", "nan", None, Reason.NAN),
        ("rate", math.inf, 1.0, Reason.ABOVE),
        ("rate", -math.inf, 1e-4, Reason.BELOW),
        ("rate", "1e999", 1.0, Reason.ABOVE),
        ("rate", "0.5", 0.5, Reason.CONVERTED),
        ("rate", "fast", None, Reason.NOT_A_NUMBER),
        ("rate", [0.5], None, Reason.NOT_A_NUMBER),
        ("rate", None, None, Reason.NOT_A_NUMBER),
        ("rate", True, None, Reason.NOT_A_NUMBER),
        ("depth", math.inf, 20, Reason.ABOVE),
        ("depth", 10**400, 20, Reason.ABOVE),
        ("depth", -(10**5000), 1, Reason.BELOW),
        ("depth", "9" * 5000, 20, Reason.ABOVE),
        ("depth", 20.4, 20, Reason.ABOVE),
        ("depth", 2.5, 2, Reason.ROUNDED),
        ("depth", 3.5, 4, Reason.ROUNDED),
        ("loss", "L2 ", "l2", Reason.CONVERTED),
        ("loss", "mse", None, Reason.NOT_A_CHOICE),
        ("loss", 10**5000, None, Reason.NOT_A_CHOICE),
        ("warm", 1, True, Reason.CONVERTED),
        ("warm", "false", False, Reason.CONVERTED),
        ("warm", 2, None, Reason.NOT_A_CHOICE),
        ("Rate", 0.5, None, Reason.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__,  # pytest cannot write the longest integers
)
def test_each_case(name: str, value: object, executed: object, reason: Reason) -> None:
    clamped = clamp(SPACE, {name: value})
    (event,) = clamped.events
    assert (event.parameter, event.executed, event.reason) == (name, executed, reason)
    assert dict(clamped.values) == ({} if executed is None else {name: executed})
    assert type(clamped.values.get(name)) is type(executed)


def test_what_is_proposed_within_the_bounds_is_executed_in_silence() -> None:
    proposal = {"depth": 7, "rate": 0.1, "loss": "huber", "warm": True}
    clamped = clamp(SPACE, proposal)
    assert not clamped.events
    assert clamped.onto(SPACE.start) == {**proposal, "shift": 0.0}
    assert clamp(SPACE, {"depth": 7.0}).values == {"depth": 7}
