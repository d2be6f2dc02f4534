"""Records as JSON lines, CSV and Markdown tables; rendering and parsing of all formats."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, get_args

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    DOMAINS,
    SCHEMAS,
    Benchmark,
    BenchmarkName,
    FieldKind,
    FieldSpec,
    Record,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import (
    FORMATS,
    LAST_SECOND,
    Format,
    Order,
    Rendering,
    Verbosity,
    sentence_reader,
    templates,
)

_LARGEST = 2**53  # larger whole numbers are not all exact as floating point
_PREFIXES: Mapping[FieldKind, str] = {"warehouse": "WH", "sku": "SKU", "entity": "E", "node": "N"}


class Shape(NamedTuple):
    """A record type.

    ``tests``: key -> condition on its value; ``values``: pairs of an attribute's key and its
    value's key.
    """

    name: str
    keys: tuple[str, ...]
    tests: tuple[tuple[str, Callable[[Any], bool]], ...]
    values: tuple[tuple[str, str], ...]


def written_key(field: FieldSpec, verbosity: Verbosity) -> str:
    """Return the key of ``field`` in the structured formats."""
    match verbosity:
        case "standard":
            return field.key
        case "terse":
            return field.terse
        case "descriptive":
            return field.descriptive


def _identifies(prefix: str) -> Callable[[Any], bool]:
    identifier = re.compile(rf"{prefix}-(?:\d{{4}}|[1-9]\d{{4,}})")

    @lru_cache(65_536)
    def test(text: object) -> bool:
        return isinstance(text, str) and identifier.fullmatch(text) is not None

    return test


_TESTS: Mapping[FieldKind, Callable[[Any], bool]] = {
    "time": lambda value: type(value) is int and 0 <= value <= LAST_SECOND,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float) and -_LARGEST <= value <= _LARGEST,
    "attribute": DOMAINS.__contains__,
    **{kind: _identifies(prefix) for kind, prefix in _PREFIXES.items()},
}


@lru_cache(8)
def shapes(benchmark: BenchmarkName) -> Mapping[tuple[str | None, str | None], Shape]:
    """Return the record types by ``type`` and ``action``."""
    by_type = {}
    for spec in SCHEMAS[benchmark]:
        fields = spec.fields
        shape = Shape(
            spec.name,
            tuple(field.key for field in fields),
            tuple((field.key, _TESTS[field.kind]) for field in fields if field.kind in _TESTS),
            tuple(
                (attribute.key, value.key)
                for attribute, value in pairwise(fields)
                if value.kind == "value"
            ),
        )
        by_type[spec.fixed.get("type"), spec.fixed.get("action")] = shape
    return by_type


def shape_of(benchmark: BenchmarkName, record: Record) -> Shape:
    """Return the type of ``record``; raise ValueError if it, a field or a value is impossible."""
    shape = shapes(benchmark).get((record.get("type"), record.get("action")))
    if shape is None:
        raise ValueError(f"the {benchmark} benchmark has no record of this type")
    if len(record) != len(shape.keys) or not all(key in record for key in shape.keys):
        raise ValueError(f"the fields of a record of type {shape.name} are {', '.join(shape.keys)}")
    for key, test in shape.tests:
        if not test(record[key]):
            raise ValueError(f"{key} cannot be {record[key]!r}")
    for attribute, value in shape.values:
        domain, content = DOMAINS[record[attribute]], record[value]
        if content not in domain or type(content) is not type(domain[0]):
            raise ValueError(f"{record[attribute]} cannot be {content!r}")
    return shape


_TO_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_BAR = re.compile(r"(?<!\\)(?:\\\\)*\|")  # without a backslash of its own


class _Lines(list[str]):
    """A file for `csv.writer` that collects rows separately, without line ends."""

    def write(self, row: str) -> None:
        self.append(row[:-1])


@lru_cache(32)
def columns(benchmark: BenchmarkName, verbosity: Verbosity) -> tuple[str, ...]:
    """Return the header of a table: the keys of all record types in schema order."""
    keys = (written_key(field, verbosity) for spec in SCHEMAS[benchmark] for field in spec.fields)
    return tuple(dict.fromkeys(keys))


def _renamed(
    benchmark: BenchmarkName, verbosity: Verbosity, records: Iterable[Record]
) -> Iterable[dict[str, Any]]:
    names = {
        spec.name: [(field.key, written_key(field, verbosity)) for field in spec.fields]
        for spec in SCHEMAS[benchmark]
    }
    for record in records:
        yield {name: record[key] for key, name in names[shape_of(benchmark, record).name]}


def json_lines(
    benchmark: BenchmarkName, verbosity: Verbosity, records: Iterable[Record]
) -> list[str]:
    """Return one JSON line per record."""
    return [_TO_JSON(record) for record in _renamed(benchmark, verbosity, records)]


def csv_lines(
    benchmark: BenchmarkName, verbosity: Verbosity, records: Iterable[Record]
) -> list[str]:
    """Return the CSV header and one line per record."""
    header = columns(benchmark, verbosity)
    lines = _Lines()
    writer = csv.DictWriter(lines, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_renamed(benchmark, verbosity, records))
    return lines


def markdown_lines(
    benchmark: BenchmarkName, verbosity: Verbosity, records: Iterable[Record]
) -> list[str]:
    """Return the Markdown header, the rule under it, and one line per record."""
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
    """Return the object in a JSON line; raise ValueError if it has none."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}") from None
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    return record


def csv_cells(line: str) -> list[str]:
    """Return the cells of a CSV row."""
    return next(csv.reader([line]))


def markdown_cells(line: str) -> list[str]:
    """Return the cells of a Markdown row; raise ValueError if the line is not one."""
    row = line.strip()
    ends = [bar.end() for bar in _BAR.finditer(row)] if "\\" in row else None
    if len(row) < 2 or row[0] != "|" or (ends[-1] != len(row) if ends else row[-1] != "|"):
        raise ValueError("it is not a Markdown table row")
    if ends is None:
        return [cell.strip() for cell in row[1:-1].split("|")]
    cells = (row[start : end - 1].strip() for start, end in pairwise(ends))
    return [re.sub(r"\\([\\|])", r"\1", cell) for cell in cells]


class ObjectReader:
    """A reader of structured formats, with keys of any verbosity and values as JSON or text."""

    def __init__(self, benchmark: BenchmarkName) -> None:
        """Index the record types by their written keys in each verbosity."""
        self.benchmark = benchmark
        # Keys of an object -> those that name its type -> their values -> names and kinds.
        self._types: dict[frozenset[str], tuple[tuple[str, ...], dict[Any, Any]]] = {}
        for verbosity in get_args(Verbosity):
            for spec in SCHEMAS[benchmark]:
                keys = [(written_key(field, verbosity), field) for field in spec.fields]
                naming = [(name, field.key) for name, field in keys if field.key in spec.fixed]
                types = self._types.setdefault(
                    frozenset(name for name, _ in keys),
                    (tuple(name for name, _ in naming), {}),
                )
                fixed = tuple(spec.fixed[key] for _, key in naming)
                types[1][fixed] = [(name, field.key, field.kind) for name, field in keys]

    def fields(self, given: Mapping[str, Any]) -> list[tuple[str, str, FieldKind]]:
        """Return written key, schema key and kind of each field; raise ValueError for others."""
        naming, types = self._types.get(frozenset(given), ((), {}))
        fields: list[tuple[str, str, FieldKind]] | None = types.get(
            tuple(str(given[name]) for name in naming)
        )
        if fields is None:
            raise ValueError("no record type has these keys")
        return fields

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record in a JSON object without checking its values."""
        return {key: given[name] for name, key, _ in self.fields(given)}

    def read_cells(self, header: tuple[str, ...], cells: list[str]) -> dict[str, Any]:
        """Return the record in a table row without checking its values."""
        if len(cells) != len(header):
            raise ValueError(f"it has {len(cells)} cells, the header {len(header)}")
        by_key = {name: cell for name, cell in zip(header, cells, strict=True) if cell}
        fields = self.fields(by_key)
        return {key: _FROM_TEXT.get(kind, str)(by_key[name]) for name, key, kind in fields}


def _integer(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


def _number(text: str) -> float | str:
    try:
        return int(text) if text.removeprefix("-").isdecimal() else float(text)
    except ValueError:
        return text


_FROM_TEXT: Mapping[FieldKind, Callable[[str], Any]] = {
    "time": _integer,
    "value": _integer,
    "integer": _integer,
    "number": _number,
}
"""Field kind -> conversion from text; unreadable values stay text for `shape_of` to reject."""


object_reader = lru_cache(8)(ObjectReader)
"""Return the reader of a benchmark, indexed once."""


_SHOWN = 100


def parse(text: str, benchmark: BenchmarkName, format: Format | None = None) -> list[Record]:
    """Return the records of a document in line order.

    Args:
        text: output of `render` in any verbosity; empty lines are skipped.
        benchmark: the benchmark of the records.
        format: the format; None means it is detected from the first line.

    Raises:
        ValueError: the format is unknown, or the named line is not a record of the benchmark.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        return []
    format = format or detect(lines[0][1], benchmark)
    read, first = _line_reader(benchmark, format, [line for _, line in lines[:2]])
    records: list[Record] = []
    for number, line in lines[first:]:
        try:
            record = read(line.rstrip("\r"))
            shape_of(benchmark, record)
        except ValueError as error:
            excerpt = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
            raise ValueError(
                f"line {number} is not a record of the {benchmark} benchmark in {format}, {error}: "
                f"{excerpt}"
            ) from None
        records.append(record)
    return records


def detect(first_line: str, benchmark: BenchmarkName) -> Format:
    """Return the format of a document that starts with ``first_line``."""
    if first_line.startswith("{"):
        return "jsonl"
    if first_line.startswith("|"):
        return "markdown"
    if tuple(first_line.strip().split(",")) in _headers(benchmark):
        return "csv"
    return "prose"


def _headers(benchmark: BenchmarkName) -> Iterable[tuple[str, ...]]:
    return [columns(benchmark, verbosity) for verbosity in get_args(Verbosity)]


def _line_reader(
    benchmark: BenchmarkName, format: Format, lines: list[str]
) -> tuple[Callable[[str], dict[str, Any]], int]:
    """Return a line reader and the number of lines before the first record."""
    if format == "prose":
        return sentence_reader(benchmark).read, 0
    objects = object_reader(benchmark)
    if format == "jsonl":
        return lambda line: objects.read(json_object(line)), 0
    cells = csv_cells if format == "csv" else markdown_cells
    header = tuple(cells(lines[0]))
    if header not in _headers(benchmark):
        raise ValueError(
            f"line 1 is not a header of the {benchmark} benchmark in {format}: {lines[0][:_SHOWN]}"
        )
    return lambda line: objects.read_cells(header, cells(line)), 1 if format == "csv" else 2


def render(
    data: Benchmark,
    format: Format,
    verbosity: Verbosity = "standard",
    order: Order = "chronological",
) -> Rendering:
    """Return the records of ``data`` as text; `parse` reads them back without loss.

    Args:
        data: the data. Its seed selects the wording of each record, by position rather than
            content, and the permutation of a ``shuffled`` document, which is the same for every
            format and verbosity.
        format: ``jsonl``: compact JSON, one record per line, keys in schema order. ``prose``: one
            sentence per line; ``standard`` varies the wording, including the design document's.
            ``csv``: one header with all keys of the benchmark; cells of other record types are
            empty. ``markdown``: the same as a table.
        verbosity: length of sentences in prose, and of keys in the other formats.
        order: ``chronological`` keeps the order of the data (constraints: as drawn).

    Returns:
        The text, without a line end after the last record, and the offset of the first character
        of each record in ``data.records``.

    Raises:
        ValueError: the format, verbosity or order is unknown, or a record is impossible.
    """
    for name, value, choices in (
        ("format", format, FORMATS),
        ("verbosity", verbosity, get_args(Verbosity)),
        ("order", order, get_args(Order)),
    ):
        if value not in choices:
            raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(choices)}")
    indices = permutation(data, order)
    if format == "prose":
        lines = _sentences(data, verbosity, indices)
    else:
        write = {"jsonl": json_lines, "csv": csv_lines, "markdown": markdown_lines}[format]
        lines = write(data.name, verbosity, [data.records[index] for index in indices])
    ends = accumulate((len(line) + 1 for line in lines), initial=0)
    first_of_lines = list(ends)[len(lines) - len(indices) : -1]
    starts = [0] * len(indices)
    for index, start in zip(indices, first_of_lines, strict=True):
        starts[index] = start
    return Rendering("\n".join(lines), tuple(starts))


def permutation(data: Benchmark, order: Order) -> list[int]:
    """Return the indices of the records in document order."""
    indices = list(range(len(data.records)))
    if order == "shuffled":
        random.Random(f"order:{data.name}:{data.seed}").shuffle(indices)
    return indices


def _sentences(data: Benchmark, verbosity: Verbosity, indices: list[int]) -> list[str]:
    wordings = templates(data.name)
    draw = random.Random(f"wording:{data.name}:{data.seed}").random
    lines = []
    for record in data.records:
        fitting = wordings[shape_of(data.name, record).name, verbosity]
        lines.append(fitting[int(draw() * len(fitting))].write(record))
    return [lines[index] for index in indices]
