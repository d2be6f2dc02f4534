"""The columns of each competition's training file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal


@dataclass(frozen=True, slots=True)
class Format:
    """One training file.

    Attributes:
        name: of the task.
        features: columns of numbers, or one column of text.
        targets: columns to predict: one, or several of 0 and 1.
        target: values; classes, which are numbered in sorted order; or labels, 0 or 1 each.
        page: the competition, for people.
    """

    name: str
    features: tuple[str, ...]
    targets: tuple[str, ...]
    target: Literal["value", "class", "labels"]
    page: str
    text: bool = False


_PLACES = ("lattice_vector_1_ang", "lattice_vector_2_ang", "lattice_vector_3_ang")
_ANGLES = tuple(f"lattice_angle_{name}_degree" for name in ("alpha", "beta", "gamma"))
_DISTANCES = (
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
)

FORMATS = (
    Format(
        name="nomad",
        features=(
            *("spacegroup", "number_of_total_atoms"),
            *("percent_atom_al", "percent_atom_ga", "percent_atom_in"),
            *_PLACES,
            *_ANGLES,
            "formation_energy_ev_natom",
        ),
        targets=("bandgap_energy_ev",),
        target="value",
        page="nomad2018-predict-transparent-conductors",
    ),
    Format(
        name="jigsaw",
        features=("comment_text",),
        targets=("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"),
        target="labels",
        page="jigsaw-toxic-comment-classification-challenge",
        text=True,
    ),
    Format(
        name="leaf",
        features=tuple(
            f"{kind}{k}" for kind, k in product(("margin", "shape", "texture"), range(1, 65))
        ),
        targets=("species",),
        target="class",
        page="leaf-classification",
    ),
    Format(
        name="forest",
        features=(
            *("Elevation", "Aspect", "Slope", *_DISTANCES),
            *("Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm"),
            "Horizontal_Distance_To_Fire_Points",
            *(f"Wilderness_Area{k}" for k in range(1, 5)),
            *(f"Soil_Type{k}" for k in range(1, 41)),
        ),
        targets=("Cover_Type",),
        target="class",
        page="forest-cover-type-prediction",
    ),
    Format(
        name="housing",
        features=(
            *("MedInc", "HouseAge", "AveRooms", "AveBedrms"),
            *("Population", "AveOccup", "Latitude", "Longitude"),
        ),
        targets=("MedHouseVal",),
        target="value",
        page="playground-series-s3e1",
    ),
)
