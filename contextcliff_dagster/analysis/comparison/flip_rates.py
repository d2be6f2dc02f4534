"""How many right answers an unchanged model loses in one run, where runs differ.

A run's rate is Beta distributed, mean and correlation within the run have a prior on a grid. They
are updated by runs of the unchanged model (beta-binomial), then by what this run lost itself on the
plateau outside the window in question. Counts are divided by the dispersion of whole documents, as
a spell of flips hits all questions on one (Rao and Scott 1992, Biometrics 48, 577-585).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.comparison.lost_answers import Changes
    from contextcliff_dagster.contracts.arrays import Floats, Ints

LEAST_RUNS = 5  # from which on their variation is estimated
_LOGITS = np.linspace(-16.0, 3.0, 220)
RATES: Floats = 1.0 / (1.0 + np.exp(-_LOGITS))
_EDGES = np.concatenate([[0.0], 1.0 / (1.0 + np.exp(-0.5 * (_LOGITS[1:] + _LOGITS[:-1]))), [1.0]])
_MEANS = 2.0 ** np.arange(-20.0, 2.1, 0.5)
"""Times the study's flip rate; before there are runs those below it are as likely (a server may
answer the same every time), and log-normal above, with an SD of .7 octaves."""
_CORRELATIONS = np.array([0.0005, 0.002, 0.008, 0.02, 0.06])
_BELIEF = np.array([0.5, 0.3, 0.15, 0.04, 0.01])
"""Before there are runs. With equal shares five could not show that runs are alike."""


@dataclass(frozen=True)
class FlipRates:
    """Of one run: ``weights`` of `RATES` by other runs, ``dispersion`` of whole documents (1 where
    questions are independent), ``lost`` of the first 0, 1, ... examples of its plateau (m + 1)."""

    weights: Floats
    dispersion: float
    lost: Ints

    @classmethod
    def of(
        cls, now: Changes, unchanged: Sequence[Changes], plateau_tokens: float, flip_rate: float
    ) -> FlipRates:
        """From the plateau (documents shorter than ``plateau_tokens``) of this and other runs."""
        from scipy.special import betaln

        counts, off, expected = [], 0.0, 0.0
        for run in (*unchanged, now):
            short = run.length_tokens < plateau_tokens
            document = run.document[short]
            n = np.bincount(document)
            lost = np.bincount(document, weights=run.lost[short])
            rate = lost.sum() / max(n.sum(), 1)
            off += float(np.square(lost - n * rate).sum())
            expected += float(n.sum() * rate * (1.0 - rate))
            counts.append((lost.sum(), n.sum()))
        dispersion = max(off / expected, 1.0) if expected else 1.0
        a, b, log, density = _beliefs(flip_rate)
        for lost, n in np.array(counts[:-1]).reshape(-1, 2) / dispersion:
            log = log + betaln(a + lost, b + n - lost) - betaln(a, b)
        weights: Floats = np.exp(log - log.max()) @ density
        inside = now.lost[now.length_tokens < plateau_tokens]
        running = np.concatenate([[0], np.cumsum(inside)]).astype(np.int64)
        return cls(weights / weights.sum(), dispersion, running)

    def outside(self, start: Ints, end: Ints) -> Floats:
        """Probabilities of `RATES` given the plateau outside windows [start, end) (W, P)."""
        size = len(self.lost) - 1
        first, last = np.minimum(start, size), np.minimum(end, size)
        lost = (self.lost[-1] - self.lost[last] + self.lost[first]) / self.dispersion
        n = (size - last + first) / self.dispersion
        with np.errstate(divide="ignore"):
            log = np.log(self.weights) + np.outer(lost, np.log(RATES))
        log += np.outer(n - lost, np.log1p(-RATES))
        weights = np.exp(log - log.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float64)

    def tail(self, start: Ints, end: Ints, lost: Ints) -> Floats:
        """Probability of as many lost answers in windows [start, end) (W)."""
        from scipy.special import betainc

        k, n = lost / self.dispersion, (end - start) / self.dispersion
        at_least = betainc(np.maximum(k, 1e-9)[:, None], (n - k + 1.0)[:, None], RATES)
        return np.asarray((self.outside(start, end) * at_least).sum(axis=1), np.float64)

    def upper(self, start: Ints, end: Ints, level: float) -> Floats:
        """Rate that the run's own exceeds with a probability of ``level`` at most (W)."""
        beyond = np.cumsum(self.outside(start, end)[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(RATES[np.argmax(beyond <= level, axis=1)], np.float64)


@cache
def _beliefs(flip_rate: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Parameters a and b of each Beta distribution, log prior (B), shares near `RATES` (B, P)."""
    from scipy.special import betainc

    mean, rho = (one.ravel() for one in np.meshgrid(flip_rate * _MEANS, _CORRELATIONS))
    mean = np.minimum(mean, 0.5)
    a, b = mean * (1.0 / rho - 1.0), (1.0 - mean) * (1.0 / rho - 1.0)
    higher = np.maximum(np.log2(mean / flip_rate), 0.0)
    log = np.repeat(np.log(_BELIEF), len(_MEANS)) - np.square(higher)
    return a, b, log, np.diff(betainc(a[:, None], b[:, None], _EDGES), axis=1)
