"""A fall over all context sizes at once: sizes are permuted within passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.experiments.continuation.analysis.decline import PERMUTATIONS
from contextcliff_dagster.experiments.continuation.results import Trend

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.experiments.continuation.analysis.intervals import ClusterBootstrap

LEAST_SIZES = 3


def trend_over_sizes(
    means: Floats, sizes: Ints, drawn: ClusterBootstrap, rng: np.random.Generator
) -> Trend | None:
    """The slope over log2 size, passages with their own level; None where it says nothing.

    The statistic is the sum over passages of sum_s (x_s - mean x) y_s, x = log2 size, over the
    sizes that the passage has. Without an effect of the size, a passage's means are exchangeable
    over its sizes. (1 + reached) / (1 + drawn) permutations.

    Args:
        means: of passages by size (P, S), NaN where there is none.
        sizes: context sizes in tokens (S).
    """
    known = ~np.isnan(means)
    if known.any(axis=0).sum() < LEAST_SIZES:
        return None
    x = np.log2(sizes)
    enough = known.sum(axis=1) > 1
    observed, spread, per_passage = 0.0, 0.0, np.full(len(means), np.nan)
    falls = np.zeros(PERMUTATIONS)
    for pattern in np.unique(known[enough], axis=0):
        rows = np.flatnonzero(enough & (known == pattern).all(axis=1))
        centred = x[pattern] - x[pattern].mean()
        y = means[np.ix_(rows, np.flatnonzero(pattern))]
        observed -= float((y @ centred).sum())
        spread += len(rows) * float(centred @ centred)
        per_passage[rows] = y @ centred / (centred @ centred)
        for values in y[np.ptp(y, axis=1) > 0.0]:
            falls -= rng.permuted(np.tile(values, (PERMUTATIONS, 1)), axis=1) @ centred
    if spread == 0.0 or np.ptp(falls) < 1e-12:
        return None
    low, high = drawn.interval(per_passage)
    slope = -observed / spread
    return Trend(
        slope=slope,
        ci_low=None if low is None else min(low, slope),
        ci_high=None if high is None else max(high, slope),
        p_value=float((1 + (falls >= observed - 1e-9).sum()) / (1 + PERMUTATIONS)),
        p_holm=None,
    )
