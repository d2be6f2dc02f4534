"""Two conditions on the same questions, or on different documents: what a comparison is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Side:
    """Questions with an answer under one condition; all arrays of length N.

    ``document`` is a number, dense and the same on both sides where paired; ``stratum`` (benchmark
    and scale) holds whole documents; ``scale`` indexes the scales compared.
    """

    document: Ints
    stratum: Ints
    scale: Ints
    seed: Ints
    question: Ints
    score: Floats
    tokens: Floats
    kind: NDArray[np.str_]

    def at(self, inside: Bools) -> Side:
        """The questions ``inside`` (N), documents numbered anew in the same order."""
        arrays = {name: getattr(self, name)[inside] for name in _ARRAYS}
        _, arrays["document"] = np.unique(arrays["document"], return_inverse=True)
        return replace(self, **arrays)

    def by_document(self) -> tuple[Floats, Floats, Ints]:
        """Questions, summed scores and stratum of each document (D)."""
        n = np.bincount(self.document).astype(np.float64)
        s: Floats = np.bincount(self.document, weights=self.score).astype(np.float64)
        stratum = np.zeros(len(n), np.int64)
        stratum[self.document] = self.stratum
        return n, s, stratum


_ARRAYS = ("document", "stratum", "scale", "seed", "question", "score", "tokens", "kind")


@dataclass(frozen=True, eq=False)
class Matched:
    """Two conditions on the same questions (``paired``: rows aligned), or on different documents.

    ``dropped``: questions by scale that are left out, since one condition or both have no answer.
    """

    a: Side
    b: Side
    paired: bool
    dropped: Ints

    def at_scale(self, scale: int) -> Matched:
        """The questions at one scale."""
        return self.where(self.a.scale == scale, self.b.scale == scale)

    def where(self, in_a: Bools, in_b: Bools) -> Matched:
        """The questions ``in_a`` and ``in_b``; both the same where paired."""
        return replace(self, a=self.a.at(in_a), b=self.b.at(in_b))


def match_rows(
    one: pd.DataFrame,
    other: pd.DataFrame,
    scales: Sequence[int],
    *,
    paired: bool,
    within_format: bool = False,
) -> Matched:
    """Match rows of `answers.clean_answers`, one condition each, by document and question.

    Args:
        scales: tokens of the scales, ascending; no row has another.
        paired: else every answer of either side is kept, and no document is the same.
        within_format: whether rows match only those of their own format.
    """
    import pandas as pd

    keys = ["benchmark", "scale_tokens", "document_key", "question"]
    if within_format:
        keys.append("format")
    columns = [*keys, "seed", "score", "length_tokens", "question_kind"]
    place = {tokens: i for i, tokens in enumerate(scales)}
    if paired:
        both = pd.merge(one[columns], other[columns], "outer", on=keys, suffixes=("", "_b"))
        both = both.sort_values(keys, ignore_index=True)
        there = (both["score"].notna() & both["score_b"].notna()).to_numpy(bool)
        lost = both.loc[~there, "scale_tokens"]
        kept = both[there]
        frames = [kept, kept.assign(score=kept["score_b"], length_tokens=kept["length_tokens_b"])]
    else:
        frames = [side[side["score"].notna()].sort_values(keys) for side in (one, other)]
        unanswered = [side.loc[side["score"].isna(), "scale_tokens"] for side in (one, other)]
        lost = pd.concat(unanswered)
    names = sorted({*one["benchmark"], *other["benchmark"]})
    a, b = (_side(frame, place, names) for frame in frames)
    dropped = np.bincount(lost.map(place).to_numpy(np.int64), minlength=len(scales))
    return Matched(a, b, paired, dropped)


def _side(frame: pd.DataFrame, place: dict[int, int], names: Sequence[str]) -> Side:
    scale: Ints = frame["scale_tokens"].map(place).to_numpy().astype(np.int64)
    number = {name: i for i, name in enumerate(names)}
    benchmark: Ints = frame["benchmark"].map(number).to_numpy().astype(np.int64)
    document = frame.groupby(["benchmark", "scale_tokens", "document_key"], sort=True).ngroup()
    return Side(
        document.to_numpy().astype(np.int64),
        benchmark * len(place) + scale,
        scale,
        frame["seed"].to_numpy(np.int64),
        frame["question"].to_numpy(np.int64),
        frame["score"].to_numpy(np.float64),
        frame["length_tokens"].to_numpy(np.float64),
        frame["question_kind"].fillna("").to_numpy(np.str_),
    )
