"""Telemetry per bin, and what of it length alone does not explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.latency.latency_regression import LengthLaw, fit_length_law
from contextcliff_dagster.contracts.results.fields import Times
from contextcliff_dagster.contracts.results.metrics import (
    Excess,
    ExcessByKind,
    ExcludedCalls,
    Latency,
)
from contextcliff_dagster.contracts.results.metrics import LengthLaw as FittedLaw

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Bools, Floats

KINDS = ("ttft", "duration")
NOT_OURS = 0.10
"""A call is left out where more than this share of its prompt came from a cache, or where it may
have waited (in the engine, or for our own event loop) for more than this share of its time."""
WORTH_A_WARNING = 0.10


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

    ``excess``: each call's time over what the law gives for its length, minus 1; NaN where the call
    was left out or there is no law. ``excluded``: calls left out by reason, the first that fits.
    """

    excess: Floats
    law: LengthLaw | None
    calls: int
    excluded: ExcludedCalls

    def latency(self) -> Latency | None:
        """The law and what it rests on; ``None`` where no time was measured."""
        if not self.calls and self.excluded == ExcludedCalls(0, 0, 0):
            return None
        fitted = None
        if (law := self.law) is not None:
            fitted = FittedLaw(law.base_ms, law.ms_per_1k, law.ms_per_1k_squared)
        return Latency(fitted, self.calls, self.excluded)


def canary(calls: pd.DataFrame, kind: str) -> Canary:
    """Hold ``kind`` of all answered calls against the length of their documents."""
    ms = calls[f"{kind}_ms"].where(calls["answered"]).to_numpy(np.float64)
    there = np.isfinite(ms) & (ms > 0)
    tolerated = NOT_OURS * np.where(there, ms, np.nan)
    # Comparisons with NaN are false: what nobody tells excludes nothing.
    reasons = {
        "cached": _above(calls["cached_tokens"], NOT_OURS * calls["prompt_tokens"]),
        "queued": _above(calls["queue_ms"], tolerated),
        "own_queue": _above(calls["loop_lag_ms"], tolerated),
    }
    usable, excluded = there, dict.fromkeys(reasons, 0)
    for reason, applies in reasons.items():
        excluded[reason] = int((usable & applies).sum())
        usable = usable & ~applies
    lengths = calls["length_tokens"].to_numpy(np.float64)
    law = fit_length_law(lengths[usable], ms[usable])
    excess = np.full(len(ms), np.nan)
    if law is not None:
        excess[usable] = ms[usable] / law(lengths[usable]) - 1.0
    return Canary(excess, law, int(usable.sum()), ExcludedCalls(**excluded))


def _above(column: pd.Series[Any], limit: Any) -> Bools:
    above: Bools = column.to_numpy(np.float64) > np.asarray(limit, dtype=np.float64)
    return above


def spread_of(excess: Floats) -> Excess | None:
    """Median excess of a bin's calls, its 95% interval, and their interquartile range.

    The interval is the exact one by order statistics, ``None`` below six calls (David and Nagaraja
    2003, Order Statistics, section 7.1). ``None`` for a bin without a usable call.
    """
    known = np.sort(excess[np.isfinite(excess)])
    n = len(known)
    if not n:
        return None
    q25, median, q75 = np.quantile(known, (0.25, 0.5, 0.75))
    rank = _outer_rank(n)
    return Excess(
        n=n,
        median=float(median),
        ci_low=None if rank is None else float(known[rank - 1]),
        ci_high=None if rank is None else float(known[n - rank]),
        iqr=float(q75 - q25),
    )


def _outer_rank(n: int) -> int | None:
    """Largest r whose order statistics r and n + 1 - r hold the median in at least 95%."""
    from scipy.stats import binom

    # P(fewer than r of n lie below the median) <= 2.5%.
    rank = int(binom.ppf(0.025, n, 0.5))
    while rank > 0 and binom.cdf(rank - 1, n, 0.5) > 0.025:
        rank -= 1
    return rank or None


def slow_bins_warning(bins: Sequence[tuple[str, ExcessByKind]]) -> list[str]:
    """A sentence per kind of time that some bins exceed by more than a tenth, beyond chance.

    ``bins``: key and excess of each.
    """
    sentences = []
    for kind, words in (("ttft", "Time to first token"), ("duration", "Time to the full answer")):
        excesses = [(bin, by.ttft if kind == "ttft" else by.duration) for bin, by in bins]
        slow = [
            f"{bin} {excess.median:+.0%} [{excess.ci_low:+.0%}, {excess.ci_high:+.0%}], "
            f"n = {excess.n}"
            for bin, excess in excesses
            if excess is not None and excess.ci_low is not None and excess.ci_low > WORTH_A_WARNING
        ]
        if slow:
            sentences.append(f"{words} is higher than expected: {', '.join(slow)}.")
    return sentences
