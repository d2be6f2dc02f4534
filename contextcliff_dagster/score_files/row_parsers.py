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
        reader = csv.reader(lines, delimiter=delimiter)
        try:
            next(fields for fields in reader if any(fields))
            for fields in reader:
                if not any(fields):
                    continue
                rows += 1
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


def read_json_lines(
    path: Path, file: Any, wanted: Collection[str]
) -> tuple[dict[str, list[Any]], list[str], int]:
    """The ``wanted`` fields of one object a line, the names of all fields, the number of objects.

    Raises:
        ScoreFileError: a line is not one JSON object.
    """

    with io.BufferedReader(file) as lines:
        return _fields(path, objects_of(path, lines), wanted)


def objects_of(path: Path, lines: Iterable[bytes]) -> Iterator[Any]:
    """The JSON value of each line that is not empty.

    Raises:
        ScoreFileError: a line is not JSON.
    """
    import orjson

    count = 0
    for line in lines:
        if line.strip(b" \t\r\n\xef\xbb\xbf"):
            count += 1
            try:
                try:
                    yield orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
                except orjson.JSONDecodeError:  # of NaN, which is refused by its row later
                    yield json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                reason = getattr(error, "msg", None) or str(error)
                raise ScoreFileError(
                    f"{path}, row {count} is not one JSON object: {reason}."
                ) from error


def read_json_array(
    path: Path, content: bytes, wanted: Collection[str]
) -> tuple[dict[str, list[Any]], list[str], int]:
    """The same of the objects of one JSON array.

    Raises:
        ScoreFileError: the file is not JSON, or an item is not an object.
    """
    import orjson

    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        try:
            items = orjson.loads(content)
        except orjson.JSONDecodeError:  # of NaN, which is refused by its row later
            items = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ScoreFileError(f"{path} is not JSON: {error}.") from error
    return _fields(path, iter(items), wanted)


def _fields(
    path: Path, items: Iterator[Any], wanted: Collection[str]
) -> tuple[dict[str, list[Any]], list[str], int]:
    values: dict[str, list[Any]] = {name: [] for name in wanted}
    found: dict[str, None] = {}
    rows = 0
    for item in items:
        rows += 1
        if not isinstance(item, dict):
            raise ScoreFileError(
                f"{path}, row {rows} is not a JSON object with named fields such as length_tokens."
            )
        found.update(dict.fromkeys(item))
        for name, column in values.items():
            column.append(item.get(name))
    return {name: values[name] for name in wanted if name in found}, list(found), rows
