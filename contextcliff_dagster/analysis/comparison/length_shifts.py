"""How far a length moved from one measurement to another: ratios B / A with their intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.length_at_loss import half_drop_lengths, loss_lengths
from contextcliff_dagster.contracts.results.comparison import LossShift

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.comparison.pairing import Pairs, Side
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats

LOSS_RESAMPLES = 300


def loss_shift(
    pairs: Pairs, settings: AnalysisSettings, weights: tuple[Floats, Floats]
) -> LossShift:
    """How far the length moved at which the score has lost the tolerance: ratio B / A.

    Percentile bootstrap over documents, the same documents on both sides where paired. A side that
    loses less within the measured lengths bounds the ratio on one end only.
    """
    return _shift(
        pairs,
        settings,
        weights,
        lambda side, weight: loss_lengths(
            side.length_tokens, side.n, side.s, weight, settings.tolerance, settings.chance
        ),
    )


def midpoint_shift(
    pairs: Pairs,
    settings: AnalysisSettings,
    weights: tuple[Floats, Floats],
    midpoints: tuple[int, int],
) -> LossShift:
    """How far the midpoint of the drop moved; ``midpoints``: those of A and B (tokens).

    The interval is that of `loss_shift`, of half the drop, and holds the ratio.
    """
    shift = _shift(
        pairs,
        settings,
        weights,
        lambda side, weight: half_drop_lengths(
            side.length_tokens, side.n, side.s, weight, settings.chance
        ),
    )
    ratio = midpoints[1] / midpoints[0]
    return LossShift(
        a_tokens=midpoints[0],
        b_tokens=midpoints[1],
        ratio=ratio,
        ci_low=None if shift.ci_low is None else min(shift.ci_low, ratio),
        ci_high=None if shift.ci_high is None else max(shift.ci_high, ratio),
    )


def _shift(
    pairs: Pairs,
    settings: AnalysisSettings,
    weights: tuple[Floats, Floats],
    lengths: Callable[[Side, Floats], Floats],
) -> LossShift:
    at_a, at_b = (
        lengths(side, weight[:, : LOSS_RESAMPLES + 1])
        for side, weight in zip((pairs.a, pairs.b), weights, strict=True)
    )
    longest = float(np.log(min(pairs.a.length_tokens[-1], pairs.b.length_tokens[-1])))
    least = np.where(np.isinf(at_a), -np.inf, np.minimum(at_b, longest) - at_a)
    most = np.where(np.isinf(at_b), np.inf, at_b - np.minimum(at_a, longest))
    tail = 0.5 * (1.0 - settings.confidence)
    low = float(np.quantile(least[1:], tail, method="inverted_cdf"))
    high = float(np.quantile(most[1:], 1.0 - tail, method="inverted_cdf"))
    both = bool(np.isfinite(at_a[0]) and np.isfinite(at_b[0]))
    return LossShift(
        a_tokens=tokens_of(at_a[0]),
        b_tokens=tokens_of(at_b[0]),
        ratio=float(np.exp(at_b[0] - at_a[0])) if both else None,
        ci_low=float(np.exp(low)) if np.isfinite(low) else None,
        ci_high=float(np.exp(high)) if np.isfinite(high) else None,
    )


def tokens_of(log_length: float) -> int | None:
    """Return the length whose logarithm this is; None where it is infinite."""
    return round(float(np.exp(log_length))) if np.isfinite(log_length) else None
