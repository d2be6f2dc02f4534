"""The reference models' weights and ground-truth cards, as shipped with the package.

A card holds the measured curve of accuracy over document length. Results are checked against it, so
only tests and the report's own check read it, never the analysis.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFERENCE_MODELS = ("reference-short", "reference-long")


@dataclass(frozen=True, slots=True)
class CardPoint:
    """Exact match over `n` documents of one length.

    `length_tokens` counts the document alone. `correct` of `n` answers were right to the last
    token, end token included; `low` and `high` are the 95% interval (Wilson) for that fraction.
    `inter_evidence_tokens` is the mean distance between the two records (level 2 only).
    """

    length_tokens: int
    n: int
    correct: int
    exact_match: float
    low: float
    high: float
    inter_evidence_tokens: float | None


@dataclass(frozen=True, slots=True)
class LevelCurve:
    """Accuracy of one level by increasing length, and the figures derived from it.

    `plateau`: mean exact match over lengths below 0.8 x the training length. `l70_tokens` and
    `l50_tokens`: document lengths at which the curve, made monotone (isotonic regression) and
    interpolated in log length, has lost 30% and 50% of the plateau.
    """

    level: int
    task: str
    plateau: float
    l70_tokens: float
    l50_tokens: float
    points: tuple[CardPoint, ...]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A reference model's accuracy curves, and how it was trained and measured.

    `training` describes the training run (recipe, ancestry, warm start, seed, steps, tokens,
    seconds), `measured` the measurement (documents per length, seed, seconds).
    """

    name: str
    training_length_tokens: int
    window_tokens: int
    parameters: int
    weights_sha256: str
    training: dict[str, Any]
    measured: dict[str, Any]
    levels: tuple[LevelCurve, ...]

    def level(self, level: int) -> LevelCurve:
        """Return the curve of a level; raise KeyError if the card has none."""
        for curve in self.levels:
            if curve.level == level:
                return curve
        raise KeyError(f"The card of {self.name} has no curve of level {level}.")


def weights_path(name: str) -> Path:
    """Return a reference model's folder (weights, configuration, tokenizer, card).

    Raises ValueError if there is no reference model of that name.
    """
    if name not in REFERENCE_MODELS:
        raise ValueError(
            f"There is no reference model {name!r}; choose {' or '.join(REFERENCE_MODELS)}."
        )
    return Path(__file__).parent / "weights" / name


def load_card(name: str) -> ModelCard:
    """Return a reference model's card; raise ValueError if there is no model of that name."""
    return read_card(weights_path(name))


def read_card(folder: Path) -> ModelCard:
    """Return the card from card.json (written by `measure`) and training.json (by `train`)."""
    raw = json.loads((folder / "card.json").read_text())
    training = json.loads((folder / "training.json").read_text())
    levels = tuple(
        LevelCurve(**{**curve, "points": tuple(CardPoint(**point) for point in curve["points"])})
        for curve in raw.pop("levels")
    )
    return ModelCard(**raw, training=training, levels=levels)
