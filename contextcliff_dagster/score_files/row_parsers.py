"""Files read row by row in plain Python: what Arrow refuses, with the row where it ends."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ScoreFileError

if TYPE_CHECKING:
    import pyarrow as pa

BOM = b"\xef\xbb\xbf"
_LONGEST_FIELD = 2**31 - 1  # the csv module's own limit is shorter than many documents


def as_array(values: list[Any]) -> pa.ChunkedArray:
    """Values of any scalar types as one Arrow array: numbers where all are, else their letters."""
    import pyarrow as pa

    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {bool} or kinds <= {int, float}:
        wanted = pa.bool_() if kinds == {bool} else pa.float64()
        return pa.chunked_array([pa.array(values, wanted)])
    return pa.chunked_array([pa.array([_letters(value) for value in values], pa.string())])


def _letters(value: Any) -> str | None:
    if isinstance(value, str):  # half a surrogate pair is no text
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return None if value is None else json.dumps(value)


def deepest(text: bytes) -> int:
    """How deep brackets and braces lie in one another at most; those in strings count, too."""
    import numpy as np

    step = np.zeros(256, np.int8)
    step[[ord("["), ord("{")]], step[[ord("]"), ord("}")]] = 1, -1
    steps = step[np.frombuffer(text, np.uint8)]
    return int(np.cumsum(steps[steps != 0], dtype=np.int64).max(initial=0))


def header_names(path: Path, line: str, delimiter: str) -> list[str]:
    """The names of the columns, as a table's first ``line`` has them.

    Raises:
        ScoreFileError: the line is no header.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        names = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error as error:
        raise ScoreFileError(f"The header of {path} cannot be read: {error}.") from error
    return [name.strip() for name in names]


def read_csv(
    path: Path, file: Any, delimiter: str, header: list[str], wanted: Collection[str]
) -> tuple[dict[str, pa.ChunkedArray], int]:
    """The ``wanted`` columns as text, empty ones null.

    Raises:
        ScoreFileError: a row has more or fewer fields than the header, or is not UTF-8.
    """
    places = {name: header.index(name) for name in wanted}
    values: dict[str, list[str | None]] = {name: [] for name in wanted}
    rows = 0
    csv.field_size_limit(_LONGEST_FIELD)
    with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as lines:
        reader = filter(any, csv.reader(lines, delimiter=delimiter))
        try:
            next(reader)
            for rows, fields in enumerate(reader, start=1):
                if len(fields) != len(header):
                    raise ScoreFileError(
                        f"{path}, row {rows} has {len(fields)} fields, the header has "
                        f"{len(header)}; quote fields that contain the delimiter."
                    )
                for name, place in places.items():
                    values[name].append(fields[place].strip() or None)
        except UnicodeDecodeError as error:
            raise ScoreFileError(
                f"{path}, near row {rows + 1}, is not UTF-8; save it as UTF-8."
            ) from error
        except csv.Error as error:
            raise ScoreFileError(f"{path}, row {rows + 1}: {error}.") from error
    return {name: as_array(column) for name, column in values.items()}, rows


def loads(content: bytes) -> Any:
    """The JSON value in ``content``; NaN and Infinity pass, and are refused by their row later.

    Raises:
        ValueError: there is none.
    """
    import orjson

    try:
        return orjson.loads(content.removeprefix(BOM))
    except orjson.JSONDecodeError:
        try:
            return json.loads(content.decode("utf-8-sig"))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error


def json_lines(path: Path, lines: Iterable[bytes]) -> Iterator[Any]:
    """The JSON value of each line that is not empty.

    Raises:
        ScoreFileError: a line is not JSON.
    """
    written = (line for line in lines if line.strip(b" \t\r\n" + BOM))
    for row, line in enumerate(written, start=1):
        try:
            yield loads(line)
        except ValueError as error:
            reason = getattr(error, "msg", None) or str(error)
            raise ScoreFileError(f"{path}, row {row} is not one JSON object: {reason}.") from error


def read_objects(
    path: Path, items: Iterable[Any], wanted: Collection[str]
) -> tuple[tuple[str, ...], dict[str, pa.ChunkedArray], int]:
    """The names of all fields of the objects ``items``, the ``wanted`` ones, and how many objects.

    Raises:
        ScoreFileError: an item is not an object.
    """
    values: dict[str, list[Any]] = {name: [] for name in wanted}
    present: dict[str, None] = {}
    rows = 0
    for rows, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise ScoreFileError(
                f"{path}, row {rows} is not a JSON object with named fields such as length_tokens."
            )
        present.update(dict.fromkeys(item))
        for name, column in values.items():
            column.append(item.get(name))
    arrays = {name: as_array(values[name]) for name in wanted if name in present}
    return tuple(present), arrays, rows
