"""A change of the mean in a sequence, wherever it happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats

LEAST_SIDE = 6


@dataclass(frozen=True, slots=True)
class Change:
    """Index of the first value after the likeliest change, and the chance of one as large."""

    place: int
    p_value: float


def find_change(values: Floats, permutations: int, seed: int) -> Change | None:
    """The largest standardised difference of means before and after any place, by permutation.

    The maximum over all places makes it one test. ``None`` with fewer than 12 values.

    >>> change = find_change(np.repeat([0.9, 0.1], 20), permutations=199, seed=0)
    >>> change.place, change.p_value
    (20, 0.005)
    """
    count = len(values)
    if count < 2 * LEAST_SIDE:
        return None
    rng = np.random.default_rng((seed, 7))
    centred = values - values.mean()
    orders = np.vstack([centred, rng.permuted(np.tile(centred, (permutations, 1)), axis=1)])
    place = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    reach = np.abs(np.cumsum(orders, axis=1)[:, place - 1])
    reach /= np.sqrt(place * (count - place) / count)
    largest = reach.max(axis=1)
    chance = float(np.mean(largest >= largest[0] - 1e-9))
    return Change(int(place[int(np.argmax(reach[0]))]), chance)
