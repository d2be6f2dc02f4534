"""The order in which calls are sent: time must say nothing about length.

Whatever drifts while a model is measured (its server's load, a deployment, a bad spell) is an
effect of length where calls go out in order of length. In blocks it is noise: each block holds
about one document of every bin, in random order (a randomized block design: Fisher 1935, The Design
of Experiments, chapter 4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

    from contextcliff_dagster.inference.requests.call_plan import PlannedCall

_Group = list["PlannedCall"]
_Documents = dict[str, _Group]
Order = Literal["blocks", "by_length"]
_DRAWS = 32
"""Orders that are drawn; the one with the least correlation is used: with a document or two a bin
a single one may well be in order of length."""


def in_blocks(calls: Sequence[PlannedCall], seed: int) -> list[PlannedCall]:
    """Return ``calls`` in seeded blocks of about one document of every bin.

    The i-th of a bin's k documents lies at a random place of the i-th of k equal stretches, so that
    a bin with few documents spreads over the whole run, too. Questions on one document are adjacent
    (servers with a prefix cache then read it once) or, where the recipe wants no prefix cache, as
    far apart as they can be: one of each document of the bin, then the next.

    Args:
        calls: of any number of bins, each with its documents' questions in order.
    """
    import numpy as np

    bins: defaultdict[str, _Documents] = defaultdict(dict)
    for call in calls:
        bins[call.bin].setdefault(call.example.document_id, []).append(call)
    rng = np.random.default_rng(seed)
    drawn = [_draw(bins.values(), rng) for _ in range(_DRAWS)]
    return min(drawn, key=_correlation)


def length_time_correlation(length_tokens: Sequence[int]) -> float:
    """Spearman's rank correlation of lengths with the order they come in; 0 for equal lengths.

    >>> round(length_time_correlation([10, 20, 20, 30]), 2)
    0.95
    """
    import numpy as np

    _, rank, count = np.unique(length_tokens, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - 0.5 * (count - 1)
    of_length = middle[rank] - 0.5 * (len(rank) + 1)
    place = np.arange(len(rank)) - 0.5 * (len(rank) - 1)
    spread = float(np.sqrt((of_length**2).sum() * (place**2).sum()))
    return float((of_length * place).sum()) / spread if spread > 0 else 0.0


def _draw(bins: Iterable[_Documents], rng: np.random.Generator) -> _Group:
    import numpy as np

    placed: list[tuple[float, _Group]] = []
    for documents in bins:
        groups = list(documents.values())
        groups = _groups([groups[i] for i in rng.permutation(len(groups))])
        at = (np.arange(len(groups)) + rng.random(len(groups))) / len(groups)
        placed += zip(at, groups, strict=True)
    return [call for _, group in sorted(placed, key=itemgetter(0)) for call in group]


def _groups(documents: list[_Group]) -> list[_Group]:
    """What is sent without a call of the same bin between."""
    if documents[0][0].recipe.prefix_cache:
        return documents
    return [[call] for turn in zip_longest(*documents) for call in turn if call is not None]


def _correlation(calls: _Group) -> float:
    return abs(length_time_correlation([call.length_tokens for call in calls]))
