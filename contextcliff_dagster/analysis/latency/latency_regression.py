"""What time a call of a given length usually takes: a line or parabola that stalls do not bend.

Prefill costs a fixed part, one in proportion to the length (the weights) and one in proportion to
its square (attention), so the law is a + b L + c L^2 with a, b, c >= 0. It is fitted by least
trimmed squares of the relative error: the half of the calls that agree best decides, whatever the
others do (Rousseeuw 1984, JASA 79, 871-880; by concentration steps from small random subsets:
Rousseeuw and Van Driessen 2006, Data Mining and Knowledge Discovery 12, 29-45). A reweighted step
over all calls that lie within 2.5 SDs follows.

The simplest of a, a + b L and the whole law is taken whose best half scatters at most 1.15 times as
much as that of the whole law: a parabola would bend into a slow tail. Compared with the lines
of Theil and Sen and of Siegel: `benchmarks/latency_canary.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts.results.metrics import LengthLaw as FittedLaw

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints


LEAST_CALLS, LEAST_LENGTHS = 12, 4
_HALF = 0.5
_STARTS, _KEPT_STARTS, _STEPS = 60, 5, 20
_SIMPLER = 1.15
_CUTOFF_SD = 2.5
_MOST_CALLS = 2_000
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
    if len(ms) < LEAST_CALLS or len(np.unique(length_tokens)) < LEAST_LENGTHS:
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
