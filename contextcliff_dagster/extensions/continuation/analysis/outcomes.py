"""Outcomes of generations as arrays per arm: passages x context sizes x rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.extensions.continuation.results import Clusters, EndpointName

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints


COLUMNS = ("text", "passage", "context_tokens", "round", "arm", "score", "collapse")
_KEYS = ["text", "passage", "context_tokens", "round", "arm"]
LEAST_TEXTS = 5
"""Minimum texts for which intervals take texts as units; with fewer, the units are passages."""


@dataclass(frozen=True, eq=False)
class ArmOutcomes:
    """Outcomes of one arm: P passages, S sizes, at most R rounds; NaN if missing.

    Attributes:
        passages: text and name of each passage (P).
        text: index of the text that each passage comes from (P).
        sizes: context sizes in tokens, ascending (S).
        score: 0..1 (P, S, R); a collapsed generation that has no score counts as 0.
        intact: 1 without collapse, 0 with a collapse (P, S, R).
        collapses: number of generations by kind of collapse, for each size (S).
        missing: number of planned continuations without a text; `unscored` counts those with a
        text but no score.
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
        """Return the endpoint's outcomes (P, S, R)."""
        return self.score if endpoint == "score" else self.intact

    def means(self, endpoint: EndpointName) -> Floats:
        """Return the means over rounds (P, S), NaN where there are no rounds."""
        return self._score_means if endpoint == "score" else self._intact_means

    @cached_property
    def _score_means(self) -> Floats:
        return mean_known(self.score)

    @cached_property
    def _intact_means(self) -> Floats:
        return mean_known(self.intact)

    @property
    def unscored(self) -> Floats:
        """Return the share of generations without a score at each size (S); 0 if there are none."""
        mask = ~np.isnan(self.intact)
        missing = (mask & np.isnan(self.score)).sum(axis=(0, 2))
        share: Floats = missing / np.maximum(mask.sum(axis=(0, 2)), 1)
        return share

    @property
    def measured(self) -> Bools:
        """Return which passages have any outcome (P)."""
        mask: Bools = np.any(~np.isnan(self.intact), axis=(1, 2))
        return mask

    @property
    def unit(self) -> Clusters:
        """Return the units on which intervals are based: texts, or passages below `LEAST_TEXTS`."""
        return "texts" if len(np.unique(self.text[self.measured])) >= LEAST_TEXTS else "passages"

    def clusters(self) -> Ints:
        """Return the index of the `unit` to which each passage belongs (P)."""
        return self.text if self.unit == "texts" else np.arange(len(self.text))


def mean_known(values: Floats) -> Floats:
    """Return the mean over the last axis of values that are not NaN, or NaN if all are."""
    mask = ~np.isnan(values)
    count = mask.sum(axis=-1)
    total = np.where(mask, values, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def clean_outcomes(
    rows: pd.DataFrame, arms: Sequence[str] = (), asked: Sequence[int] = ()
) -> list[ArmOutcomes]:
    """Return the outcomes of each arm on the same passages and sizes; row order does not matter.

    Args:
        rows: `COLUMNS`, at least one row, one per generation. ``collapse`` is "" if there is no
        collapse and null if nothing was generated; ``score`` is null if unknown.
        arms: names in report order, reference first; others that have rows follow, by name.
        asked: sizes of the study (tokens); those without a row have no outcome.

    Raises:
        ContextCliffError: a generation occurs twice.
    """
    frame = rows[list(COLUMNS)].sort_values(_KEYS, kind="stable", ignore_index=True)
    duplicates = frame.duplicated(_KEYS)
    if duplicates.any():
        row = frame[duplicates].iloc[0]
        raise ContextCliffError(
            f"Passage {row['passage']!r} of {row['text']!r} has round {row['round']} of arm "
            f"{row['arm']!r} at {row['context_tokens']} tokens twice."
        )
    score = frame["score"].to_numpy(np.float64, na_value=np.nan)
    names = sorted({str(arm) for arm in frame["arm"]})
    return _arrays(frame, score, [*arms, *(arm for arm in names if arm not in arms)], asked)


def _arrays(
    frame: pd.DataFrame, score: Floats, arms: Sequence[str], asked: Sequence[int]
) -> list[ArmOutcomes]:
    keys = sorted({(str(t), str(p)) for t, p in zip(frame["text"], frame["passage"], strict=True)})
    number = {key: i for i, key in enumerate(keys)}
    passage = np.array(
        [number[str(t), str(p)] for t, p in zip(frame["text"], frame["passage"], strict=True)]
    )
    texts = sorted({text for text, _ in keys})
    tokens = frame["context_tokens"].to_numpy(np.int64)
    sizes = np.union1d(tokens, np.array(asked, np.int64))
    size = np.searchsorted(sizes, tokens)
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
        in_arm = (frame["arm"].astype(str) == arm).to_numpy(bool)
        at = passage[in_arm], size[in_arm], turn[in_arm]
        scores, intacts = np.full(shape, np.nan), np.full(shape, np.nan)
        scores[at], intacts[at] = score[in_arm], intact[in_arm]
        kinds: list[dict[str, int]] = [{} for _ in sizes]
        for place, kind in zip(size[in_arm & collapsed], tag[in_arm & collapsed], strict=True):
            kinds[place][str(kind)] = kinds[place].get(str(kind), 0) + 1
        found.append(
            ArmOutcomes(
                arm=arm,
                passages=keys,
                text=np.array([texts.index(text) for text, _ in keys]),
                sizes=sizes,
                score=scores,
                intact=intacts,
                collapses=[dict(sorted(counts.items())) for counts in kinds],
                missing=int((in_arm & ~generated).sum()),
            )
        )
    return found
