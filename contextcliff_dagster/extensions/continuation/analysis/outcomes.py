"""Outcomes of generations as arrays: passages x context sizes x rounds, one set an arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.extensions.continuation.results import (
    Clusters,
    EndpointName,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints


COLUMNS = ("text", "passage", "context_tokens", "round", "arm", "score", "collapse")


_KEYS = ["text", "passage", "context_tokens", "round", "arm"]


LEAST_TEXTS = 5
"""Texts from which on texts are the units of intervals; of fewer, passages."""


@dataclass(frozen=True, eq=False)
class ArmOutcomes:
    """One arm: P passages, S sizes, R rounds at most; NaN where there is no outcome.

    Attributes:
        passages: text and name of each passage (P).
        text: number of each passage's text (P).
        sizes: context sizes in tokens, ascending (S).
        score: 0..1 (P, S, R); a collapsed generation that has no score counts as 0.
        intact: 1 without collapse, 0 with one (P, S, R).
        collapses: generations by kind of collapse, one mapping a size (S).
        missing: planned continuations of which there is no text; one that has a text and no score
            is not among them (`unscored`).
    """

    arm: str
    passages: Sequence[tuple[str, str]]
    text: Ints
    sizes: Ints
    score: Floats
    intact: Floats
    collapses: Sequence[Mapping[str, int]]
    missing: int

    def outcomes(self, endpoint: EndpointName) -> Floats:
        """The endpoint's outcomes (P, S, R)."""
        return self.score if endpoint == "score" else self.intact

    def means(self, endpoint: EndpointName) -> Floats:
        """Mean over rounds (P, S), NaN without any."""
        return self._score_means if endpoint == "score" else self._intact_means

    @cached_property
    def _score_means(self) -> Floats:
        return mean_known(self.score)

    @cached_property
    def _intact_means(self) -> Floats:
        return mean_known(self.intact)

    @property
    def unscored(self) -> Floats:
        """Share of the generations of each size that have no score (S); 0 without any."""
        known = ~np.isnan(self.intact)
        lacking = (known & np.isnan(self.score)).sum(axis=(0, 2))
        share: Floats = lacking / np.maximum(known.sum(axis=(0, 2)), 1)
        return share

    @property
    def measured(self) -> Bools:
        """Passages with any outcome (P)."""
        known: Bools = np.any(~np.isnan(self.intact), axis=(1, 2))
        return known

    @property
    def unit(self) -> Clusters:
        """Units of intervals: texts where there are `LEAST_TEXTS`, else passages."""
        texts = np.unique(self.text[self.measured])
        return "texts" if len(texts) >= LEAST_TEXTS else "passages"

    def clusters(self) -> Ints:
        """Number of each passage's `unit` (P)."""
        return self.text if self.unit == "texts" else np.arange(len(self.text))


def mean_known(values: Floats) -> Floats:
    """Mean over the last axis of what is known, NaN without any."""
    known = ~np.isnan(values)
    count = known.sum(axis=-1)
    total = np.where(known, values, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def clean_outcomes(rows: pd.DataFrame, arms: Sequence[str] = ()) -> list[ArmOutcomes]:
    """Each arm's outcomes, all with the same passages and sizes; no row order matters.

    Args:
        rows: `COLUMNS`, one row a generation. ``collapse`` is "" without one, null where nothing
            was generated; ``score`` is null where it is not known.
        arms: in the order in which they are reported, the first is the reference; else by name.

    Raises:
        ContextCliffError: a column is missing, there is no row, a generation occurs twice, a score
            is outside 0..1, a size is not positive, or an arm of ``arms`` has no row.
    """
    for column in COLUMNS:
        if column not in rows.columns:
            raise ContextCliffError(
                f"Outcomes of continuations have no column {column!r}; measure them with this "
                "version."
            )
    if not len(rows):
        raise ContextCliffError("There are no outcomes of continuations to analyse.")
    frame = rows[list(COLUMNS)].sort_values(_KEYS, kind="stable", ignore_index=True)
    if (frame["context_tokens"] <= 0).any():
        raise ContextCliffError("A context size is not positive.")
    double = frame.duplicated(_KEYS)
    if double.any():
        one = frame[double].iloc[0]
        raise ContextCliffError(
            f"Passage {one['passage']!r} of {one['text']!r} has round {one['round']} of arm "
            f"{one['arm']!r} at {one['context_tokens']} tokens twice."
        )
    score = frame["score"].to_numpy(np.float64, na_value=np.nan)
    if ((score < 0.0) | (score > 1.0)).any():
        raise ContextCliffError("A score of a continuation is outside 0..1.")
    present = sorted({str(arm) for arm in frame["arm"]})
    if absent := [arm for arm in arms if arm not in present]:
        raise ContextCliffError(
            f"The arm {absent[0]!r} has no outcome; arms with outcomes: {', '.join(present)}."
        )
    ordered = [*arms, *(arm for arm in present if arm not in arms)]
    return _arrays(frame, score, ordered)


def _arrays(frame: pd.DataFrame, score: Floats, arms: Sequence[str]) -> list[ArmOutcomes]:
    keys = sorted({(str(t), str(p)) for t, p in zip(frame["text"], frame["passage"], strict=True)})
    number = {key: i for i, key in enumerate(keys)}
    passage = np.array(
        [number[str(t), str(p)] for t, p in zip(frame["text"], frame["passage"], strict=True)]
    )
    texts = sorted({text for text, _ in keys})
    sizes, size = np.unique(frame["context_tokens"].to_numpy(np.int64), return_inverse=True)
    _, turn = np.unique(frame["round"].to_numpy(), return_inverse=True)
    tag = frame["collapse"]
    generated = tag.notna().to_numpy(bool)
    collapsed = generated & (tag.fillna("").astype(str) != "").to_numpy(bool)
    score = np.where(collapsed & np.isnan(score), 0.0, score)
    score = np.where(generated, score, np.nan)
    intact = np.where(generated, 1.0 - collapsed, np.nan)
    shape = (len(keys), len(sizes), int(turn.max()) + 1)
    found = []
    for arm in arms:
        mine = (frame["arm"].astype(str) == arm).to_numpy(bool)
        at = passage[mine], size[mine], turn[mine]
        scores, intacts = np.full(shape, np.nan), np.full(shape, np.nan)
        scores[at], intacts[at] = score[mine], intact[mine]
        kinds: list[dict[str, int]] = [{} for _ in sizes]
        for place, kind in zip(size[mine & collapsed], tag[mine & collapsed], strict=True):
            kinds[place][str(kind)] = kinds[place].get(str(kind), 0) + 1
        found.append(
            ArmOutcomes(
                arm=arm,
                passages=keys,
                text=np.array([texts.index(text) for text, _ in keys]),
                sizes=sizes,
                score=scores,
                intact=intacts,
                collapses=[dict(sorted(one.items())) for one in kinds],
                missing=int((mine & ~generated).sum()),
            )
        )
    return found
