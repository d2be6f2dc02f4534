"""Telemetry per bin, and what of it length alone does not explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.latency.latency_regression import LengthLaw, fit_length_law
from contextcliff_dagster.analysis.statistics.intervals import binomial_quantile
from contextcliff_dagster.contracts.results.fields import Times
from contextcliff_dagster.contracts.results.metrics import Excess, ExcludedCalls, Latency

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.contracts.arrays import Bools, Floats

KINDS = {"ttft": "time to first token", "duration": "time to the full answer"}
NOT_OURS = 0.10
"""A call is left out where more than this share of its prompt came from a cache, or where it waited
in the engine for more than this share of its time."""
OWN_LAG_MS = 25.0
"""Or where it may have waited longer for our own event loop: the same time for all, since a share
of each call's own would keep the late calls on long documents and drop those on short ones."""


def summary(values: Floats) -> Times | None:
    """Median, 95th percentile and SD (population) of times in ms; ``None`` without any."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    p50, p95 = np.quantile(known, (0.5, 0.95))
    return Times(float(p50), float(p95), float(known.std()))


@dataclass(frozen=True, slots=True)
class Canary:
    """One kind of time (``ttft`` or ``duration``) of all calls of a model against their length.

    ``excess``: each call's time over what the law gives for its length, minus 1; ``late_ms``: less
    that; NaN where the call was left out or there is no law. ``excluded``: calls left out by
    reason, the first that fits.
    """

    excess: Floats
    late_ms: Floats
    law: LengthLaw | None
    calls: int
    excluded: ExcludedCalls

    def latency(self) -> Latency | None:
        """The law and what it rests on; ``None`` where no time was measured."""
        if not self.calls and self.excluded == ExcludedCalls(0, 0, 0):
            return None
        return Latency(self.law, self.calls, self.excluded)


def canaries_of(sample: Sample) -> dict[str, Canary]:
    """Times of all answered calls against the length of their documents, by kind."""
    return {kind: _canary(sample.calls, kind) for kind in KINDS}


def _canary(calls: pd.DataFrame, kind: str) -> Canary:
    ms = calls[f"{kind}_ms"].where(calls["answered"]).to_numpy(np.float64)
    there = np.isfinite(ms) & (ms > 0)
    tolerated = NOT_OURS * np.where(there, ms, np.nan)
    # Comparisons with NaN are false: an unknown value excludes nothing.
    reasons = {
        "cached": _above(calls["cached_tokens"], NOT_OURS * calls["prompt_tokens"]),
        "queued": _above(calls["queue_ms"], tolerated),
        "own_queue": _above(calls["loop_lag_ms"], OWN_LAG_MS),
    }
    usable, excluded = there, dict.fromkeys(reasons, 0)
    for reason, applies in reasons.items():
        excluded[reason] = int((usable & applies).sum())
        usable = usable & ~applies
    lengths = calls["length_tokens"].to_numpy(np.float64)
    law = fit_length_law(lengths[usable], ms[usable])
    excess, late_ms = np.full((2, len(ms)), np.nan)
    if law is not None:
        normal = law(lengths[usable])
        excess[usable], late_ms[usable] = ms[usable] / normal - 1.0, ms[usable] - normal
    return Canary(excess, late_ms, law, int(usable.sum()), ExcludedCalls(**excluded))


def _above(column: pd.Series[Any], limit: Any) -> Bools:
    return column.to_numpy(np.float64) > np.asarray(limit, dtype=np.float64)


def spread_of(excess: Floats, late_ms: Floats) -> Excess | None:
    """Median excess of a bin's calls, its 95% interval, and their interquartile range.

    The interval is the exact one by order statistics, ``None`` below six calls (David and Nagaraja
    2003, Order Statistics, section 7.1). ``None`` for a bin without a usable call.
    """
    known = np.sort(excess[np.isfinite(excess)])
    n = len(known)
    if not n:
        return None
    q25, median, q75 = np.quantile(known, (0.25, 0.5, 0.75))
    # The largest rank r whose order statistics r and n + 1 - r hold the median in at least 95%:
    # P(fewer than r of n lie below the median) <= 2.5%.
    rank = binomial_quantile(0.025, n, 0.5)
    return Excess(
        n=n,
        median=float(median),
        ci_low=float(known[rank - 1]) if rank else None,
        ci_high=float(known[n - rank]) if rank else None,
        iqr=float(q75 - q25),
        median_ms=float(np.nanmedian(late_ms)),
    )
