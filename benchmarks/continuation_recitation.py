"""How often human prose is called recited: `benchmarks/continuation.py recitation`.

Every continuation is replaced by a passage from elsewhere in the same novel (data/prose,
`make prose`), which repeats its author's next text by chance only. Points, passages for chance
overlap, and the warning are those of the product.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from contextcliff_dagster.extensions.continuation.analysis.metric_means import COMMON
from contextcliff_dagster.extensions.continuation.documents import MOST_HUMAN
from contextcliff_dagster.extensions.continuation.prose.words import (
    RUN_WORDS,
    ChanceOverlap,
    Overlap,
    chance_overlap,
    read_prose,
    verbatim_overlap,
)

SIZES, POINTS, ROUNDS = 6, 16, 3
_NOTHING = Overlap(0, 0.0)


@dataclass(frozen=True, slots=True)
class Novel:
    """Consecutive passages of a novel, with overlaps of those sharing eight words in a row."""

    passages: Sequence[str]
    shared: Mapping[tuple[int, int], Overlap]

    def overlap(self, a: int, b: int) -> Overlap:
        """Return the overlap of continuation ``a`` with author's text ``b``; none for fewer than
        eight words in a row, because no rule uses shorter runs."""
        return self.shared.get((a, b), _NOTHING)


def read_novel(text: str, words: int) -> Novel:
    whole = read_prose(text)
    bounds = pairwise(map(int, whole.starts[::words]))
    passages = [whole.text[a:b].strip() for a, b in bounds]
    holders: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for number, passage in enumerate(passages):
        of = read_prose(passage).words
        for at in range(len(of) - RUN_WORDS + 1):
            holders[of[at : at + RUN_WORDS]].add(number)
    shared = {}
    for numbers in holders.values():
        for a, b in combinations(sorted(numbers), 2):
            shared[a, b] = verbatim_overlap(passages[a], passages[b])
            shared[b, a] = verbatim_overlap(passages[b], passages[a])
    return Novel(passages, shared)


def chance_of(novel: Novel, human: Sequence[int]) -> ChanceOverlap:
    """Return the chance overlap like `chance_overlap`, from the stored overlaps."""
    count = len(human)
    pairs = [(i, i + 2) for i in range(count - 2)]
    pairs += [(i, i + count // 2) for i in range((count + 1) // 2) if 2 < count // 2 < count - i]
    found = [novel.overlap(human[a], human[b]) for a, b in pairs]
    runs = max(one.longest_run for one in found)
    return ChanceOverlap(runs, max(one.shared_runs or 0.0 for one in found), len(pairs))


def draw(novel: Novel, rng: np.random.Generator) -> tuple[int, bool]:
    """Return how many continuations of one study are called recited, and if its report warns."""
    count = len(novel.passages)
    stretches = np.array_split(np.arange(count), POINTS)
    points = [int(rng.choice(one)) for one in stretches]
    free = [one for one in range(count) if one not in points]
    chosen = np.unique(np.linspace(0, len(free) - 1, min(MOST_HUMAN, len(free))).round())
    chance = chance_of(novel, [free[int(one)] for one in chosen])
    recited = np.zeros(SIZES, int)
    for size in range(SIZES):
        for point in points:
            for other in rng.choice(count - 1, ROUNDS):
                written = int(other + (other >= point))
                recited[size] += chance.is_recited(novel.overlap(written, point))
    most = int(recited.max())
    return int(recited.sum()), most >= 2 and most / (POINTS * ROUNDS) >= COMMON


def agrees(novel: Novel) -> bool:
    """Return whether the stored overlaps agree with the product on the first passages."""
    some = list(range(min(12, len(novel.passages))))
    ours = chance_of(novel, some)
    theirs = chance_overlap([[novel.passages[one] for one in some]])
    beyond = max(theirs.longest_run, RUN_WORDS) == max(ours.longest_run, RUN_WORDS)
    return beyond and theirs.shared_runs == ours.shared_runs and theirs.pairs == ours.pairs


def show_recitation(given: argparse.Namespace) -> None:
    from tools.fetch_prose import prose_folder

    files = sorted(prose_folder().glob("*.txt"))
    for words in (90, 180, 700):
        novels = [read_novel(path.read_text(encoding="utf-8"), words) for path in files]
        assert all(map(agrees, novels))
        rng = np.random.default_rng(0)
        drawn = [draw(novels[number % len(novels)], rng) for number in range(given.studies)]
        recited, warned = sum(one for one, _ in drawn), sum(one for _, one in drawn)
        total = given.studies * SIZES * POINTS * ROUNDS
        some = sum(one > 0 for one, _ in drawn)
        print(
            f"recitation: {words} words: {recited} of {total:,} human passages called recited, in "
            f"{some} of {given.studies:,} studies; {warned} studies warn",
            flush=True,
        )
