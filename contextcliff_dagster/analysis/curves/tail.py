"""What the answers on the longest documents say by themselves, whatever is expected of a curve.

A drop within the last few per cent of the answers is unlikely before anything is measured, so that
a posterior excludes it with hardly an answer there: one right answer at 64,000 tokens would carry a
cap from 4,000 to 64,000. A length near the end is therefore passed only where the answers at or
beyond it refute the loss alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints

ANSWERS, SHARE = 40.0, 0.2
"""So many of the longest, counted over their dispersion, and at most this share of all. What is
expected of a curve certifies no more than them (benchmarks/accept.py); a drop before them is for
the posterior to place."""


@dataclass(frozen=True, eq=False)
class Tail:
    """The lengths of the last answers, ascending, and sums over what is at least as long.

    Attributes:
        low: lengths, tokens (T).
        before: the longest scored length before each (T).
        n, s: answers at or beyond each and their summed scores, over the dispersion (T).
    """

    low: Ints
    before: Ints
    n: Floats
    s: Floats

    def supported(self, mean: float, confidence: float) -> int | None:
        """The longest length (tokens) before the first that is not supported; ``None``: all are.

        A length is supported where the answers at or beyond it refute that their mean is at most
        ``mean``: by the binomial tail, one-sided, continued to fractions. From the short side, each
        at full level, up to the first that fails: so no chance adds up over the lengths (Maurer,
        Hothorn and Lehmacher 1995, Biometrie in der chemisch-pharmazeutischen Industrie 6, 3-18).
        """
        from scipy.special import betainc

        wrong = np.maximum(self.n - self.s, 0.0)
        as_many = betainc(np.maximum(self.s, 1e-9), wrong + 1.0, mean)
        failed = np.flatnonzero(as_many > 1.0 - confidence)
        return int(self.before[failed[0]]) if len(failed) else None

    def lower(self, tokens: Ints, quantile: float) -> Floats:
        """Lower limit of the mean of the answers at or beyond ``tokens`` (P); 1 before the tail."""
        from scipy.special import betaincinv

        wrong = np.maximum(self.n - self.s, 0.0)
        limit = betaincinv(np.maximum(self.s, 1e-9), wrong + 1.0, quantile)
        at = np.searchsorted(np.append(self.before[:1], self.low), tokens)
        return np.append(1.0, np.append(np.minimum.accumulate(limit), 0.0))[at]


def tail_of(documents: Documents, dispersion: Floats, after: int) -> Tail:
    """The tail of ``documents`` of length (tokens) beyond ``after``; ``dispersion`` of each (D)."""
    lengths, start = np.unique(documents.length_tokens, return_index=True)
    worth = np.add.reduceat(documents.n / dispersion, start)
    right = np.add.reduceat(documents.s / dispersion, start)
    n, s = np.cumsum(worth[::-1])[::-1], np.cumsum(right[::-1])[::-1]
    beyond = np.searchsorted(lengths, after, side="right")
    worth_seen = min(ANSWERS, SHARE * float(n[0]))
    kept = slice(int(max(beyond, np.searchsorted(-n, -worth_seen - 1e-9))), None)
    return Tail(lengths[kept], np.append(0, lengths[:-1])[kept], n[kept], s[kept])
