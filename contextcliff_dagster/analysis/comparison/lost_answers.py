"""Answers that were right and are wrong now: more than an unchanged model's flips explain?

In a window of lengths the number of lost answers is compared with Binomial(examples, flip_rate): of
all examples, not of the right ones, because a baseline that is a draw itself loses its lucky
answers again. A window counts only where

- losses outnumber gains (sign test at 10%) and fall on three documents or more,
- and gains, in the window and as much again on either side, and in the whole sample, are no more
  than flips explain (at 2%): a model that answers anew each time gains as it loses.

Where runs differ in their flips (`flip_rates`), the larger tail probability counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.comparison.pairing import Pairs
    from contextcliff_dagster.analysis.comparison.regression import FlipRates
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

LEAST_DOCUMENTS = 3
SIGN_LEVEL, NOISE_LEVEL = 0.10, 0.02


@dataclass(frozen=True)
class Changes:
    """What became of each example, in order of length (E)."""

    was_right: Bools
    lost: Bools
    gained: Bools
    document: Ints
    length_tokens: Ints

    @classmethod
    def of(cls, pairs: Pairs) -> Changes:
        """An answer is right from a score of .5 on; lost or gained where it moved by as much."""
        order = np.argsort(pairs.example_document, kind="stable")
        a, b = pairs.examples_a[order], pairs.examples_b[order]
        right, document = a >= 0.5, pairs.example_document[order]
        return cls(
            right,
            right & (b - a <= -0.5),
            ~right & (b - a >= 0.5),
            document,
            pairs.a.length_tokens[document],
        )


class Window(NamedTuple):
    """One window: first and last length, and what happened in it."""

    from_tokens: int
    to_tokens: int
    examples: int
    right: int
    lost: int
    gained: int


@dataclass(frozen=True)
class Windows:
    """Counts in windows [start, end) of the examples (W); ``barred``: they do not count."""

    start: Ints
    end: Ints
    examples: Ints
    tail: Floats
    barred: Bools


def count_windows(
    changes: Changes, start: Ints, end: Ints, flip_rate: float, rates: FlipRates | None = None
) -> Windows:
    """Lost answers and their tail probability under flips in each window [start, end).

    ``rates``: what is known of this run's own; None: it is ``flip_rate``.
    """
    from scipy.stats import binom

    size = len(changes.lost)
    lost, gained = _running(changes.lost), _running(changes.gained)
    first = np.zeros(size, dtype=bool)  # only a document's first lost answer
    places = np.flatnonzero(changes.lost)
    first[places[np.unique(changes.document[places], return_index=True)[1]]] = True
    apart = _running(first)
    losses, gains = lost[end] - lost[start], gained[end] - gained[start]
    wide = end - start
    low, high = np.maximum(start - wide, 0), np.minimum(end + wide, size)
    around = gained[high] - gained[low]
    barred = (
        (np.asarray(binom.sf(losses - 1, losses + gains, 0.5)) > SIGN_LEVEL)
        | (apart[end] - apart[start] < LEAST_DOCUMENTS)
        | (np.asarray(binom.sf(around - 1, high - low, flip_rate)) < NOISE_LEVEL)
        | bool(binom.sf(int(gained[-1]) - 1, size, flip_rate) < NOISE_LEVEL)
    )
    tail = np.asarray(binom.sf(losses - 1, wide, flip_rate))
    rare = tail < 0.05  # more is noise anyway
    if rates is not None and rare.any():
        own = rates.tail(start[rare], end[rare], losses[rare])
        tail[rare] = np.maximum(tail[rare], own)
    return Windows(start, end, wide, tail, barred)


def window_at(changes: Changes, start: int, end: int) -> Window:
    """The window [start, end) of the examples; at least one."""
    inside = slice(start, end)
    lengths = changes.length_tokens[inside]
    return Window(
        int(lengths[0]),
        int(lengths[-1]),
        len(lengths),
        int(changes.was_right[inside].sum()),
        int(changes.lost[inside].sum()),
        int(changes.gained[inside].sum()),
    )


def at_the_loss(
    changes: Changes, loss_tokens: float, flip_rate: float, rates: FlipRates | None = None
) -> tuple[float, int, int]:
    """p-value, start and end of the window where a cliff that moved down shows first.

    From half of ``loss_tokens``, the length at which the baseline has lost its tolerance, up to it:
    one window, chosen by the baseline alone, so that nothing is paid for looking elsewhere.
    """
    lengths = changes.length_tokens
    start = int(np.searchsorted(lengths, loss_tokens / 2))
    end = int(np.searchsorted(lengths, loss_tokens, side="right"))
    if end <= start:
        return 1.0, 0, len(lengths)
    return window_p_value(changes, start, end, flip_rate, rates), start, end


def window_p_value(
    changes: Changes, start: int, end: int, flip_rate: float, rates: FlipRates | None = None
) -> float:
    """p-value of the lost answers in the window [start, end); 1 where it does not count."""
    windows = count_windows(changes, np.array([start]), np.array([end]), flip_rate, rates)
    return 1.0 if windows.barred[0] else float(windows.tail[0])


def _running(flags: Bools) -> Ints:
    return np.concatenate([[0], np.cumsum(flags)]).astype(np.int64)
