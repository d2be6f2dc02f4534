"""Where drawn curves, known at a few lengths, first exceed a bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats


@dataclass(frozen=True, slots=True)
class Crossing:
    """The length (tokens) at which drawn curves first exceed a bar, with its interval.

    ``tokens`` is None before the smallest or beyond the largest length, ``low`` before the
    smallest, ``high`` beyond the largest.
    """

    tokens: int | None
    low: int | None
    high: int | None


def crossing_of(
    drawn: Floats, lengths: Sequence[int], bar: float | Floats, tail: float
) -> Crossing:
    """Return the crossing of drawn curves (draws, lengths); ``tail`` lie beyond either end.

    Curves are lines over log length; the ends are rounded outwards to ``lengths``, since nothing
    between them was measured.

    Args:
        bar: of all curves, or one each (draws).
    """
    count = len(lengths)
    bars = np.broadcast_to(np.asarray(bar, np.float64), len(drawn))
    beyond = drawn > bars[:, None]
    index = np.where(beyond.any(axis=1), beyond.argmax(axis=1), count)
    reached = np.cumsum(np.bincount(index, minlength=count + 1)) / len(index)
    first = int(np.searchsorted(reached, tail, side="right"))
    last = int(np.searchsorted(reached, 1.0 - tail))
    x = np.log(lengths)
    inside = np.flatnonzero((index > 0) & (index < count))
    at, now = index[inside], drawn[inside, index[inside]]
    before = drawn[inside, at - 1]
    place = np.full(len(drawn), -np.inf)
    place[index == count] = np.inf
    place[inside] = x[at - 1] + (x[at] - x[at - 1]) * (bars[inside] - before) / (now - before)
    middle = float(np.quantile(place, 0.5, method="inverted_cdf"))
    return Crossing(
        round(float(np.exp(middle))) if np.isfinite(middle) else None,
        lengths[first - 1] if first > 0 else None,
        lengths[last] if last < count else None,
    )
