"""Times of calls over length: each bin's, the slowdown that a limit allows, and regressions.

Telemetry of each bin shows what length alone does not explain. `joint_cap` is the cap that both
scores and times respect.

Limit on the time to the first token (`latency_limit`): up to which length its 95th percentile by
length keeps to it. At each measured length, the times of 59 neighbouring documents are scaled to
that length by the law of time over length (`fit_length_law`). The largest of 59 values exceeds
their 95th percentile with 95% confidence whatever their distribution, and the 53rd lies below it
(order statistics: David and Nagaraja 2003, Order Statistics, section 7.1). The limit is kept up to
the last length before the first upper bound above it, from the documents around each length; it is
exceeded from the length on from which all lower bounds are above it, from the documents up to each
length, so that slow ones beyond do not count. Either is one test at the true length: there is
nothing to adjust. A call that failed on the way has no first token: it is later than any limit.

Slowdown (`find_slowdown`): from which length on calls take longer than their length explains, a
change point in the times. Times follow log y = log(a + b L + c L^2) + delta [L > t] + noise, with
a, b, c >= 0 (from `fit_length_law`) and a slowdown by the factor exp(delta) > 1 beyond some length
t. The law is free on both sides of the question: a slowdown is what no such law can explain,
however steep.

*Is there one?* A score test. Let r be the log residuals of the best law without a slowdown, limited
to three robust SDs so that a stall counts as one late call and no more, and J the derivatives of
the law. For every admissible t the step [L > t], less what J can imitate, is correlated with r; the
largest correlation over all t is the statistic, so that it is one test however many places there
are. Its null distribution permutes r over the calls, less what J can imitate (residual permutation:
Freedman and Lane 1983, Journal of Business and Economic Statistics 1, 292-298).

*Where?* The whole model is fitted at 40 places and then at up to 60 around the likely ones
(Levenberg-Marquardt over log a, log b, log c and delta, all places at once). The best place has the
least sum of squares; the confidence set are the places whose sum is larger by at most 7.35 residual
variances, the limit that is used for scores: likelihoods of change points are not regular.

Assumes noise that is alike, in relative terms, at all lengths. ``benchmarks/latency_caps.py``
measures how often this length, and that of the limit, is wrong.

Law of time over length (`fit_length_law`): the time a call of a given length usually takes, a line
or parabola that stalls do not bend. Prefill costs a fixed part, one in proportion to the length
(the weights) and one in proportion to its square (attention), so the law is a + b L + c L^2 with
a, b, c >= 0. It is fitted by least trimmed squares of the relative error: the half of the calls
that agree best decides, whatever the others do (Rousseeuw 1984, JASA 79, 871-880; by concentration
steps from small random subsets: Rousseeuw and Van Driessen 2006, Data Mining and Knowledge
Discovery 12, 29-45). A reweighted step over all calls that lie within 2.5 SDs follows.

The simplest of a, a + b L and the whole law is taken whose best half scatters at most 1.15 times as
much as that of the whole law: a parabola would bend into a slow tail. Compared with the lines
of Theil and Sen and of Siegel: `benchmarks/latency_canary.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import binomial_quantile
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
        """The law and its evidence; ``None`` where no time was measured."""
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


LEAST_CALLS = 30
LEAST_SLOWDOWN = 0.10
"""A slowdown that may be below a tenth is none, however certain: no server follows the law to the
percent (prefill in chunks, L log L), and with many calls every departure from it is significant."""
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

    ``None`` where nothing can be tested: fewer than 30 calls, or no admissible place. A place has
    max(6, 15%) of the calls before it and max(6, 4%) after it, and parts no equal lengths. A
    slowdown is reported where p <= ``alpha`` and its interval lies above a tenth.
    """
    if len(ms) < LEAST_CALLS:
        return None
    order = np.lexsort((ms, length_tokens))
    if len(order) > _MOST_CALLS:
        order = order[np.linspace(0, len(order) - 1, _MOST_CALLS).round().astype(np.int64)]
    lengths, log_ms = length_tokens[order], np.log(ms[order])
    places = _places(lengths)
    if not len(places):
        return None
    design: Floats = np.vander(lengths / lengths.max(), 3, increasing=True)
    start = _start(design, log_ms)
    none = np.zeros((1, len(lengths)))
    law, _, _ = _fit(design, log_ms, none, start)
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
    """Indices of the first slow call that are admissible."""
    count = len(lengths)
    change = np.flatnonzero(np.diff(lengths) > 0) + 1
    least = max(_LEAST_SIDE, _LEAST_BEFORE * count)
    most = count - max(_LEAST_SIDE, _LEAST_AFTER * count)
    places: Ints = change[(change >= least) & (change <= most)]
    if len(places) > _MOST_PLACES:
        places = places[np.linspace(0, len(places) - 1, _MOST_PLACES).round().astype(np.int64)]
    return places


def _law(design: Floats, theta: Floats) -> Floats:
    """a + b L + c L^2 of parameter sets (K, 3) at all calls: (K, N)."""
    return np.exp(theta) @ design.T


def _start(design: Floats, log_ms: Floats) -> Floats:
    """Log coefficients (1, 3) that share the median time at median length between the terms."""
    middle = np.median(np.exp(log_ms)[:, None] / design, axis=0)
    return np.log(np.maximum(middle / 3.0, 1e-12))[None, :]


def _fit(
    design: Floats, log_ms: Floats, step: Floats, theta: Floats, delta: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Least squares of the logs for K steps (K, N) at once, from ``theta`` (K or 1, 3).

    Returns log coefficients (K, 3), log factors of the slowdown (K) and sums of squares (K).
    Coefficients that want to vanish run to a floor far below every time.
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
    """Permutation p-value of the largest score for a slowdown, over all places."""
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
    """The most likely place, those nearly as likely, and the factor beyond it."""
    beyond = (np.arange(len(lengths)) >= places[:, None]).astype(np.float64)
    some = np.unique(np.linspace(0, len(places) - 1, _COARSE_PLACES).round().astype(np.int64))
    theta, shift, sums = _fit(design, log_ms, beyond[some], law, delta=True)
    # Then with stalls limited against the fit that has the change (against the plain law the slow
    # calls themselves would be cut), and at the places around those that are left.
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

    # In ms where a cap would lie, which is where a user would notice.
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
"""Of more calls, so many spread over all lengths are fitted: it is a median that is wanted."""
_EXACT = 1e-9
"""A relative error below this is none."""


class LengthLaw(FittedLaw):
    """``base_ms`` + ``ms_per_1k`` K + ``ms_per_1k_squared`` K^2 with K = length in 1,000 tokens."""

    def __call__(self, length_tokens: Floats) -> Floats:
        """Time in ms at each length; above 0."""
        k = np.asarray(length_tokens, dtype=np.float64) / 1_000
        return self.base_ms + self.ms_per_1k * k + self.ms_per_1k_squared * k**2


def fit_length_law(length_tokens: Floats, ms: Floats) -> LengthLaw | None:
    """The law of finite times ``ms`` > 0; arrays of one length.

    ``None`` with fewer than 12 calls or 4 different lengths. The same arrays give the same law.
    """
    if len(ms) < LEAST_CALLS_OF_A_FIT or len(np.unique(length_tokens)) < LEAST_LENGTHS:
        return None
    order = np.lexsort((ms, length_tokens))
    if len(order) > _MOST_CALLS:
        order = order[np.linspace(0, len(order) - 1, _MOST_CALLS).round().astype(np.int64)]
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
    """Scatter of the best half (root mean square, relative) and the coefficients that give it."""
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
    """Coefficients >= 0 that bring ``relative @ beta`` closest to ``target`` (default: ones)."""
    from scipy.optimize import nnls

    return nnls(relative, np.ones(len(relative)) if target is None else target)[0]


def _reweighted(design: Floats, times: Floats, beta: Floats) -> Floats:
    """Least squares over all calls near the trimmed fit, so that their median lies on the law."""
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
