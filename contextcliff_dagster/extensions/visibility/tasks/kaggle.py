"""Tasks based on files from five Kaggle competitions, which users download with their own account.

The table is read from the download (train.csv, zipped, or zipped within a zip) and converted to
arrays that load quickly. ``data.npz`` holds ``features`` and ``targets``; texts are stored as
concatenated UTF-8 bytes with the ``ends`` of each, so that loading executes no code.
``metadata.json`` holds the SHA-256 hashes of the download and of ``data.npz``.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import DataError, StudyError
from contextcliff_dagster.corpora.corpus import file_sha256
from contextcliff_dagster.extensions.visibility.tasks.task import (
    ACCURACY,
    LOG_LOSS,
    MEAN_AUC,
    RMSE,
    RMSLE,
    Choice,
    Config,
    Data,
    Estimator,
    Number,
    Space,
    Task,
    scikit_learn,
)
from contextcliff_dagster.store import Store, write_atomic, write_json
from contextcliff_dagster.user_files import open_file

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Format:
    """Format of a competition's training file.

    Attributes:
        name: name of the task.
        features: numeric columns, or one text column.
        targets: columns to predict: one column, or several with values 0 and 1.
        target: kind of target: a value; a class, numbered in sorted order; or labels, each 0 or 1.
        page: the competition's name in its web address.
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
"""Size limit of an unpacked table; the largest of the five takes 70 MB."""
_TABLE = "train.csv"
_BEGINNING = 200


def read_table_of(path: Path, format: Format) -> pd.DataFrame:
    """Read the columns of ``format`` from the training file as strings; raise DataError."""
    import pandas as pd

    try:
        with open_file(path) as file:
            content = _unpacked(file, path)
        if content[:_BEGINNING].lstrip().lower().startswith((b"<!doctype", b"<html")):
            _refuse(
                path,
                "is a web page, not a table; accept the rules of the competition on "
                f"https://www.kaggle.com/c/{format.page} and download it again",
            )
        table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text; download it again.") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(f"{path} is not a CSV table: {error}; download it again.") from error
    columns = [*format.features, *format.targets]
    if absent := [name for name in columns if name not in table.columns]:
        suffix = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise DataError(
            f"{path} lacks the columns {', '.join(absent[:3])}{suffix} of {format.name}; use the "
            f"{_TABLE} of https://www.kaggle.com/c/{format.page}."
        )
    if table.empty:
        raise DataError(f"{path} has no rows.")
    return table[columns]


def _unpacked(file: IO[bytes], path: Path) -> bytes:
    """Return the content of a table stored uncompressed, zipped or doubly zipped."""
    for _ in range(2):
        if not zipfile.is_zipfile(file):
            break
        file.seek(0)
        try:
            with zipfile.ZipFile(file) as archive:
                file = io.BytesIO(_member(archive, path))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            _refuse(path, f"is a broken zip file ({error}); download it again")
        except RuntimeError:  # what zipfile raises for a password
            _refuse(path, "is an encrypted zip file; unpack it")
    file.seek(0)
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        _refuse(path, f"exceeds {MOST_BYTES >> 30} GB, more than any of these tables")
    return content


def _member(packed: zipfile.ZipFile, path: Path) -> bytes:
    names = {Path(name).name.lower(): name for name in packed.namelist()}
    tables = [name for key, name in names.items() if key.endswith(".csv")]
    member = names.get(_TABLE) or names.get(f"{_TABLE}.zip")
    if member is None and len(tables) == 1:
        member = tables[0]
    if member is None:
        _refuse(path, f"has no {_TABLE} in it; unpack it and give that file")
    with packed.open(member) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        _refuse(path, f"unpacks to over {MOST_BYTES >> 30} GB, more than any of these tables")
    return content


def _refuse(path: Path, why: str) -> NoReturn:
    raise DataError(f"{path} {why}.")


VERSION = 1
_DATA, _METADATA = "data.npz", "metadata.json"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Summary of a prepared folder.

    Attributes:
        source: name of the file from which it was prepared.
        classes: names of the classes in order; empty without classes.
    """

    version: int
    benchmark: str
    source: str
    source_sha256: str
    data_sha256: str
    rows: int
    float32: bool
    features: tuple[str, ...]
    targets: tuple[str, ...]
    classes: tuple[str, ...]


def format_named(name: str) -> Format:
    """Return the format of task ``name``; raise StudyError if it needs no file."""
    for format in FORMATS:
        if format.name == name:
            return format
    names = ", ".join(format.name for format in FORMATS)
    raise StudyError(f"{name!r} is not prepared from a file; choose one of {names}.")


def prepared_dir(store: Store, name: str) -> Path:
    """Return the folder of a prepared task."""
    return store.root / "_visibility" / "data" / name


def prepare(
    store: Store, name: str, path: Path, *, float32: bool = False, most_rows: int | None = None
) -> Prepared:
    """Convert a competition's file to the arrays of task ``name`` and store them; return a summary.

    Args:
        path: train.csv, or a zip file that contains it (or train.csv.zip).
        float32: whether to store features as float32, which takes half the memory.
        most_rows: number of rows to sample, with seed 42, if the file has more.

    Raises:
        DataError: the file is not that competition's, or a value is not a number.
        StudyError: the task is unknown.
        StoreError: the store cannot be written.
    """
    format = format_named(name)
    table = read_table_of(path, format)
    if most_rows is not None and most_rows < 1:
        raise DataError("Keep at least one row.")
    if most_rows is not None and most_rows < len(table):
        rng = np.random.Generator(np.random.PCG64(42))
        table = table.iloc[np.sort(rng.choice(len(table), most_rows, replace=False))]
    arrays, classes = _arrays(table, format, path, np.float32 if float32 else np.float64)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    content = buffer.getvalue()
    result = Prepared(
        version=VERSION,
        benchmark=name,
        source=path.name,
        source_sha256=file_sha256(path),
        data_sha256=hashlib.sha256(content).hexdigest(),
        rows=len(table),
        float32=float32 and not format.text,
        features=format.features,
        targets=format.targets,
        classes=classes,
    )
    folder = prepared_dir(store, name)
    write_atomic(folder / _DATA, content)
    write_json(folder / _METADATA, asdict(result))
    return result


def load_prepared(store: Store, name: str) -> Data:
    """Return the arrays of a prepared task; raise DataError unless they are there and whole."""
    format = format_named(name)
    folder = prepared_dir(store, name)
    try:
        metadata = json.loads((folder / _METADATA).read_bytes())
        content = (folder / _DATA).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            f"The benchmark {name} has not been prepared: `kaggle competitions download -c "
            f"{format.page}`, then `contextcliff visibility prepare {name} {format.page}.zip`."
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(folder, name) from error
    if (
        not isinstance(metadata, dict)
        or metadata.get("version") != VERSION
        or metadata.get("data_sha256") != hashlib.sha256(content).hexdigest()
    ):
        raise _damaged(folder, name)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        features = _texts(arrays) if format.text else arrays["features"]
        return Data(features, arrays["targets"])


def _damaged(folder: Path, name: str) -> DataError:
    return DataError(
        f"The files in {folder} are damaged or of another version; prepare them again with "
        f"`contextcliff visibility prepare {name} FILE`."
    )


def _arrays(
    table: pd.DataFrame, format: Format, path: Path, kind: type[np.floating[Any]]
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    arrays: dict[str, NDArray[Any]] = {}
    if format.text:
        texts = [text.encode() for text in table[format.features[0]]]
        arrays["text"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
        arrays["ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
    else:
        arrays["features"] = _numbers(table, format.features, path).astype(kind)
    if format.target == "class":
        names, numbers = np.unique(
            table[format.targets[0]].to_numpy(dtype=str), return_inverse=True
        )
        arrays["targets"] = numbers.astype(np.int64)
        return arrays, tuple(str(name) for name in names)
    targets = _numbers(table, format.targets, path)
    if format.target == "labels":
        if not np.isin(targets, (0, 1)).all():
            raise DataError(f"{path} has labels that are neither 0 nor 1; download it again.")
        arrays["targets"] = targets.astype(np.int64)
    else:
        arrays["targets"] = targets[:, 0]
    return arrays, ()


def _numbers(table: pd.DataFrame, columns: tuple[str, ...], path: Path) -> NDArray[np.float64]:
    import pandas as pd

    out = np.empty((len(table), len(columns)))
    for k, name in enumerate(columns):
        out[:, k] = pd.to_numeric(table[name], errors="coerce")
        if not (finite := np.isfinite(out[:, k])).all():
            row = int(np.argmin(finite))
            value = str(table[name].iloc[row])[:40]
            raise DataError(
                f"{path}, row {int(table.index[row]) + 1}: {name} is {value!r}, which is not a "
                "finite number."
            )
    return out


def _texts(arrays: Any) -> NDArray[np.object_]:
    content, ends = arrays["text"].tobytes(), arrays["ends"].tolist()
    starts = [0, *ends[:-1]]
    texts = np.empty(len(ends), dtype=object)
    texts[:] = [content[a:b].decode() for a, b in zip(starts, ends, strict=True)]
    return texts


def _words(config: Config, seed: int) -> Estimator:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(
        max_features=config["max_features"],
        ngram_range=(1, config["ngram_max"]),
        min_df=config["min_df"],
        strip_accents="unicode",
    )
    logistic = LogisticRegression(C=config["C"], max_iter=config["max_iter"], random_state=seed)
    model: Estimator = make_pipeline(words, OneVsRestClassifier(logistic))
    return model


def _whole(name: str, low: int, high: int, *, log: bool = False) -> Number:
    return Number(name, low, high, log=log, integer=True)


KAGGLE = (
    Task(
        name="nomad",
        summary="band gaps of transparent conductors, gradient boosting",
        space=Space(
            (
                Number("learning_rate", 0.005, 0.5, log=True),
                _whole("max_depth", 2, 20),
                _whole("max_iter", 50, 2000),
                Number("l2_regularization", 1e-4, 5, log=True),
                _whole("max_leaf_nodes", 15, 255),
                _whole("min_samples_leaf", 1, 200),
            ),
            {
                "learning_rate": 0.1,
                "max_depth": 6,
                "max_iter": 300,
                "l2_regularization": 0.1,
                "max_leaf_nodes": 31,
                "min_samples_leaf": 20,
            },
        ),
        score=RMSLE,
        estimator=scikit_learn("ensemble.HistGradientBoostingRegressor", scaled=True),
    ),
    Task(
        name="jigsaw",
        summary="six labels of toxic comments, TF-IDF and logistic regression",
        space=Space(
            (
                _whole("max_features", 500, 100_000, log=True),
                _whole("ngram_max", 1, 3),
                _whole("min_df", 1, 30),
                Number("C", 0.001, 100, log=True),
                _whole("max_iter", 50, 2000),
            ),
            {"max_features": 10_000, "ngram_max": 2, "min_df": 5, "C": 1.0, "max_iter": 100},
        ),
        score=MEAN_AUC,
        estimator=_words,
    ),
    Task(
        name="leaf",
        summary="99 species of leaves by their shape, logistic regression",
        space=Space(
            (
                Number("C", 1e-4, 1000, log=True),
                Number("tol", 1e-6, 0.1, log=True),
                _whole("max_iter", 5, 500, log=True),
            ),
            {"C": 1.0, "tol": 1e-4, "max_iter": 100},
        ),
        score=LOG_LOSS,
        estimator=scikit_learn("linear_model.LogisticRegression", scaled=True),
        stratified=True,
    ),
    Task(
        name="forest",
        summary="seven types of forest cover, random forest",
        space=Space(
            (
                _whole("n_estimators", 50, 2000),
                _whole("max_depth", 3, 100),
                _whole("min_samples_split", 2, 50),
                _whole("min_samples_leaf", 1, 50),
                Number("max_features", 0.1, 1),
            ),
            {
                "n_estimators": 100,
                "max_depth": 10,
                "min_samples_split": 5,
                "min_samples_leaf": 2,
                "max_features": 0.5,
            },
        ),
        score=ACCURACY,
        estimator=scikit_learn("ensemble.RandomForestClassifier"),
        stratified=True,
    ),
    Task(
        name="housing",
        summary="house values in California, extremely randomised trees",
        space=Space(
            (
                _whole("n_estimators", 10, 1500),
                _whole("max_depth", 2, 80),
                _whole("min_samples_split", 2, 80),
                _whole("min_samples_leaf", 1, 60),
                Number("max_features", 0.05, 1),
                Choice("bootstrap", (False, True)),
            ),
            {
                "n_estimators": 100,
                "max_depth": 10,
                "min_samples_split": 5,
                "min_samples_leaf": 2,
                "max_features": 0.8,
                "bootstrap": False,
            },
        ),
        score=RMSE,
        estimator=scikit_learn("ensemble.ExtraTreesRegressor", scaled=True),
    ),
)
"""Tasks whose data `prepare` creates from a downloaded file."""
