"""Diversity and repetition of words, in windows: the length of a text does not move them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def word_ids(words: Sequence[str]) -> Ids:
    """A number for each word, the same for the same word."""
    seen: dict[str, int] = {}
    return np.fromiter((seen.setdefault(word, len(seen)) for word in words), np.int64, len(words))


def ngram_ids(ids: Ids, n: int) -> Ids:
    """A number for each run of ``n`` words; empty where there are fewer."""
    if len(ids) < n:
        return np.empty(0, np.int64)
    runs = ids
    for more in range(1, n):
        # Ranked anew at each step, so that the product stays small.
        runs = runs[: len(ids) - more] * (int(ids.max()) + 1) + ids[more:]
        runs = np.unique(runs, return_inverse=True)[1].astype(np.int64)
    return runs


def windowed_diversity(ids: Ids, window: int) -> NDArray[np.float64]:
    """Distinct ids / ``window`` in each run of ``window`` ids; empty where there are fewer."""
    count = len(ids) - window + 1
    if count < 1:
        return np.empty(0)
    at = np.arange(len(ids))
    # An id counts in the windows that begin after its occurrence before and reach it.
    first = np.maximum(np.maximum(last_seen(ids) + 1, at - window + 1), 0)
    last = np.minimum(at, count - 1)
    counted = first <= last
    change = np.zeros(count + 1)
    np.add.at(change, first[counted], 1.0)
    np.add.at(change, last[counted] + 1, -1.0)
    return np.cumsum(change[:-1]) / window


def moving_type_token_ratio(ids: Ids, window: int) -> float | None:
    """Mean of distinct words / words over all windows; None for a text shorter than one.

    MATTR: Covington and McFall 2010, "Cutting the Gordian knot: the moving-average type-token
    ratio".
    """
    ratios = windowed_diversity(ids, window)
    return float(ratios.mean()) if len(ratios) else None


def repetition(ids: Ids, n: int, window: int) -> float | None:
    """Share of runs of ``n`` words that also began within the ``window`` words before.

    Only runs with a whole window before them count. None where there are fewer than ten.
    """
    runs = ngram_ids(ids, n)
    if len(runs) < window + 10:
        return None
    gap = np.arange(len(runs)) - last_seen(runs)
    return float((gap[window:] <= window).mean())


def last_seen(ids: Ids) -> Ids:
    """Place of the occurrence of the same id before; far below 0 where there is none."""
    order = np.argsort(ids, kind="stable")
    before = np.full(len(ids), -(1 << 40), np.int64)
    same = ids[order[1:]] == ids[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before
