"""The table in what a user has downloaded: train.csv, zipped, or zipped within a zip.

The columns of each competition's training file.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NoReturn

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.user_files import open_file

if TYPE_CHECKING:
    import pandas as pd


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


MOST_BYTES = 1 << 30
"""Of a table, unpacked; the largest of the five has 70 MB."""
_TABLE = "train.csv"
_BEGINNING = 200


def read_table_of(path: Path, format: Format) -> pd.DataFrame:
    """Return the columns of ``format`` in the training file at ``path``, as texts.

    Raises:
        DataError: it cannot be read, has no table, or lacks a column.
    """
    import pandas as pd

    try:
        with open_file(path) as file:
            content = _unpacked(file, path)
        if content[:_BEGINNING].lstrip().lower().startswith((b"<!doctype", b"<html")):
            _refuse(
                path,
                "is a web page and no table; accept the rules of the competition on "
                f"https://www.kaggle.com/c/{format.page} and download it again",
            )
        table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text; download it again.") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(f"{path} is no table of comma-separated values: {error}.") from error
    wanted = [*format.features, *format.targets]
    if absent := [name for name in wanted if name not in table.columns]:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise DataError(
            f"{path} lacks the columns {', '.join(absent[:3])}{more} of {format.name}; give the "
            f"{_TABLE} of https://www.kaggle.com/c/{format.page}."
        )
    if table.empty:
        raise DataError(f"{path} has no rows.")
    return table[wanted]


def _unpacked(file: IO[bytes], path: Path) -> bytes:
    """The table in a file that is one, or in a zip file, which may be in another."""
    for _ in range(2):
        if not zipfile.is_zipfile(file):
            break
        file.seek(0)
        try:
            with zipfile.ZipFile(file) as packed:
                file = io.BytesIO(_member(packed, path))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            _refuse(path, f"is a broken zip file ({error}); download it again")
        except RuntimeError:  # what zipfile raises for a password
            _refuse(path, "is an encrypted zip file; unpack it")
    file.seek(0)
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        _refuse(path, f"has more than {MOST_BYTES >> 30} GB, which no table of these does")
    return content


def _member(packed: zipfile.ZipFile, path: Path) -> bytes:
    names = {Path(name).name.lower(): name for name in packed.namelist()}
    tables = [name for key, name in names.items() if key.endswith(".csv")]
    member = names.get(_TABLE) or names.get(f"{_TABLE}.zip")
    if member is None and len(tables) == 1:
        member = tables[0]
    if member is None:
        _refuse(path, f"has no {_TABLE} in it; unpack it and give that file")
    with packed.open(member) as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        _refuse(path, f"unpacks to more than {MOST_BYTES >> 30} GB, which no table of these does")
    return content


def _refuse(path: Path, why: str) -> NoReturn:
    raise DataError(f"{path} {why}.")
