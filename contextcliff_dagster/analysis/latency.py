"""Call times by length: per bin, against the user's limit, and slowdowns.

Each bin's telemetry shows the time that length does not explain. `joint_cap` returns the cap that
satisfies both scores and times.

Limit on the time to the first token (`latency_limit`): the length up to which its 95th percentile
meets the limit. At each measured length, the times of 59 neighbouring documents are scaled to that
length by the law of time over length (`fit_length_law`). The largest of 59 values exceeds their
95th percentile with 95% confidence for any distribution, and the 53rd lies below it (order
statistics: David and Nagaraja 2003, Order Statistics, section 7.1). The limit is met up to the last
length before the first upper bound above it, from the documents around each length. It is exceeded
from the length at which all lower bounds begin to exceed it, from the documents up to each length,
so that slow documents beyond do not count. Each is one test at the true length, without adjustment.
A call that failed in transit has no first token: it exceeds every limit.

Slowdown (`find_slowdown`): the length beyond which calls take longer than their length explains, a
change point in the times. Times follow log y = log(a + b L + c L^2) + delta [L > t] + noise, with
a, b, c >= 0 (from `fit_length_law`) and a slowdown by the factor exp(delta) > 1 beyond some length
t. The law is fitted with and without a slowdown: a slowdown is a change that no such law explains,
however steep.

*Detection.* A score test. Let r be the log residuals of the best law without a slowdown, limited
to three robust SDs so that a stall counts as just one late call, and J the derivatives of
the law. For every admissible t the step [L > t], orthogonalised to J, is correlated with r;
the largest correlation over all t is the statistic, which makes it one test for any number of
places. Its null distribution permutes r over the calls, projected likewise (residual permutation:
Freedman and Lane 1983, Journal of Business and Economic Statistics 1, 292-298).

*Location.* The full model is fitted at 40 places and then at up to 60 around the likely ones
(Levenberg-Marquardt over log a, log b, log c and delta, all places at once). The best place has the
least sum of squares; the confidence set contains the places whose sum is larger by at most 7.35
residual variances, the limit used for scores: likelihoods of change points are not regular.

Assumes equal relative noise at all lengths. ``benchmarks/latency_caps.py`` measures how often this
length, and the length of the limit, are wrong.

Law of time over length (`fit_length_law`): the usual time of a call of a given length, a line or
parabola that is robust to stalls. Prefill has a fixed cost, a cost proportional to the length (the
weights) and a cost proportional to its square (attention), so the law is a + b L + c L^2 with
a, b, c >= 0. It is fitted by least trimmed squares of the relative error: only the half of the
calls that agree best determines it (Rousseeuw 1984, JASA 79, 871-880; by concentration steps from
small random subsets: Rousseeuw and Van Driessen 2006, Data Mining and Knowledge Discovery 12,
29-45). A reweighted fit over all calls within 2.5 SDs follows.

The law is the simplest of a, a + b L and the full law whose best half scatters at most 1.15 times
as much as with the full law, because a parabola would follow a slow tail. For a comparison with
the lines of Theil and Sen and of Siegel, see `benchmarks/latency_canary.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import binomial_quantile, thinned
from contextcliff_dagster.analysis.statistics.permutation_scan import SPLIT_LIMIT
from contextcliff_dagster.contracts import FailureTag
from contextcliff_dagster.contracts.results.cliffs import (
    JointCap,
    LatencyLimit,
    Slowdown,
    SlowdownByKind,
    SlowdownTest,
)
from contextcliff_dagster.contracts.results.json_form import Times
from contextcliff_dagster.contracts.results.metrics import Excess, ExcludedCalls, Latency
from contextcliff_dagster.contracts.results.metrics import LengthLaw as FittedLaw

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings, Sample
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

KINDS = {"ttft": "time to first token", "duration": "time to the full answer"}
NOT_OURS = 0.10
"""A call is left out if more than this fraction of its prompt came from a cache, or if it waited
in the engine for more than this fraction of its time."""
OWN_LAG_MS = 25.0
"""A call is left out if it may have waited longer for our event loop. This is an absolute time,
because a fraction of each call's time would drop more calls on short documents."""


def summary(values: Floats) -> Times | None:
    """Return median, 95th percentile and SD (population) of times in ms; ``None`` if empty."""
    known_values = values[np.isfinite(values)]
    if not len(known_values):
        return None
    p50, p95 = np.quantile(known_values, (0.5, 0.95))
    return Times(float(p50), float(p95), float(known_values.std()))


@dataclass(frozen=True, slots=True)
class Canary:
    """Times of one kind (``ttft`` or ``duration``) of a model's calls, against their length.

    ``excess``: each call's time divided by the law's value for its length, minus 1; ``late_ms``:
    the difference instead. Both are NaN if the call was left out or there is no law. ``excluded``:
    number of calls left out, by the first reason that applies.
    """

    excess: Floats
    late_ms: Floats
    law: LengthLaw | None
    calls: int
    excluded: ExcludedCalls

    def latency(self) -> Latency | None:
        """Return the law and its evidence; ``None`` if no time was measured."""
        if not self.calls and self.excluded == ExcludedCalls(0, 0, 0):
            return None
        return Latency(self.law, self.calls, self.excluded)


def canaries_of(sample: Sample) -> dict[str, Canary]:
    """Return, by kind, the times of all answered calls against their documents' lengths."""
    return {kind: _canary(sample.calls, kind) for kind in KINDS}


def _canary(calls: pd.DataFrame, kind: str) -> Canary:
    ms = calls[f"{kind}_ms"].where(calls["answered"]).to_numpy(np.float64)
    has_time = np.isfinite(ms) & (ms > 0)
    tolerated = NOT_OURS * np.where(has_time, ms, np.nan)
    # Comparisons with NaN are false: an unknown value excludes no call.
    reasons = {
        "cached": _above(calls["cached_tokens"], NOT_OURS * calls["prompt_tokens"]),
        "queued": _above(calls["queue_ms"], tolerated),
        "own_queue": _above(calls["loop_lag_ms"], OWN_LAG_MS),
    }
    usable, excluded = has_time, dict.fromkeys(reasons, 0)
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
    """Return the median excess of a bin's calls with its 95% interval, and the interquartile range.

    The interval is exact, by order statistics; ``None`` below six calls (David and Nagaraja 2003,
    Order Statistics, section 7.1). ``None`` for a bin without usable calls.
    """
    known_values = np.sort(excess[np.isfinite(excess)])
    n = len(known_values)
    if not n:
        return None
    q25, median, q75 = np.quantile(known_values, (0.25, 0.5, 0.75))
    # The largest rank r whose order statistics r and n + 1 - r hold the median in at least 95%:
    # P(fewer than r of n lie below the median) <= 2.5%.
    rank = binomial_quantile(0.025, n, 0.5)
    return Excess(
        n=n,
        median=float(median),
        ci_low=float(known_values[rank - 1]) if rank else None,
        ci_high=float(known_values[n - rank]) if rank else None,
        iqr=float(q75 - q25),
        median_ms=float(np.nanmedian(late_ms)),
    )


ERROR_SHARE = 0.5
"""Share of the error rate used to test times. It suffices to detect a slowdown by half
(``benchmarks/latency_caps.py``); a higher level would only add unnecessary caps."""
WORTH_A_WARNING, WORTH_MS = 0.25, 50.0
"""Smallest delay that a user notices, relative and in ms; both must be reached."""
KNOWN_WITHIN = 4.0
"""A slowdown limits a cap only if its place is known to within this factor of length."""


def slowdowns_of(
    sample: Sample, canaries: Mapping[str, Canary], settings: AnalysisSettings
) -> SlowdownByKind:
    """Return one test per kind of time, from the calls its law uses; None if not testable."""
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
    """Return length and geometric mean time per document; calls on a document are correlated.

    ``document``: document number of each call (N).
    """
    _, first, unit = np.unique(document, return_index=True, return_inverse=True)
    mean = np.bincount(unit, weights=np.log(ms)) / np.maximum(np.bincount(unit), 1)
    return lengths[first], np.exp(mean)


def slowdown_sentences(tests: SlowdownByKind) -> list[str]:
    """Return a sentence for each kind of time that has a slowdown."""
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
    """Return the slowdown if a user would notice it and its place is known, else None.

    It must be at least 25% and 50 ms, with its place known within a factor of 4.
    """
    slow = test.slowdown
    if slow is None or slow.excess < WORTH_A_WARNING or (slow.excess_ms or 0.0) < WORTH_MS:
        return None
    return slow if slow.latest_tokens <= KNOWN_WITHIN * slow.earliest_tokens else None


def joint_cap(
    accuracy_cap: int | None, test: SlowdownTest | None, limit: LatencyLimit | None = None
) -> JointCap | None:
    """Return the ``joint_cap`` of ``cliffs.json``; None without a limit and without testable times.

    It is the smaller of the scores' certified cap and a length set by the times: with a ``limit``,
    the length up to which it is met; otherwise the longest length before the first likely place of
    a slowdown that is `noticed`. Without a cap from the scores there is no joint cap.
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
"""Fraction of the calls that must meet the limit."""


def latency_limit(sample: Sample, settings: AnalysisSettings) -> LatencyLimit | None:
    """Return the length up to which answered calls meet the user's limit; None without a limit.

    Leaves out calls with more than a tenth of the prompt from a cache, and calls that may have
    waited for our event loop. Waiting in the engine's queue counts, because a user waits too.
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
    """Return up to what length the times ``ms`` > 0 (N; infinite: no token) meet ``limit_ms``.

    ``document``: document number of each call (N).
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
    # The largest rank below the percentile; 0 if there is none.
    lower = binomial_quantile(1.0 - confidence, window, SHARE) / window
    bounds = np.empty((len(at), 2))
    for row, (one, other) in enumerate(zip(before, around, strict=True)):
        near = np.sort(ratio[end[one] : end[one + window]])
        low = near[max(int(lower * len(near)), 1) - 1]
        bounds[row] = low, ratio[end[other] : end[other + window]].max()
    bounds *= normal[:, None]
    is_late = np.flatnonzero(bounds[:, 1] > limit_ms)
    last = is_late[0] - 1 if len(is_late) else len(at) - 1
    exceeded = 1 + np.flatnonzero(bounds[:, 0] <= limit_ms).max(initial=-1)
    return LatencyLimit(
        limit_ms,
        int(at[last]) if last >= 0 else None,
        int(at[exceeded]) if exceeded < len(at) else None,
        longest,
        count,
    )


def least_documents(confidence: float) -> int:
    """Return how many documents are needed for their largest time to bound the percentile."""
    return int(np.ceil(np.log(1.0 - confidence) / np.log(SHARE)))


LEAST_CALLS = 30
LEAST_SLOWDOWN = 0.10
"""A slowdown that may be below a tenth is ignored, however significant: no server follows the law
exactly (chunked prefill, L log L), and with many calls any deviation becomes significant."""
_LEAST_BEFORE, _LEAST_AFTER = 0.15, 0.04
_LEAST_SIDE = 6
_MOST_PLACES = 200
_COARSE_PLACES, _FINE_PLACES = 40, 60
_MOST_CALLS = 2_000
_STALL_SD = 3.0
_ITERATIONS = 25


def find_slowdown(
    length_tokens: Floats, ms: Floats, *, alpha: float, permutations: int, seed: int
) -> SlowdownTest | None:
    """Test the times ``ms`` > 0 (N) of documents of ``length_tokens`` (N) for a slowdown.

    ``None`` if there are fewer than 30 calls or no admissible place. A place has max(6, 15%) of the
    calls before it and max(6, 4%) after it, and does not separate equal lengths. A slowdown is
    reported if p <= ``alpha`` and its interval lies above a tenth.
    """
    if len(ms) < LEAST_CALLS:
        return None
    order = thinned(np.lexsort((ms, length_tokens)), _MOST_CALLS)
    lengths, log_ms = length_tokens[order], np.log(ms[order])
    places = _places(lengths)
    if not len(places):
        return None
    design: Floats = np.vander(lengths / lengths.max(), 3, increasing=True)
    start = _start(design, log_ms)
    no_slowdown = np.zeros((1, len(lengths)))
    law, _, _ = _fit(design, log_ms, no_slowdown, start)
    residual = log_ms - np.log(_law(design, law))[0]
    robust_sd = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    limit = max(_STALL_SD * robust_sd, 1e-9)
    residual = np.clip(residual - np.median(residual), -limit, limit)
    beyond = (np.arange(len(lengths)) >= places[:, None]).astype(np.float64)
    p_value = _chance(design, law, residual, beyond, permutations, seed)
    if p_value > alpha:
        return SlowdownTest(p_value, None)
    return SlowdownTest(p_value, _locate(design, log_ms, lengths, places, law, p_value))


def _places(lengths: Floats) -> Ints:
    """Return the admissible positions of the first slow call."""
    count = len(lengths)
    change = np.flatnonzero(np.diff(lengths) > 0) + 1
    least = max(_LEAST_SIDE, _LEAST_BEFORE * count)
    most = count - max(_LEAST_SIDE, _LEAST_AFTER * count)
    return thinned(change[(change >= least) & (change <= most)], _MOST_PLACES)


def _law(design: Floats, theta: Floats) -> Floats:
    """Return a + b L + c L^2 for parameter sets (K, 3) at all calls: (K, N)."""
    return np.exp(theta) @ design.T


def _start(design: Floats, log_ms: Floats) -> Floats:
    """Return log coefficients (1, 3) that divide the median time at median length among terms."""
    middle = np.median(np.exp(log_ms)[:, None] / design, axis=0)
    return np.log(np.maximum(middle / 3.0, 1e-12))[None, :]


def _fit(
    design: Floats, log_ms: Floats, step: Floats, theta: Floats, delta: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Fit K steps (K, N) at once by least squares of the logs, starting at ``theta`` (K or 1, 3).

    Returns log coefficients (K, 3), log factors of the slowdown (K) and sums of squares (K).
    Coefficients that approach 0 stop at a floor far below any measured time.
    """
    count = len(step)
    theta = np.broadcast_to(theta, (count, 3)).copy()
    floor = float(log_ms.min()) - 14.0
    shift = np.zeros(count)
    damping = np.full(count, 1e-2)
    terms = 4 if delta else 3
    eye = np.eye(terms)

    def off(at: Floats, by: Floats) -> Floats:
        return log_ms - np.log(_law(design, at)) - by[:, None] * step

    residual = off(theta, shift)
    sums = np.square(residual).sum(axis=1)
    for _ in range(_ITERATIONS):
        share = np.exp(theta)[:, None, :] * design / _law(design, theta)[:, :, None]
        slope = np.concatenate([share, step[:, :, None]], axis=2) if delta else share
        normal = np.einsum("knp,knq->kpq", slope, slope)
        right = np.einsum("knp,kn->kp", slope, residual)
        scale = damping[:, None, None] * (np.einsum("kpp->kp", normal)[:, None, :] + 1e-9) * eye
        move = np.linalg.solve(normal + scale, right[:, :, None])[:, :, 0].clip(-3.0, 3.0)
        new_theta = np.maximum(theta + move[:, :3], floor)
        new_shift = shift + move[:, 3] if delta else shift
        new_residual = off(new_theta, new_shift)
        new_sums = np.square(new_residual).sum(axis=1)
        better = new_sums <= sums
        settled = bool((np.abs(new_sums - sums) <= 1e-7 * sums + 1e-15).all())
        theta[better], residual[better] = new_theta[better], new_residual[better]
        shift, sums = np.where(better, new_shift, shift), np.where(better, new_sums, sums)
        damping = np.clip(np.where(better, damping * 0.2, damping * 10.0), 1e-9, 1e6)
        if settled:
            break
    return theta, shift, sums


def _chance(
    design: Floats, law: Floats, residual: Floats, beyond: Floats, permutations: int, seed: int
) -> float:
    """Return the permutation p-value of the largest slowdown score over all places."""
    slopes = design / _law(design, law)[0][:, None]
    basis, singular, _ = np.linalg.svd(slopes / np.linalg.norm(slopes, axis=0), full_matrices=False)
    basis = basis[:, singular > 1e-8 * singular[0]]

    def beyond_law(rows: Floats) -> Floats:
        out: Floats = rows - (rows @ basis) @ basis.T
        return out

    directions = beyond_law(beyond)
    length = np.linalg.norm(directions, axis=1)
    directions = directions[length > 1e-6] / length[length > 1e-6, None]
    if not len(directions):
        return 1.0
    rng = np.random.default_rng((seed, 2))
    shuffled = rng.permuted(np.tile(residual, (permutations, 1)), axis=1)
    rows = beyond_law(np.vstack([residual, shuffled]))
    spread = np.linalg.norm(rows, axis=1)
    if spread[0] < 1e-12:
        return 1.0
    statistic = (rows @ directions.T).max(axis=1) / np.maximum(spread, 1e-300)
    return float(np.mean(statistic >= statistic[0] - 1e-12))


def _locate(
    design: Floats,
    log_ms: Floats,
    lengths: Floats,
    places: Ints,
    law: Floats,
    p_value: float,
) -> Slowdown | None:
    """Return the most likely place, the range of its confidence set, and the slowdown beyond it."""
    beyond = (np.arange(len(lengths)) >= places[:, None]).astype(np.float64)
    some = np.unique(np.linspace(0, len(places) - 1, _COARSE_PLACES).round().astype(np.int64))
    theta, shift, sums = _fit(design, log_ms, beyond[some], law, delta=True)
    # Then limit stalls relative to the fit with the change (relative to the plain law the slow
    # calls themselves would be cut), at places around the remaining ones.
    best = int(np.argmin(sums))
    if np.expm1(shift[best]) < 0.5 * LEAST_SLOWDOWN:
        return None
    fitted = np.log(_law(design, theta[best : best + 1]))[0] + shift[best] * beyond[some[best]]
    residual = log_ms - fitted
    robust_sd = 1.4826 * float(np.median(np.abs(residual)))
    limit = max(_STALL_SD * robust_sd, 1e-9)
    tamed = fitted + residual.clip(-limit, limit)
    theta, _, sums = _fit(design, tamed, beyond[some], theta, delta=True)
    wide = sums - sums.min() <= 2 * SPLIT_LIMIT * float(sums.min()) / max(len(lengths) - 5, 1)
    left = np.flatnonzero(wide)
    first, last = some[max(left[0] - 1, 0)], some[min(left[-1] + 1, len(some) - 1)]
    near = np.unique(np.linspace(first, last, _FINE_PLACES).round().astype(np.int64))
    places, beyond = places[near], beyond[near]
    theta, shift, sums = _fit(design, tamed, beyond, theta[[int(np.argmin(sums))]], delta=True)
    sums = np.where(shift > 0, sums, np.inf)
    best = int(np.argmin(sums))
    if not np.isfinite(sums[best]):
        return None
    count = len(lengths)
    variance = max(float(sums[best]) / max(count - 5, 1), 1e-18)
    likely = np.flatnonzero(sums - sums[best] <= SPLIT_LIMIT * variance)
    slopes = np.exp(theta[best]) * design / _law(design, theta[best : best + 1])[0][:, None]
    directions = np.column_stack([slopes, beyond[best]])
    error = float(np.sqrt(variance * np.linalg.pinv(directions.T @ directions)[3, 3]))
    low, high = (float(np.expm1(shift[best] + z * error)) for z in (-1.96, 1.96))
    if low < LEAST_SLOWDOWN:
        return None

    def before(place: int) -> int:
        return int(lengths[places[place] - 1])

    # In ms at the length of a cap, where a user would notice.
    normal_ms = float(_law(design, theta[best : best + 1])[0][places[likely[0]]])
    return Slowdown(
        p_value,
        before(best),
        before(int(likely[0])),
        before(int(likely[-1])),
        float(np.expm1(shift[best])),
        low,
        high,
        int(count - places[best]),
        normal_ms * float(np.expm1(shift[best])),
    )


LEAST_CALLS_OF_A_FIT, LEAST_LENGTHS = 12, 4
_HALF = 0.5
_STARTS, _KEPT_STARTS, _STEPS = 60, 5, 20
_SIMPLER = 1.15
_CUTOFF_SD = 2.5
"""The final fit uses calls within this many SDs of the trimmed fit."""
_EXACT = 1e-9
"""Relative errors below this count as 0."""


class LengthLaw(FittedLaw):
    """The law ``base_ms`` + ``ms_per_1k`` K + ``ms_per_1k_squared`` K^2, K = 1,000 tokens."""

    def __call__(self, length_tokens: Floats) -> Floats:
        """Return the time in ms at each length; always above 0."""
        k = np.asarray(length_tokens, dtype=np.float64) / 1_000
        return self.base_ms + self.ms_per_1k * k + self.ms_per_1k_squared * k**2


def fit_length_law(length_tokens: Floats, ms: Floats) -> LengthLaw | None:
    """Fit the law to finite times ``ms`` > 0; arrays of equal length.

    ``None`` with fewer than 12 calls or 4 distinct lengths. The same arrays give the same law.
    """
    if len(ms) < LEAST_CALLS_OF_A_FIT or len(np.unique(length_tokens)) < LEAST_LENGTHS:
        return None
    order = thinned(np.lexsort((ms, length_tokens)), _MOST_CALLS)
    lengths, times = length_tokens[order], ms[order]
    scale = float(lengths.max())
    design: Floats = np.vander(lengths / scale, 3, increasing=True)
    relative = design / times[:, None]
    fits = [_trimmed(relative[:, :terms]) for terms in (1, 2, 3)]
    most = _SIMPLER * fits[-1][0] + _EXACT
    beta = next(coefficients for scatter, coefficients in fits if scatter <= most)
    beta = _reweighted(design[:, : len(beta)], times, beta)
    a, b, c = (*beta, 0.0, 0.0)[:3]
    per_k = 1_000 / scale
    return LengthLaw(float(a), float(b * per_k), float(c * per_k**2))


def _trimmed(relative: Floats) -> tuple[float, Floats]:
    """Return the relative RMS scatter of the best half, and the coefficients."""
    rng = np.random.default_rng(0)
    calls, terms = relative.shape
    half = max(int(np.ceil(_HALF * calls)), terms + 1)

    def best_half(beta: Floats) -> tuple[float, Ints]:
        off = (1.0 - relative @ beta) ** 2
        chosen: Ints = np.argpartition(off, half - 1)[:half]
        return float(off[chosen].mean()), chosen

    starts = []
    for _ in range(_STARTS):
        beta = _least_squares(relative[rng.choice(calls, terms + 1, replace=False)])
        for _ in range(2):
            beta = _least_squares(relative[best_half(beta)[1]])
        starts.append((best_half(beta)[0], beta))
    starts.sort(key=lambda pair: pair[0])
    ended = []
    for value, beta in starts[:_KEPT_STARTS]:
        for _ in range(_STEPS):
            closer = _least_squares(relative[best_half(beta)[1]])
            after = best_half(closer)[0]
            if after >= value * (1 - 1e-9):
                break
            value, beta = after, closer
        ended.append((value, beta))
    value, beta = min(ended, key=lambda pair: pair[0])
    return float(np.sqrt(value)), beta


def _least_squares(relative: Floats, target: Floats | None = None) -> Floats:
    """Return beta >= 0 with ``relative @ beta`` closest to ``target`` (default: ones)."""
    from scipy.optimize import nnls

    return nnls(relative, np.ones(len(relative)) if target is None else target)[0]


def _reweighted(design: Floats, times: Floats, beta: Floats) -> Floats:
    """Refit to all calls near the trimmed fit, and scale the law to pass through their median."""
    from scipy.special import ndtri

    def ratio(of: Floats) -> Floats:
        return np.log(times / np.maximum(design @ of, 1e-12))

    best = np.argsort(np.abs(1.0 - (design @ beta) / times))[: max(len(times) // 2, 1)]
    beta = beta * float(np.exp(np.median(ratio(beta)[best])))
    off = np.abs(ratio(beta))
    sd = float(np.quantile(off, _HALF) / ndtri((1 + _HALF) / 2))
    near = off <= max(_CUTOFF_SD * sd, _EXACT)
    predicted = (design @ beta)[near]
    beta = _least_squares(design[near] / predicted[:, None], times[near] / predicted)
    return beta * float(np.exp(np.median(ratio(beta)[near])))
