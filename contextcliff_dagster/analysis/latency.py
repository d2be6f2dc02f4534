"""Telemetry per bin, and what of it length alone does not explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_LEAST_CALLS = 12


def summary(values: Floats) -> dict[str, float] | None:
    """Median, 95th percentile and SD (population) of times in ms; ``None`` without any."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    p50, p95 = np.quantile(known, (0.5, 0.95))
    return {"p50": float(p50), "p95": float(p95), "sd": float(known.std())}


def excess_over_length(length_tokens: Floats, ttft_ms: Floats) -> Floats | None:
    """Each call's TTFT over what its length predicts, minus 1; NaN where unknown.

    The prediction is a + b L + c L^2 (prefill is linear in the weights and quadratic in attention)
    by least squares of the relative error, twice reweighted by Huber's function so that stalls do
    not bend the line they are measured against. ``None`` with fewer than 12 calls or 4 lengths.
    """
    known = np.isfinite(ttft_ms) & (ttft_ms > 0) & np.isfinite(length_tokens)
    if known.sum() < _LEAST_CALLS or len(np.unique(length_tokens[known])) < 4:
        return None
    scale = float(length_tokens[known].max())
    design = np.vander(length_tokens / scale, 3, increasing=True)
    observed = np.where(known, ttft_ms, 1.0)
    relative = design[known] / observed[known, None]
    weight = np.ones(int(known.sum()))
    for _ in range(3):
        root = np.sqrt(weight)
        beta, *_ = np.linalg.lstsq(relative * root[:, None], root, rcond=None)
        off = np.abs(1.0 - relative @ beta)
        bound = 1.5 * max(float(np.median(off)) * 1.4826, 1e-3)
        weight = np.minimum(1.0, bound / np.maximum(off, 1e-12))
    predicted = design @ beta
    usable = known & (predicted > 0)
    return np.where(usable, observed / np.where(usable, predicted, 1.0) - 1.0, np.nan)
