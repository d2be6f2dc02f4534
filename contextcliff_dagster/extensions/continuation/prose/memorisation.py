"""Verbatim overlap: how much of a continuation is the author's own next text, word for word.

A model that has the text in its weights recites it, and its prose is the author's for a reason that
has nothing to do with its context. Two passages of one text share phrases, too: what they share by
chance is measured on passages from different places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contextcliff_dagster.extensions.continuation.prose.words import Prose, read_prose

RUN_WORDS = 8
"""Words of the runs that are counted, as in the contamination check of Chowdhery et al. 2022,
"PaLM: scaling language modeling with pathways"."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Words in common of a continuation and its author's next text, typography apart.

    Attributes:
        longest_run: words of the longest stretch that both have.
        shared_runs: share of the continuation's runs of eight words that the author has, too; None
            where it has fewer words.
    """

    longest_run: int
    shared_runs: float | None


@dataclass(frozen=True, slots=True)
class ChanceOverlap:
    """What human passages from different places of one text have in common.

    Attributes:
        longest_run, shared_runs: the largest of all pairs.
        pairs: how many were compared.
    """

    longest_run: int
    shared_runs: float
    pairs: int

    def is_recited(self, overlap: Overlap) -> bool:
        """Whether a continuation shares more with its author than any two human passages do."""
        return overlap.longest_run > max(self.longest_run, RUN_WORDS) or (
            (overlap.shared_runs or 0.0) > self.shared_runs and overlap.longest_run > RUN_WORDS
        )


def verbatim_overlap(continuation: str, author: str) -> Overlap:
    """What ``continuation`` shares with ``author``, the text that really follows."""
    return _overlap(read_prose(continuation), read_prose(author))


def chance_overlap(passages: Sequence[str]) -> ChanceOverlap:
    """What consecutive human passages of one text share by chance.

    Each is compared with the one after the next, so that no sentence is in both, and with one from
    the other half of the text. No pair at all gives zeros.
    """
    read = [read_prose(text) for text in passages]
    count = len(read)
    pairs = [(i, i + 2) for i in range(count - 2)]
    pairs += [(i, i + count // 2) for i in range((count + 1) // 2) if 2 < count // 2 < count - i]
    overlaps = [_overlap(read[a], read[b]) for a, b in pairs]
    return ChanceOverlap(
        max((one.longest_run for one in overlaps), default=0),
        max((one.shared_runs or 0.0 for one in overlaps), default=0.0),
        len(overlaps),
    )


def _overlap(continuation: Prose, author: Prose) -> Overlap:
    runs = _runs(continuation)
    shared = None
    if runs:
        theirs = set(_runs(author))
        shared = sum(run in theirs for run in runs) / len(runs)
    return Overlap(_longest_run(continuation.words, author.words), shared)


def _runs(prose: Prose) -> list[tuple[str, ...]]:
    return [prose.words[at : at + RUN_WORDS] for at in range(len(prose.words) - RUN_WORDS + 1)]


def _longest_run(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common stretch, by dynamic programming over rows of matches."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys(b))}
    theirs = np.array([numbers[word] for word in b], np.int64)
    ended = np.zeros(len(b) + 1, np.int32)
    longest = 0
    for word in a:
        same = theirs == numbers.get(word, -1)
        ended[1:] = np.where(same, ended[:-1] + 1, 0)
        ended[0] = 0
        longest = max(longest, int(ended.max()))
    return longest
