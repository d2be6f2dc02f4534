"""Records as JSON lines, CSV and Markdown tables, and back.

Verbosity changes the keys alone: values, times in Unix seconds included, are the same in all.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, get_args

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Record
from contextcliff_dagster.extensions.utilization.benchmarks.schema import SCHEMAS, FieldKind
from contextcliff_dagster.extensions.utilization.rendering.formats import Verbosity
from contextcliff_dagster.extensions.utilization.rendering.shapes import shape_of, written_key

_TO_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_BAR = re.compile(r"(?<!\\)(?:\\\\)*\|")  # without a backslash of its own


class _Lines(list[str]):
    """A file for `csv.writer` that keeps each row apart, without its line end."""

    def write(self, row: str) -> None:
        self.append(row[:-1])


@lru_cache(32)
def columns(benchmark: BenchmarkName, verbosity: Verbosity) -> tuple[str, ...]:
    """Return the header of a table: the keys of all record types, in the order of the schema."""
    keys = (written_key(one, verbosity) for spec in SCHEMAS[benchmark] for one in spec.fields)
    return tuple(dict.fromkeys(keys))


def _renamed(
    benchmark: BenchmarkName, verbosity: Verbosity, records: Iterable[Record]
) -> Iterable[dict[str, Any]]:
    names = {
        spec.name: [(one.key, written_key(one, verbosity)) for one in spec.fields]
        for spec in SCHEMAS[benchmark]
    }
    for record in records:
        shape = shape_of(benchmark, record)
        yield {name: record[key] for key, name in names[shape.name]}


def json_lines(
    benchmark: BenchmarkName, verbosity: Verbosity, records: Iterable[Record]
) -> list[str]:
    """Return one line for each record."""
    return [_TO_JSON(record) for record in _renamed(benchmark, verbosity, records)]


def csv_lines(
    benchmark: BenchmarkName, verbosity: Verbosity, records: Iterable[Record]
) -> list[str]:
    """Return the header and one line for each record."""
    header = columns(benchmark, verbosity)
    lines = _Lines()
    writer = csv.DictWriter(lines, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_renamed(benchmark, verbosity, records))
    return lines


def markdown_lines(
    benchmark: BenchmarkName, verbosity: Verbosity, records: Iterable[Record]
) -> list[str]:
    """Return the header, the line under it, and one line for each record."""
    header = columns(benchmark, verbosity)
    lines = [_row(header), _row(["---"] * len(header))]
    for record in _renamed(benchmark, verbosity, records):
        lines.append(_row([_escaped(str(record.get(name, ""))) for name in header]))
    return lines


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def json_object(line: str) -> dict[str, Any]:
    """Return the object of one JSON line.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg}") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def csv_cells(line: str) -> list[str]:
    """Return the cells of one row."""
    return next(csv.reader([line]))


def markdown_cells(line: str) -> list[str]:
    """Return the cells of one row.

    Raises:
        ValueError: it is no row of a table.
    """
    row = line.strip()
    ends = [bar.end() for bar in _BAR.finditer(row)] if "\\" in row else None
    if len(row) < 2 or row[0] != "|" or (ends[-1] != len(row) if ends else row[-1] != "|"):
        raise ValueError("it is no row of a Markdown table")
    if ends is None:
        return [cell.strip() for cell in row[1:-1].split("|")]
    cells = (row[start : end - 1].strip() for start, end in pairwise(ends))
    return [re.sub(r"\\([\\|])", r"\1", cell) for cell in cells]


class ObjectReader:
    """Reads what the structured formats hold: keys of any verbosity, values as JSON or as text."""

    def __init__(self, benchmark: BenchmarkName) -> None:
        """Index the record types by their keys as written, in each verbosity."""
        self.benchmark = benchmark
        # Keys of an object -> those that name its type -> their values -> names and kinds.
        self._types: dict[frozenset[str], tuple[tuple[str, ...], dict[Any, Any]]] = {}
        for verbosity in get_args(Verbosity):
            for spec in SCHEMAS[benchmark]:
                written = [(written_key(one, verbosity), one) for one in spec.fields]
                naming = [(name, one.key) for name, one in written if one.key in spec.fixed]
                types = self._types.setdefault(
                    frozenset(name for name, _ in written),
                    (tuple(name for name, _ in naming), {}),
                )
                fixed = tuple(spec.fixed[key] for _, key in naming)
                types[1][fixed] = [(name, one.key, one.kind) for name, one in written]

    def fields(self, given: Mapping[str, Any]) -> list[tuple[str, str, FieldKind]]:
        """Return key as written, key of the schema and kind of each field of ``given``.

        Raises:
            ValueError: no record type has these keys.
        """
        naming, types = self._types.get(frozenset(given), ((), {}))
        fields: list[tuple[str, str, FieldKind]] | None = types.get(
            tuple(str(given[name]) for name in naming)
        )
        if fields is None:
            raise ValueError("no record type has these keys")
        return fields

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record, its values unchecked, of a JSON object."""
        return {key: given[name] for name, key, _ in self.fields(given)}

    def read_cells(self, header: tuple[str, ...], cells: list[str]) -> dict[str, Any]:
        """Return the record, its values unchecked, of a row of a table."""
        if len(cells) != len(header):
            raise ValueError(f"it has {len(cells)} cells, the header {len(header)}")
        given = {name: cell for name, cell in zip(header, cells, strict=True) if cell}
        return {key: _FROM_TEXT[kind](given[name]) for name, key, kind in self.fields(given)}


def _integer(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


def _number(text: str) -> float | str:
    try:
        return int(text) if text.removeprefix("-").isdecimal() else float(text)
    except ValueError:
        return text


_FROM_TEXT: Mapping[FieldKind, Callable[[str], Any]] = {
    "type": str,
    "time": _integer,
    "warehouse": str,
    "sku": str,
    "entity": str,
    "attribute": str,
    "value": _integer,
    "node": str,
    "integer": _integer,
    "number": _number,
}
"""What cannot be read stays text, which `shapes.shape_of` then refuses by name."""


@lru_cache(8)
def object_reader(benchmark: BenchmarkName) -> ObjectReader:
    """Return the reader of ``benchmark``, indexed once."""
    return ObjectReader(benchmark)
