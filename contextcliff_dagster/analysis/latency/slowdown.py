"""From which length on calls take longer than their length explains: a change point in the times.

Times follow log y = log(a + b L + c L^2) + delta [L > t] + noise, with a, b, c >= 0 (from
`fit_length_law`) and a slowdown by the factor exp(delta) > 1 beyond some length t. The law is free
on both sides of the question: the slowdown is what no such law can explain, however steep.

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

Assumes noise that is alike, in relative terms, at all lengths. How often it errs:
``benchmarks/latency_caps.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.permutation_scan import SPLIT_LIMIT
from contextcliff_dagster.contracts.results.caps import Slowdown, SlowdownTest

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

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
