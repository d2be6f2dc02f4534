"""Which rounds of a context size count: full batches, and outliers asked again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contextcliff_dagster.extensions.continuation.compat.statistics import Round, replacement

ATTEMPTS = 3
"""A batch and its retries."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a context size has.

    Attributes:
        state: `open` while rounds are to be asked, `done`, or `failed` after all attempts.
        needed: rounds to ask in all; at most those asked unless `open`.
        chosen: numbers of the rounds that count, by their places in the batch.
        replaced: numbers of those that were outliers, and no longer count.
    """

    state: Literal["open", "done", "failed"]
    needed: int
    chosen: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()


def chosen_rounds(rounds: Sequence[Round | None], size: int, *, drawn: bool = True) -> Batch:
    """Return the batch of ``size`` rounds that counts, or what is still to be asked.

    A batch with a round that has no figures fails as a whole, and the next rounds are another try.
    The outliers of a full batch are replaced once, in their places, by further rounds; where one of
    those has no figures, the batch stays as it was (the reference breaks off there).

    Args:
        rounds: all that are answered, in order; None: failed, or too short.
        size: rounds of a batch.
        drawn: whether another round can differ; else one batch is all.
    """
    attempts = ATTEMPTS if drawn else 1
    for start in range(0, attempts * size, size):
        batch = rounds[start : start + size]
        if len(batch) < size:
            return Batch("open", start + size)
        full = [one for one in batch if one is not None]
        if len(full) < size:
            continue
        chosen = list(range(start, start + size))
        _, places = replacement(full)
        further = rounds[start + size : start + size + len(places)]
        if len(further) < len(places):
            return Batch("open", start + size + len(places))
        if None in further:
            places = []
        for number, place in enumerate(places):
            chosen[place] = start + size + number
        replaced = tuple(start + place for place in places)
        return Batch("done", len(rounds), tuple(chosen), replaced)
    return Batch("failed", len(rounds))
