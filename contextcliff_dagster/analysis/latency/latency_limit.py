"""Up to which length the time to the first token keeps to a limit: its 95th percentile by length.

At each measured length, the times of 59 neighbouring documents are scaled to that length by the law
of time over length (`fit_length_law`). The largest of 59 values exceeds their 95th percentile with
95% confidence whatever their distribution, and the 53rd lies below it (order statistics: David and
Nagaraja 2003, Order Statistics, section 7.1). The limit is kept up to the last length before the
first upper bound above it, from the documents around each length; it is exceeded from the length on
from which all lower bounds are above it, from the documents up to each length, so that slow ones
beyond do not count. Either is one test at the true length: there is nothing to adjust.

A call that failed on the way has no first token: it is later than any limit. How often the length
is wrong: ``benchmarks/latency_caps.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.latency.bin_latency import NOT_OURS, OWN_LAG_MS
from contextcliff_dagster.analysis.latency.latency_regression import fit_length_law
from contextcliff_dagster.analysis.statistics.intervals import binomial_quantile
from contextcliff_dagster.contracts import FailureTag
from contextcliff_dagster.contracts.results.caps import LatencyLimit

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints

SHARE = 0.95
"""Of the calls that keep to the limit."""


def latency_limit(sample: Sample, settings: AnalysisSettings) -> LatencyLimit | None:
    """How far the answered calls keep to the user's limit; ``None`` where there is none.

    Left out are calls with more than a tenth of the prompt from a cache, and those that may have
    waited for our own event loop. Waiting in the engine's queue counts: a user waits, too.
    """
    if settings.ttft_limit_ms is None:
        return None
    calls = sample.calls
    ms, lag = (calls[name].to_numpy(np.float64) for name in ("ttft_ms", "loop_lag_ms"))
    cached = calls["cached_tokens"] > NOT_OURS * calls["prompt_tokens"]
    measured = calls["answered"].to_numpy() & (ms > 0) & ~cached.to_numpy() & ~(lag > OWN_LAG_MS)
    failed = (calls["failure"] == FailureTag.TRANSPORT_ERROR.value).to_numpy() & measured.any()
    used = measured | failed
    ms = np.where(measured, ms, np.inf)[used]
    unit = sample.document_of_calls()[used]
    lengths = calls["length_tokens"].to_numpy(np.float64)[used]
    return judge_limit(lengths, ms, unit, settings.ttft_limit_ms, settings.confidence)


def judge_limit(
    length_tokens: Floats, ms: Floats, document: Ints, limit_ms: float, confidence: float
) -> LatencyLimit:
    """How far times ``ms`` > 0 (N), infinite where no token came, keep to ``limit_ms``.

    ``document``: a number for each document, the same for all calls on it (N).
    """
    order = np.lexsort((document, length_tokens))
    lengths, times, document = length_tokens[order], ms[order], document[order]
    first = np.flatnonzero(np.diff(document, prepend=-1) != 0)
    count, end = len(first), np.append(first, len(times))
    at, place = np.unique(lengths[first], return_index=True)
    longest = int(at[-1]) if count else None
    if count < (window := least_documents(confidence)):
        return LatencyLimit(limit_ms, None, None, longest, count)
    came = np.isfinite(times)
    law = fit_length_law(lengths[came], times[came])
    normal = np.ones(len(at)) if law is None else law(at)
    ratio = times / normal[np.searchsorted(at, lengths)]
    after = np.append(place[1:], count)
    around = np.round(0.5 * (place + after - window)).astype(np.int64).clip(0, count - window)
    before = (after - window).clip(0)
    lower = _rank_below(window, confidence) / window
    bounds = np.empty((len(at), 2))
    for row, (one, other) in enumerate(zip(before, around, strict=True)):
        near = np.sort(ratio[end[one] : end[one + window]])
        low = near[max(int(lower * len(near)), 1) - 1]
        bounds[row] = low, ratio[end[other] : end[other + window]].max()
    bounds *= normal[:, None]
    late = np.flatnonzero(bounds[:, 1] > limit_ms)
    last = late[0] - 1 if len(late) else len(at) - 1
    exceeded = 1 + np.flatnonzero(bounds[:, 0] <= limit_ms).max(initial=-1)
    return LatencyLimit(
        limit_ms,
        int(at[last]) if last >= 0 else None,
        int(at[exceeded]) if exceeded < len(at) else None,
        longest,
        count,
    )


def least_documents(confidence: float) -> int:
    """The fewest documents of which the largest time is an upper bound of the percentile."""
    return int(np.ceil(np.log(1.0 - confidence) / np.log(SHARE)))


def _rank_below(count: int, confidence: float) -> int:
    """The largest rank of ``count`` values that lies below the percentile; 0 where none does."""
    return binomial_quantile(1.0 - confidence, count, SHARE)
