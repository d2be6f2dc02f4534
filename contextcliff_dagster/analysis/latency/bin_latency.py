"""Telemetry per bin, and what of it length alone does not explain.

The cap that both scores and times respect.

Up to which length the time to the first token keeps to a limit: its 95th percentile by length.

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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.latency.latency_regression import LengthLaw, fit_length_law
from contextcliff_dagster.analysis.latency.slowdown import find_slowdown
from contextcliff_dagster.analysis.statistics.intervals import binomial_quantile
from contextcliff_dagster.contracts import FailureTag
from contextcliff_dagster.contracts.results.caps import (
    JointCap,
    LatencyLimit,
    Slowdown,
    SlowdownByKind,
    SlowdownTest,
)
from contextcliff_dagster.contracts.results.fields import Times
from contextcliff_dagster.contracts.results.metrics import Excess, ExcludedCalls, Latency

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints


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


ERROR_SHARE = 0.5
"""Share of the error rate at which times are tested: a slowdown of a half is found at far less
(``benchmarks/latency_caps.py``), so the other half would buy nothing but false caps."""
WORTH_A_WARNING, WORTH_MS = 0.25, 50.0
"""A delay that a user notices: at least this share, and as much time."""
KNOWN_WITHIN = 4.0
"""Factor of length within which a slowdown's place must be known to limit a cap."""


def slowdowns_of(
    sample: Sample, canaries: Mapping[str, Canary], settings: AnalysisSettings
) -> SlowdownByKind:
    """The test per kind of time, over the calls that its law rests on; ``None``: not testable."""
    calls = sample.calls
    lengths = calls["length_tokens"].to_numpy(np.float64)
    documents = sample.document_of_calls()
    tests: dict[str, SlowdownTest | None] = {}
    for kind, canary in canaries.items():
        usable = np.isfinite(canary.excess)
        tests[kind] = find_slowdown(
            *by_document(
                lengths[usable],
                calls[f"{kind}_ms"].to_numpy(np.float64)[usable],
                documents[usable],
            ),
            alpha=ERROR_SHARE * (1.0 - settings.confidence),
            permutations=settings.permutations,
            seed=settings.seed,
        )
    return SlowdownByKind(**tests)


def by_document(lengths: Floats, ms: Floats, document: Ints) -> tuple[Floats, Floats]:
    """Length and geometric mean time of each document: calls on one document are late together.

    ``document``: a number for each, the same for all calls on it (N).
    """
    _, first, unit = np.unique(document, return_index=True, return_inverse=True)
    mean = np.bincount(unit, weights=np.log(ms)) / np.maximum(np.bincount(unit), 1)
    return lengths[first], np.exp(mean)


def slowdown_sentences(tests: SlowdownByKind) -> list[str]:
    """A sentence per kind of time that has a slowdown."""
    sentences = []
    for kind, words in KINDS.items():
        test = getattr(tests, kind)
        if test is None or (slow := noticed(test)) is None:
            continue
        sentences.append(
            f"Beyond {slow.last_normal_tokens:,} tokens [{slow.earliest_tokens:,}, "
            f"{slow.latest_tokens:,}] {words} is higher than any law a + b L + c L^2 of the length "
            f"L predicts: {slow.excess_ms:+,.0f} ms, {slow.excess:+.0%} [{slow.excess_low:+.0%}, "
            f"{slow.excess_high:+.0%}], "
            f"n = {slow.calls} documents, p = {test.p_value:.3f}."
        )
    return sentences


def noticed(test: SlowdownTest) -> Slowdown | None:
    """The slowdown, if it is one that a user notices at a length that is known.

    At least 25% and 50 ms, its place within a factor of 4; else it is a row in a table.
    """
    slow = test.slowdown
    if slow is None or slow.excess < WORTH_A_WARNING or (slow.excess_ms or 0.0) < WORTH_MS:
        return None
    return slow if slow.latest_tokens <= KNOWN_WITHIN * slow.earliest_tokens else None


def joint_cap(
    accuracy_cap: int | None, test: SlowdownTest | None, limit: LatencyLimit | None = None
) -> JointCap | None:
    """The ``joint_cap`` of ``cliffs.json``; ``None`` without a limit where no time can be tested.

    The smaller of the certified cap of the scores and, with the user's ``limit``, the length up to
    which it is kept; without one, the longest length before the first likely place of a slowdown
    that is `noticed`. Without a cap of the scores there is none: speed makes no length safe.
    """
    if limit is None and test is None:
        return None
    if accuracy_cap is None:
        return JointCap(None, "accuracy")
    if limit is not None:
        if limit.tokens is None or limit.tokens < accuracy_cap:
            return JointCap(limit.tokens, "latency_limit")
    elif test is not None and (slow := noticed(test)) and slow.earliest_tokens < accuracy_cap:
        return JointCap(slow.earliest_tokens, "latency")
    return JointCap(accuracy_cap, "accuracy")


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
