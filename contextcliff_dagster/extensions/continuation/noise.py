"""The noise floor: how much passages by the same author differ.

A continuation is judged by its distance from what the author wrote at the same place. Human
passages set the scale: the score is the fraction of pairs of equally long passages from one text
that are at least as far apart. Human continuations score uniformly between 0 and 1, so a model that
writes as the author does scores .5 on average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.extensions.continuation.prose.metrics import ProseMetrics, metrics_of
from contextcliff_dagster.extensions.continuation.prose.words import (
    ChanceOverlap,
    Prose,
    chance_overlap,
    read_prose,
)

Floats = NDArray[np.float64]

_SCALES: Mapping[str, Callable[[Floats], Floats]] = {
    "diversity_50": np.asarray,
    "diversity_200": np.asarray,
    "repetition_50": np.sqrt,
    "repetition_200": np.sqrt,
    "word_length": np.log,
    "long_words": np.sqrt,
    "function_words": np.asarray,
    "broken_articles": np.sqrt,
    "pronouns": np.sqrt,
    "sentence_length": np.log,
    "sentence_variation": np.asarray,
    "rhythm": np.asarray,
    "shared_content": np.sqrt,
    "commas": np.sqrt,
    "semicolons": np.sqrt,
    "questions": np.sqrt,
    "exclamations": np.sqrt,
    "dashes": np.sqrt,
    "quotation_marks": np.sqrt,
}
"""Metric -> the scale on which its spread depends least on its mean: square roots for rates,
logarithms for lengths. Counts are omitted because they depend on length, LIX because it combines
two other metrics, and coherence because embeddings are not always available."""
DISTANCE_METRICS = tuple(_SCALES)

LEAST_PASSAGES = 20
"""Minimum number of human passages, over all texts, that have all of the shared metrics."""
_LEAST_SHARED, _LEAST_HUMAN = 0.5, 0.8
_MOST_PAIRS = 100_000
_FOLDS = 2


class _Fold(NamedTuple):
    """Standard deviations and whitening from one half of the passages, distances from the other."""

    sd: Floats
    whitening: Floats
    distances: Floats


@dataclass(frozen=True, slots=True)
class HumanNoise:
    """Noise model: distances between human passages of the same text.

    Attributes:
        values: passages x `DISTANCE_METRICS`, on their scales; NaN if missing.
        texts: the index of the text that each passage comes from.
    """

    values: Floats
    texts: NDArray[np.int64]
    _folds: dict[bytes, list[_Fold]]

    @classmethod
    def fit(cls, passages: Mapping[str, Sequence[ProseMetrics]]) -> HumanNoise:
        """Fit the noise model to the metrics of human passages, in order within each text.

        The passages must be as long as the continuations to be scored. Raise DataError with fewer
        than 20 passages, or fewer than four of any text.
        """
        count = sum(map(len, passages.values()))
        short_texts = [text for text, of in passages.items() if len(of) < 2 * _FOLDS]
        if count < LEAST_PASSAGES or short_texts:
            which = f"; {short_texts[0]!r} has too few" if short_texts else ""
            raise DataError(
                f"{count} human passages do not show how far an author is from himself{which}: give"
                f" at least {LEAST_PASSAGES} in all and {2 * _FOLDS} of each text, or shorter ones."
            )
        values = np.vstack([_scaled(metrics) for of in passages.values() for metrics in of])
        texts = np.repeat(np.arange(len(passages)), [len(of) for of in passages.values()])
        return cls(values, texts.astype(np.int64), {})

    def score(self, continuation: ProseMetrics, author: ProseMetrics) -> float | None:
        """Return the fraction of held-out human distances that are at least as large as this one.

        Distances use only the metrics that both texts and at least 80% of the human passages have;
        a metric that does not vary among human passages is left out. A continuation scores 0 if it
        has no words, or less than half of the metrics that its author's passage has. Return None
        if the author's passage has none of the metrics, or fewer than 20 human passages have
        them all.
        """
        change = _scaled(continuation) - _scaled(author)
        measurable = np.isfinite(self.values).mean(axis=0) >= _LEAST_HUMAN
        usable = np.isfinite(_scaled(author)) & measurable
        shared = np.isfinite(change) & usable
        if not usable.any():
            return None
        if not continuation.words or shared.sum() < _LEAST_SHARED * usable.sum():
            return 0.0
        shares = []
        for fold in self._folds_on(shared):
            distance = np.linalg.norm((change[shared] / fold.sd) @ fold.whitening)
            shares.append(float((fold.distances >= distance).mean()))
        return float(np.mean(shares)) if shares else None

    def _folds_on(self, shared: NDArray[np.bool_]) -> list[_Fold]:
        key = shared.tobytes()
        if key not in self._folds:
            self._folds[key] = self._fitted(shared)
        return self._folds[key]

    def _fitted(self, shared: NDArray[np.bool_]) -> list[_Fold]:
        complete = np.isfinite(self.values[:, shared]).all(axis=1)
        if complete.sum() < LEAST_PASSAGES:
            return []
        order = np.cumsum(complete) % _FOLDS  # alternately, so that both halves span each text
        folds = []
        for half in range(_FOLDS):
            fitted = self._within_texts(complete & (order != half))[:, shared]
            fitted = fitted[np.isfinite(fitted).all(axis=1)]
            sd = fitted.std(axis=0)
            sd = np.where(sd > 1e-9, sd, np.inf)
            whitening = np.linalg.cholesky(np.linalg.inv(ledoit_wolf(fitted / sd)))
            held_out = complete & (order == half)
            rows = (self.values[held_out][:, shared] / sd) @ whitening
            folds.append(_Fold(sd, whitening, _pair_distances(rows, self.texts[held_out])))
        return [fold for fold in folds if len(fold.distances)]

    def _within_texts(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return the chosen passages' rows minus the means of their texts; other rows are NaN."""
        rows = np.where(chosen[:, None], self.values, np.nan)
        for text in np.unique(self.texts[chosen]):
            rows_of_text = chosen & (self.texts == text)
            rows[rows_of_text] -= rows[rows_of_text].mean(axis=0)
        return rows


def _scaled(metrics: ProseMetrics) -> Floats:
    values = metrics.as_dict()
    row = np.array([np.nan if values[n] is None else values[n] for n in _SCALES], np.float64)
    for column, scale in enumerate(_SCALES.values()):
        row[column] = scale(row[column])
    return row


def _pair_distances(rows: Floats, texts: NDArray[np.int64]) -> Floats:
    """Return the distances between pairs within texts, of which at most 100,000 are sampled."""
    pairs = [
        np.flatnonzero(texts == text)[np.column_stack(np.triu_indices((texts == text).sum(), 1))]
        for text in np.unique(texts)
    ]
    places = np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)
    if len(places) > _MOST_PAIRS:
        places = np.random.default_rng(0).choice(places, _MOST_PAIRS, replace=False)
    distances: Floats = np.linalg.norm(rows[places[:, 0]] - rows[places[:, 1]], axis=1)
    return distances


def ledoit_wolf(rows: Floats) -> Floats:
    """Return the covariance of centred ``rows`` (n x p), shrunk to mean variance times identity.

    Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices",
    J. Multivariate Analysis 88: the convex combination with the least expected squared error.
    """
    n, p = rows.shape
    sample = rows.T @ rows / n
    scale = float(np.trace(sample)) / p
    target = scale * np.eye(p)
    spread = float(((sample - target) ** 2).sum())
    # Sum over rows of |x x' - S|^2, without the n matrices: |x|^4 - 2 x'Sx + |S|^2.
    fourth = float(((rows**2).sum(axis=1) ** 2).sum()) / n
    noise = (fourth - float((sample**2).sum())) / n
    share = min(max(noise / spread, 0.0), 1.0) if spread > 0 else 1.0
    shrunk: Floats = share * target + (1.0 - share) * sample
    return shrunk


LENGTHS = (1.0, 0.75, 0.5, 0.35, 0.25)
"""Fractions of the author's passage to which both texts may be cut for comparison, in words."""


@dataclass
class Authors:
    """Passages by a study's authors: the text after each point, and others for the noise floor.

    Attributes:
        after: point -> what the author wrote after it.
        human: text -> other passages from the same text, in text order.
    """

    after: Mapping[str, Prose]
    human: Mapping[str, list[Prose]]
    _noise: dict[int, HumanNoise] = field(default_factory=dict)
    _metrics: dict[tuple[str, int], ProseMetrics] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Authors:
        """Build the authors from the rows of `documents.passages`."""
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
        """Return the number of words in the longest passage."""
        return max((len(prose.words) for prose in self.after.values()), default=0)

    def compared_words(self, passage: str, words: int) -> int:
        """Return how many of ``words`` words are compared; 0 if the continuation is too short."""
        most = min(words, len(self.after[passage].words))
        return next((int(s * self.words) for s in LENGTHS if int(s * self.words) <= most), 0)

    def noise(self, words: int) -> HumanNoise:
        """Return the noise model of passages of ``words`` words; raise DataError with too few."""
        if words not in self._noise:
            metrics = {
                text: [_measured(prose, words) for prose in of if len(prose.words) >= words]
                for text, of in self.human.items()
            }
            self._noise[words] = HumanNoise.fit(metrics)
        return self._noise[words]

    def metrics_after(self, passage: str, words: int) -> ProseMetrics:
        """Return the metrics of the first ``words`` words that the author wrote after a point."""
        if (passage, words) not in self._metrics:
            self._metrics[passage, words] = _measured(self.after[passage], words)
        return self._metrics[passage, words]

    def author_metrics(self) -> list[Mapping[str, float | None]]:
        """Return the metrics, for each point, of the part of the author's text that is compared."""
        lengths = ((name, len(prose.words)) for name, prose in self.after.items())
        shares = ((name, self.compared_words(name, words)) for name, words in lengths)
        return [self.metrics_after(name, words).as_dict() for name, words in shares if words]

    def chance_overlap(self) -> ChanceOverlap:
        """Return the largest overlap between human passages from different places in one text."""
        passages = ([prose.first(self.words).text for prose in of] for of in self.human.values())
        return chance_overlap(passages)

    def human_scores(self) -> list[float]:
        """Return the scores of human passages, each compared with the next passage in its text.

        Raise DataError with too few passages.
        """
        noise = self.noise(self.words)
        scores = [
            noise.score(_measured(prose, self.words), _measured(following, self.words))
            for of in self.human.values()
            for prose, following in pairwise(of)
        ]
        return [score for score in scores if score is not None]


def _measured(prose: Prose, words: int) -> ProseMetrics:
    return metrics_of(prose.first(words))
