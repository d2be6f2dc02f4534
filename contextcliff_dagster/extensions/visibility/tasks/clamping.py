"""A proposal made to fit a task's space, with an event for everything that was changed in it.

Nothing in a proposal raises. Against context-eval: NaN changes nothing instead of becoming the
upper bound, infinity and integers of any size meet the bound, and what cannot be read, was read as
another type, rounded or not known is an event instead of silence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from contextcliff_dagster.extensions.visibility.tasks.parameters import (
    Choice,
    Number,
    Parameter,
    Space,
    Value,
)

Shown: TypeAlias = Value | None
_LONGEST = 80
_EXACT = 1 << 53


class Reason(StrEnum):
    """Why what was proposed is not what is executed."""

    BELOW = "below"
    ABOVE = "above"
    ROUNDED = "rounded"
    CONVERTED = "converted"
    NAN = "nan"
    NOT_A_NUMBER = "not_a_number"
    NOT_A_CHOICE = "not_a_choice"
    UNKNOWN = "unknown_parameter"
    NO_OBJECT = "no_object"


@dataclass(frozen=True, slots=True)
class ClampEvent:
    """One change to a proposal; ``executed`` is None where the current value stays.

    ``parameter`` is empty for a proposal that is no JSON object. ``proposed`` can be written as
    JSON: what cannot, or is long, is described.
    """

    parameter: str
    proposed: Shown
    executed: Shown
    reason: Reason

    @property
    def out_of_bounds(self) -> bool:
        return self.reason in (Reason.BELOW, Reason.ABOVE)


@dataclass(frozen=True, slots=True)
class Clamped:
    """The parameters that a proposal sets, within the bounds, and what was changed in it."""

    values: Mapping[str, Value]
    events: tuple[ClampEvent, ...]

    def onto(self, current: Mapping[str, Value]) -> dict[str, Value]:
        """Return the current configuration with the proposed values in it."""
        return {**current, **self.values}


def clamp(space: Space, proposal: object) -> Clamped:
    """Return what a proposal, any JSON value, sets in ``space``.

    Numbers beyond a bound become the bound; integers are rounded half to even, after that test.
    A parameter that the proposal leaves out, or whose value cannot be read, keeps its value.
    """
    if not isinstance(proposal, Mapping):
        return Clamped({}, (ClampEvent("", shown(proposal), None, Reason.NO_OBJECT),))
    known = {one.name: one for one in space.parameters}
    values: dict[str, Value] = {}
    events = []
    for name, value in proposal.items():
        executed: Value | None = None
        reason: Reason | None = Reason.UNKNOWN
        if name in known:
            executed, reason = _fitted(known[name], value)
        if executed is not None:
            values[name] = executed
        if reason is not None:
            events.append(ClampEvent(str(shown(name)), shown(value), executed, reason))
    return Clamped(values, tuple(events))


def _fitted(parameter: Parameter, value: object) -> tuple[Value | None, Reason | None]:
    if isinstance(parameter, Choice):
        return _choice(parameter, value)
    return _number(parameter, value)


def _number(parameter: Number, value: object) -> tuple[Value | None, Reason | None]:
    reason = None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None, Reason.NOT_A_NUMBER
        reason = Reason.CONVERTED
    # True is an integer to Python, and no number to the person who reads a configuration.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, Reason.NOT_A_NUMBER
    if value != value:
        return None, Reason.NAN
    if value < parameter.low:
        reason = Reason.BELOW
    elif value > parameter.high:
        reason = Reason.ABOVE
    elif parameter.integer and not float(value).is_integer():
        reason = Reason.ROUNDED
    return parameter.clipped(value), reason


def _choice(parameter: Choice, value: object) -> tuple[Value | None, Reason | None]:
    for choice in parameter.choices:
        if type(value) is type(choice) and value == choice:
            return choice, None
    for choice in parameter.choices:
        if _written(shown(value)) == _written(choice):
            return choice, Reason.CONVERTED
    return None, Reason.NOT_A_CHOICE


def _written(value: Shown) -> str:
    """The value as models write it: 1 and 1.0 are 1, true and 1 are the same, case aside."""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    text = str(value).strip().lower()
    return {"true": "1", "false": "0"}.get(text, text)


def shown(value: object) -> Shown:
    """Return ``value`` as JSON can hold it: numbers and short texts as they are, the rest in words.

    >>> shown(float("nan")), shown(10**5000), shown([1, 2])
    ('nan', 'an integer of 16610 bits', 'a list')
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # Past 4,300 digits Python refuses to write an integer; past 2**53 JSON readers round it.
        return value if abs(value) <= _EXACT else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
    return f"a {type(value).__name__}"
