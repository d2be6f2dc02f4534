"""Do scores scatter more over some stretch of lengths than their mean explains?

A score in 0..1 with mean m has a variance of at most m (1 - m), so a spread that grows because the
mean moves toward 1/2 is no signal of its own. Tested is the rest: with the fitted mean m of each
example,

    v = (y - m)^2 / (m (1 - m)),

whose expectation is the share of the largest possible variance that the scores have. Statistic: the
largest standardised difference between the mean of v over a window of lengths and over the others;
windows hold 8 to 60% of the examples. p-value: whole documents permuted over the lengths, the
largest statistic of each, so that it is one test over all windows.

With 0/1 scores v has expectation 1 at every length, whatever the model does: the test is refused
where fewer than 5% of the scores lie strictly between 0 and 1. Examples with a fitted mean below
.15 or above .85 are left out: there a single odd score outweighs all others and its chance is not
that of scores elsewhere; where they are more than half, the test is refused, too. Assumes that the
fitted mean is right: where it is not (a shelf that the fit cannot follow) the misfit counts as
scatter. How often that misleads: docs/method.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts.results.cliffs import VarianceSignal
from contextcliff_dagster.contracts.results.fields import nulls

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

LEAST_BETWEEN = 0.05
_LEAST_DOCUMENTS = 20
_LEAST_ROOM = 0.5
_MOST_UNITS = 400
_KNOTS = 40
_SHARES = (0.08, 0.60)
_LEAST_MEAN, _MOST_MEAN = 0.15, 0.85


def variance_signal(
    document: Ints,
    length_tokens: Ints,
    scores: Floats,
    mean: Floats | None,
    *,
    permutations: int,
    seed: int,
) -> VarianceSignal:
    """The ``variance_signal`` of ``metrics.json``: p-value and the window, or why it is refused.

    Args:
        document, length_tokens, scores: of the examples (N).
        mean: fitted mean of each example (N); ``None`` where the data support no fit.
    """
    between = float(np.mean((scores > 0) & (scores < 1))) if len(scores) else 0.0
    if mean is None or len(np.unique(document)) < _LEAST_DOCUMENTS:
        return _refused(f"fewer than {_LEAST_DOCUMENTS} documents, or no fitted curve")
    if between < LEAST_BETWEEN:
        return _refused(
            f"{between:.0%} of the scores lie strictly between 0 and 1 (needed: "
            f"{LEAST_BETWEEN:.0%}): the variance of 0/1 scores is mean x (1 - mean) and adds "
            "nothing to the mean"
        )
    room = (mean >= _LEAST_MEAN) & (mean <= _MOST_MEAN)
    if room.mean() < _LEAST_ROOM or len(np.unique(document[room])) < _LEAST_DOCUMENTS:
        return _refused(
            f"the fitted mean lies below {_LEAST_MEAN} or above {_MOST_MEAN} for "
            f"{1 - room.mean():.0%} of the examples, which leaves scores no room to scatter"
        )
    document, length_tokens, m = document[room], length_tokens[room], mean[room]
    v = (scores[room] - m) ** 2 / (m * (1.0 - m))
    _, first, unit = np.unique(document, return_index=True, return_inverse=True)
    lengths = length_tokens[first]
    order = np.argsort(lengths, kind="stable")
    n, s = np.bincount(unit)[order].astype(np.float64), np.bincount(unit, weights=v)[order]
    lengths = lengths[order]
    group = np.arange(len(n)) * min(len(n), _MOST_UNITS) // len(n)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    n, s = np.add.reduceat(n, first), np.add.reduceat(s, first)
    start, end = _windows(n)
    if not len(start):
        return _refused("no stretch of lengths with enough examples inside and outside")

    rng = np.random.default_rng((seed, 4))
    count = len(n)
    rows = np.vstack([np.arange(count), rng.random((permutations, count)).argsort(axis=1)])
    cum_n, cum_s = np.zeros((len(rows), count + 1)), np.zeros((len(rows), count + 1))
    np.cumsum(n[rows], axis=1, out=cum_n[:, 1:])
    np.cumsum(s[rows], axis=1, out=cum_s[:, 1:])
    inside_n, inside = cum_n[:, end] - cum_n[:, start], cum_s[:, end] - cum_s[:, start]
    rest_n = n.sum() - inside_n
    more = inside / inside_n - (s.sum() - inside) / rest_n
    contrast = more * np.sqrt(inside_n * rest_n / n.sum())
    best = int(np.argmax(contrast[0]))
    largest = contrast.max(axis=1)
    last = np.append(first[1:], len(lengths)) - 1
    inside_share = float(inside[0, best] / inside_n[0, best])
    outside_share = inside_share - float(more[0, best])
    return VarianceSignal(
        p_value=float(np.mean(largest >= largest[0] - 1e-9)),
        from_tokens=int(lengths[first[start[best]]]),
        to_tokens=int(lengths[last[end[best] - 1]]) + 1,
        # Around a mean that is fitted, not known, it may come out above the largest possible.
        inside=min(inside_share, 1.0),
        outside=min(outside_share, 1.0),
        refused_because=None,
    )


def variance_sentence(signal: VarianceSignal, alpha: float = 0.05) -> str | None:
    """The signal in words, ``None`` where there is none."""
    if signal.p_value is None or signal.p_value > alpha:
        return None
    return (
        f"Scores scatter more between {signal.from_tokens:,} and {signal.to_tokens:,} tokens "
        f"than their mean explains: {signal.inside:.2f} of the largest possible variance, "
        f"{signal.outside:.2f} elsewhere, p = {signal.p_value:.3f}."
    )


def _refused(reason: str) -> VarianceSignal:
    return nulls(VarianceSignal, refused_because=reason)


def _windows(n: Floats) -> tuple[Ints, Ints]:
    """Starts and ends (exclusive) of windows on at most 41 edges of units with ``n`` examples."""
    count = len(n)
    knots = np.unique(np.linspace(0, count, min(count, _KNOTS) + 1).round().astype(np.int64))
    start, end = (side.ravel() for side in np.meshgrid(knots, knots, indexing="ij"))
    cum = np.concatenate([[0.0], np.cumsum(n)])
    inside = cum[end] - cum[start]
    good = (start < end) & (inside >= _SHARES[0] * cum[-1]) & (inside <= _SHARES[1] * cum[-1])
    return start[good], end[good]
