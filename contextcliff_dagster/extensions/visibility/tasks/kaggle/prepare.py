"""A competition's file made into arrays that load at once, and what they were made of.

``data.npz`` has ``features`` and ``targets``; texts are UTF-8 bytes one after another with the
``ends`` of each, so that loading executes nothing. ``metadata.json`` has the SHA-256 of both files.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import DataError, StudyError
from contextcliff_dagster.extensions.visibility.tasks.kaggle.source_file import (
    FORMATS,
    Format,
    read_table_of,
)
from contextcliff_dagster.extensions.visibility.tasks.task import Data
from contextcliff_dagster.store import Store, write_atomic, write_json
from contextcliff_dagster.user_files import open_file

if TYPE_CHECKING:
    import pandas as pd

VERSION = 1
_DATA, _METADATA = "data.npz", "metadata.json"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What lies in a prepared folder.

    Attributes:
        source: name of the file that it was made of.
        classes: names of the classes in their order; empty where there are none.
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
    """Return the format of task ``name``.

    Raises:
        StudyError: it is not made of a file.
    """
    for one in FORMATS:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in FORMATS)
    raise StudyError(f"{name!r} is not made of a file; what is prepared: {known}.")


def prepared_dir(store: Store, name: str) -> Path:
    """Return the folder of a prepared task."""
    return store.root / "_visibility" / "data" / name


def prepare(
    store: Store, name: str, path: Path, *, float32: bool = False, most_rows: int | None = None
) -> Prepared:
    """Write the arrays of task ``name`` from its competition's file, and return what they are.

    Args:
        path: train.csv, or a zip file with it (or with train.csv.zip) in it.
        float32: keep features in half the memory.
        most_rows: of a longer file, so many rows drawn with seed 42.

    Raises:
        DataError: the file is not that competition's, or a value in it is no number.
        StudyError: there is no such task.
        StoreError: the store cannot be written.
    """
    format = format_named(name)
    table = read_table_of(path, format)
    if most_rows is not None and most_rows < 1:
        raise DataError("At least one row has to be kept.")
    if most_rows is not None and most_rows < len(table):
        rng = np.random.Generator(np.random.PCG64(42))
        table = table.iloc[np.sort(rng.choice(len(table), most_rows, replace=False))]
    arrays, classes = _arrays(table, format, path, np.float32 if float32 else np.float64)
    written = io.BytesIO()
    np.savez_compressed(written, allow_pickle=False, **arrays)
    content = written.getvalue()
    result = Prepared(
        version=VERSION,
        benchmark=name,
        source=path.name,
        source_sha256=_sha256(path),
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
    """Return the arrays of a prepared task.

    Raises:
        DataError: it has not been prepared, or the files are damaged.
        StudyError: there is no such task.
    """
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
        f"The files in {folder} are damaged or of another version; make them again with "
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
                f"{path}, row {int(table.index[row]) + 1}: {name} is {value!r}, which is no finite "
                "number."
            )
    return out


def _texts(arrays: Any) -> NDArray[np.object_]:
    joined, ends = arrays["text"].tobytes(), arrays["ends"].tolist()
    starts = [0, *ends[:-1]]
    texts = np.empty(len(ends), dtype=object)
    texts[:] = [joined[a:b].decode() for a, b in zip(starts, ends, strict=True)]
    return texts


def _sha256(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
