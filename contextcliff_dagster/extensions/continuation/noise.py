"""The authors' own prose, against which continuations are scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from contextcliff_dagster.extensions.continuation.distance.human_noise import HumanNoise
from contextcliff_dagster.extensions.continuation.prose.metrics import ProseMetrics, metrics_of
from contextcliff_dagster.extensions.continuation.prose.words import (
    ChanceOverlap,
    Prose,
    chance_overlap,
    read_prose,
)

LENGTHS = (1.0, 0.75, 0.5, 0.35, 0.25)
"""Shares of the author's passage at which texts are compared: both are cut to the same words."""


@dataclass
class Authors:
    """Passages of a study's authors: what each point goes on with, and others for the noise floor.

    Attributes:
        after: passage -> what its author wrote after it.
        human: text -> other passages of the same author, in their order.
    """

    after: Mapping[str, Prose]
    human: Mapping[str, list[Prose]]
    _noise: dict[int, HumanNoise] = field(default_factory=dict)
    _metrics: dict[tuple[str, int], ProseMetrics] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Authors:
        """From the rows of `documents.kept.passages`."""
        after: dict[str, Prose] = {}
        human: dict[str, list[Prose]] = {}
        for row in rows:
            if row["kind"] == "author":
                after[row["passage"]] = read_prose(row["text"])
            else:
                human.setdefault(row["source"], []).append(read_prose(row["text"]))
        return cls(after, human)

    @property
    def words(self) -> int:
        """Words of the longest passage."""
        return max((len(one.words) for one in self.after.values()), default=0)

    def compared_words(self, passage: str, words: int) -> int:
        """Return how many words of a continuation of ``words`` are compared; 0: it is too short."""
        most = min(words, len(self.after[passage].words))
        return next((int(s * self.words) for s in LENGTHS if int(s * self.words) <= most), 0)

    def noise(self, words: int) -> HumanNoise:
        """Return distances between human passages of so many words.

        Raises:
            DataError: there are too few passages.
        """
        if words not in self._noise:
            cut = {
                text: [_measured(one, words) for one in of if len(one.words) >= words]
                for text, of in self.human.items()
            }
            self._noise[words] = HumanNoise.fit(cut)
        return self._noise[words]

    def metrics_after(self, passage: str, words: int) -> ProseMetrics:
        """Return the metrics of the first words that the author wrote after a point."""
        if (passage, words) not in self._metrics:
            self._metrics[passage, words] = _measured(self.after[passage], words)
        return self._metrics[passage, words]

    def author_metrics(self) -> list[Mapping[str, float | None]]:
        """Return the metrics of what the author wrote after each point, as far as is compared."""
        found = ((name, len(prose.words)) for name, prose in self.after.items())
        compared = ((name, self.compared_words(name, words)) for name, words in found)
        return [self.metrics_after(name, words).as_dict() for name, words in compared if words]

    def chance_overlap(self) -> ChanceOverlap:
        """Return what human passages from different places of one text share at most."""
        found = [
            chance_overlap([one.first(self.words).text for one in of]) for of in self.human.values()
        ]
        return ChanceOverlap(
            max((one.longest_run for one in found), default=0),
            max((one.shared_runs for one in found), default=0.0),
            sum(one.pairs for one in found),
        )

    def human_scores(self) -> list[float]:
        """Return the scores of human passages, each by the next one of its text.

        Raises:
            DataError: there are too few passages.
        """
        noise = self.noise(self.words)
        scores = [
            noise.score(_measured(one, self.words), _measured(other, self.words))
            for of in self.human.values()
            for one, other in pairwise(of)
        ]
        return [score for score in scores if score is not None]


def _measured(prose: Prose, words: int) -> ProseMetrics:
    return metrics_of(prose.first(words))
