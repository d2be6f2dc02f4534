"""Studies of known truth: scores that do not depend on the size, and planted declines.

A generation's score is Phi(mu + t + p + q + e): normal effects of text, passage, what sizes do to a
passage, and round, whose variances are shares that sum to 1. At mu = 0 scores are uniform, as those
of human passages are. From a size on, a share of generations is spoiled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from contextcliff_dagster.contracts.arrays import Bools, Floats

Spoiled = Literal["looped", "simplified", "shuffled"]
"""`looped`: score 0 and a collapse tag; `simplified` and `shuffled`: a score that is lower by 1.5
and 2.5 SD, and no tag."""
_SHIFT: dict[Spoiled, float] = {"simplified": 1.5, "shuffled": 2.5}


def mean_score(mu: float, spoiled: Spoiled | None = None) -> float:
    """Mean score at the level ``mu``, of spoiled generations where ``spoiled`` is given.

    Of a normal variable Z of variance 1, Phi(mu + Z) has the mean Phi(mu / sqrt(2)).

    >>> mean_score(0.0), mean_score(0.0, "looped"), round(mean_score(0.0, "simplified"), 3)
    (0.5, 0.0, 0.144)
    """
    from scipy.special import ndtr

    if spoiled == "looped":
        return 0.0
    return float(ndtr((mu - (_SHIFT[spoiled] if spoiled else 0.0)) / math.sqrt(2.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStudy:
    """Design and truth of a simulated study; variances are shares of 1, the rest is of rounds.

    Attributes:
        mu: level of the scores in SD; 0 is that of human passages.
        share: of the generations that are spoiled, from ``from_size`` tokens on.
        missing: share of the generations that have no outcome.
    """

    sizes: tuple[int, ...] = (2048, 4096, 8192, 16384, 32768, 65536)
    texts: int = 4
    passages: int = 20
    rounds: int = 5
    mu: float = 0.0
    of_text: float = 0.05
    of_passage: float = 0.15
    of_size: float = 0.0
    spoiled: Spoiled = "looped"
    share: float = 0.0
    from_size: int = 0
    missing: float = 0.0

    def draw(self, rng: np.random.Generator) -> pd.DataFrame:
        """One study as rows that `model.analyse_model` takes."""
        import pandas as pd

        shape = (self.passages, len(self.sizes), self.rounds)
        text = np.arange(self.passages) % self.texts
        latent = self.mu + rng.normal(size=shape) * np.sqrt(
            1.0 - self.of_text - self.of_passage - self.of_size
        )
        latent += (rng.normal(size=self.texts) * np.sqrt(self.of_text))[text][:, None, None]
        latent += rng.normal(size=(self.passages, 1, 1)) * np.sqrt(self.of_passage)
        latent += rng.normal(size=(*shape[:2], 1)) * np.sqrt(self.of_size)
        hit = rng.random(shape) < self.share
        hit &= (np.array(self.sizes) >= self.from_size)[None, :, None]
        score, tags = self._spoil(latent, hit)
        passage, size, turn = (axis.ravel() for axis in np.indices(shape))
        rows = pd.DataFrame(
            {
                "text": [f"text {one:02d}" for one in text[passage]],
                "passage": [f"passage {one:03d}" for one in passage],
                "context_tokens": np.array(self.sizes)[size],
                "round": turn,
                "arm": "base",
                "score": score.ravel(),
                "collapse": tags.ravel(),
            }
        )
        return rows[rng.random(len(rows)) >= self.missing] if self.missing else rows

    def _spoil(self, latent: Floats, hit: Bools) -> tuple[Floats, NDArray[np.object_]]:
        from scipy.special import ndtr

        if self.spoiled == "looped":
            score = np.where(hit, 0.0, ndtr(latent))
            return score, np.where(hit, "loop", "").astype(object)
        score = ndtr(latent - np.where(hit, _SHIFT[self.spoiled], 0.0))
        return score, np.full(latent.shape, "", object)
