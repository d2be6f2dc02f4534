"""Sign-flip tests of paired differences, and Holm's adjustment of several tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Bools, Floats

MOST_EXACT = 20
"""Units that differ up to which all signs are gone through."""
_AT_ONCE = 2_000_000
_MOST_WHOLE = 100_000


def sign_flip_p_value(
    change: Floats, permutations: int, rng: np.random.Generator, *, one_sided: bool = False
) -> tuple[float, bool]:
    """P-value of a sum of differences, one a unit (D), and whether it is exact.

    Where conditions are alike, a unit's difference is as likely to have the other sign (Fisher
    1935, The Design of Experiments). Exact for whole numbers, by the distribution of their sum,
    and for up to `MOST_EXACT` units that differ, over all signs; else by ``permutations`` drawn
    ones, (1 + reached) / (1 + drawn), of which the observed one is never missing.

    Args:
        one_sided: only sums at least as large as the observed one count, not those as small.

    >>> change = np.array([0.1, 0.2, 0.3])
    >>> sign_flip_p_value(change, 99, np.random.default_rng(0))
    (0.25, True)
    >>> sign_flip_p_value(change, 99, np.random.default_rng(0), one_sided=True)
    (0.125, True)
    """
    size, observed = np.sort(np.abs(change[change != 0.0])), float(change.sum())

    def reached(sums: Floats) -> Bools:
        if one_sided:
            return sums >= observed - 1e-9
        return np.abs(sums) >= abs(observed) - 1e-9

    if (size == np.round(size)).all() and size.sum() <= _MOST_WHOLE:
        whole = size.astype(np.int64)
        total = int(whole.sum())
        chance = np.zeros(2 * total + 1)
        chance[total] = 1.0
        for step in whole:
            chance = 0.5 * (np.roll(chance, step) + np.roll(chance, -step))
        return min(float(chance[reached(np.arange(-total, total + 1.0))].sum()), 1.0), True
    if len(size) <= MOST_EXACT:
        sums = np.zeros(1)
        for step in size:
            sums = np.concatenate([sums - step, sums + step])
        return float(reached(sums).mean()), True
    reached_by = 0
    at_once = max(1, _AT_ONCE // len(size))
    for first in range(0, permutations, at_once):
        rows = min(at_once, permutations - first)
        drawn = (2.0 * rng.integers(0, 2, size=(rows, len(size))) - 1.0) @ size
        reached_by += int(reached(drawn).sum())
    return (1.0 + reached_by) / (1.0 + permutations), False


def holm(
    p_values: Sequence[float | None], weights: Sequence[float] | None = None
) -> list[float | None]:
    """Holm's adjusted p-values (1979, Scandinavian Journal of Statistics 6, 65-70); None stays.

    ``weights``: how much of the error rate each test has, above 0; only their ratios matter. All
    are alike when None.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    >>> [round(p, 3) for p in holm([0.02, 0.02], [3.0, 1.0])]
    [0.027, 0.027]
    """
    of = [1.0] * len(p_values) if weights is None else weights
    known = sorted((p / of[i], i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (scaled, i) in enumerate(known):
        left = sum(of[j] for _, j in known[rank:])
        least = max(least, min(left * scaled, 1.0))
        adjusted[i] = least
    return adjusted
