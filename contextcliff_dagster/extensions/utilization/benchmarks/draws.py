"""Random draws that are the same on every machine and in every version of Python."""

from __future__ import annotations

import random
from collections.abc import MutableSet, Sequence
from typing import TypeVar

One = TypeVar("One")


class Draws:
    """Draws from a stream named by its parts, such as ``Draws("network", 3)``.

    Only `random.Random.random` is used: Python promises its sequence, and no other method's.
    """

    def __init__(self, *name: object) -> None:
        self.random = random.Random("/".join(map(str, name))).random

    def below(self, count: int) -> int:
        """Return one of 0 to ``count`` - 1."""
        return int(self.random() * count)

    def between(self, low: int, high: int) -> int:
        """Return one of ``low`` to ``high``, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, options: Sequence[One]) -> One:
        """Return one of ``options``."""
        return options[int(self.random() * len(options))]

    def shuffled(self, options: Sequence[One]) -> list[One]:
        """Return ``options`` in another order."""
        drawn = list(options)
        for last in range(len(drawn) - 1, 0, -1):
            other = int(self.random() * (last + 1))
            drawn[last], drawn[other] = drawn[other], drawn[last]
        return drawn

    def spread(self, count: int, start: int, stop: int, taken: MutableSet[int]) -> list[int]:
        """Take ``count`` free places, ascending, one in each of as many equal parts.

        Places are ``start`` to ``stop`` - 1 without those in ``taken``, to which they are added.
        Where a part has none left, the nearest free place is taken instead.

        Raises:
            ValueError: fewer than ``count`` are free.
        """
        found = []
        for part in range(count):
            low = start + (stop - start) * part // count
            high = max(low + 1, start + (stop - start) * (part + 1) // count)
            place = self._free(low, high, taken)
            if place is None:
                near = (
                    one
                    for distance in range(stop - start)
                    for one in (low - distance, low + distance)
                    if start <= one < stop and one not in taken
                )
                place = next(near, None)
            if place is None:
                raise ValueError(f"no {count} places are free from {start} to {stop}")
            taken.add(place)
            found.append(place)
        return sorted(found)

    def _free(self, low: int, high: int, taken: MutableSet[int]) -> int | None:
        for _ in range(8):
            if (place := low + self.below(high - low)) not in taken:
                return place
        free = [place for place in range(low, min(high, low + 64)) if place not in taken]
        return self.pick(free) if free else None
