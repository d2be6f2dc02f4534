"""The reference models' weights and the truth about them, as shipped with the package.

A card holds the measured curve of accuracy over document length. It is what the instrument is
checked against: only tests and the report's own check read it, never the analysis.
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

    `length_tokens` counts the document alone; `correct` of `n` answers were right to the last
    token, end token included; `low` and `high` are the 95% interval (Wilson) of their share.
    `inter_evidence_tokens` is the mean distance of the two records (level 2 only).
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
    """The curve of one level by increasing length, and what follows from it.

    `plateau`: mean exact match over the lengths below 0.8 x the training length. `l70_tokens` and
    `l50_tokens`: document length at which the curve, made monotone (isotonic regression) and
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
    """What a reference model can do, and how it was trained.

    `training` holds the facts of the run (recipe, ancestry, warm start, seed, steps, tokens,
    seconds), `measured` those of the measurement (documents a length, seed, seconds).
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
        """The curve of a level. Raises KeyError where the card has none."""
        for curve in self.levels:
            if curve.level == level:
                return curve
        raise KeyError(f"The card of {self.name} has no curve of level {level}.")


def weights_path(name: str) -> Path:
    """Folder of a reference model (weights, configuration, tokenizer, card).

    Raises ValueError for a name that is no reference model.
    """
    if name not in REFERENCE_MODELS:
        raise ValueError(
            f"There is no reference model {name!r}; there are {' and '.join(REFERENCE_MODELS)}."
        )
    return Path(__file__).parent / "weights" / name


def load_card(name: str) -> ModelCard:
    """The card of a reference model. Raises ValueError for a name that is no reference model."""
    return read_card(weights_path(name))


def read_card(folder: Path) -> ModelCard:
    """Read card.json, as `measure` writes it, and training.json, as `train` does."""
    raw = json.loads((folder / "card.json").read_text())
    training = json.loads((folder / "training.json").read_text())
    levels = tuple(
        LevelCurve(**{**curve, "points": tuple(CardPoint(**point) for point in curve["points"])})
        for curve in raw.pop("levels")
    )
    return ModelCard(**raw, training=training, levels=levels)
