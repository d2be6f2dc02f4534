"""Parameters of a task, and the space that they span.

A position is a value's place between its bounds, 0 to 1, on the parameter's own scale: the middle
of .01 to 100 on a log scale is 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Value: TypeAlias = float | int | str | bool
Config: TypeAlias = Mapping[str, Value]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Number:
    """A number from ``low`` to ``high``, both included.

    Raises:
        ValueError: there is nothing between the bounds, a log scale reaches 0, or the bounds of
            an integer are none.
    """

    name: str
    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"{self.name}: no finite bounds with numbers between them")
        if self.log and self.low <= 0:
            raise ValueError(f"{self.name}: a log scale begins above 0")
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"{self.name}: the bounds of an integer are integers")

    def clipped(self, value: float) -> float | int:
        """Return ``value`` within the bounds; an integer where the parameter is one, half to even.

        Any finite or infinite number is allowed, integers of any size, too.
        """
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.integer else float(inside)

    def position(self, value: Value) -> float:
        """Return the position of a number, or of the bound that it lies beyond."""
        inside, low, high = float(self.clipped(float(value))), self.low, self.high
        if self.log:
            inside, low, high = math.log(inside), math.log(low), math.log(high)
        return (inside - low) / (high - low)

    def at(self, position: float) -> float | int:
        """Return the value at a position."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return self.clipped(math.exp(low + position * (high - low)))
        return self.clipped(self.low + position * (self.high - self.low))

    def distance(self, a: Value, b: Value) -> float:
        """Return how far two values are from each other: 0 to 1."""
        return abs(self.position(a) - self.position(b))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values without an order.

    Raises:
        ValueError: there are fewer than two, or two are equal.
    """

    name: str
    choices: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(map(str, self.choices))) != len(self.choices) or len(self.choices) < 2:
            raise ValueError(f"{self.name}: fewer than two different choices")

    def position(self, value: Value) -> float:
        """Return the middle of the choice's share of 0 to 1.

        Raises:
            ValueError: it is none of the choices.
        """
        return (self.choices.index(value) + 0.5) / len(self.choices)

    def at(self, position: float) -> Value:
        """Return the choice at a position."""
        return self.choices[min(int(position * len(self.choices)), len(self.choices) - 1)]

    def distance(self, a: Value, b: Value) -> float:
        """Return 0 for the same choice, 1 for another."""
        return float(a != b)


Parameter: TypeAlias = Number | Choice


@dataclass(frozen=True, slots=True)
class Space:
    """The parameters of a task, sorted by name, and the configuration that it begins with."""

    parameters: tuple[Parameter, ...]
    start: Config

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.parameters, key=lambda one: one.name))
        object.__setattr__(self, "parameters", ordered)
        if set(self.start) != set(self.names) or len(self.start) != len(ordered):
            raise ValueError("the start does not have each parameter once")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.parameters)

    def at(self, positions: Sequence[float] | Floats) -> dict[str, Value]:
        """Return the configuration at these positions, in the order of `names`."""
        pairs = zip(self.parameters, positions, strict=True)
        return {one.name: one.at(float(place)) for one, place in pairs}

    def positions(self, config: Config) -> Floats:
        """Return the position of each parameter, in the order of `names`."""
        return np.array([one.position(config[one.name]) for one in self.parameters])

    def distances(self, a: Config, b: Config) -> Floats:
        """Return how far each parameter moved between two configurations: 0 to 1 each."""
        pairs = ((one, a[one.name], b[one.name]) for one in self.parameters)
        return np.array([one.distance(x, y) for one, x, y in pairs])

    def without_order(self) -> NDArray[np.bool_]:
        """Return which parameters are choices, in the order of `names`."""
        return np.array([isinstance(one, Choice) for one in self.parameters])
