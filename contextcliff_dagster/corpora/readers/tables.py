"""What tables of every origin share: delimiter and header of CSV, nested keys, saved data sets."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.user_files import loads, read_file

_LONGEST_FIELD = 2**31 - 1  # the csv module's own limit is too low for a whole book
_DELIMITERS = ",;\t|"
_NAMED_DELIMITER = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
GROUPED = re.compile(r"[1-9]\d{0,2}([.,]\d{3})+")
"""A number that is either a fraction or grouped by thousands, such as 1.000."""


class CsvTable(NamedTuple):
    """A table of text; ``rows`` are (line from 1, fields), ``lines`` those to the header's end."""

    delimiter: str
    header: list[str]
    lines: int
    rows: Iterator[tuple[int, list[str]]]


def csv_table(
    path: Path, numbered: Iterator[tuple[int, str]], error: type[ContextCliffError]
) -> CsvTable:
    """Find the delimiter and header in the ``numbered`` lines of ``path``; skip blank rows.

    Spreadsheet programs may name the delimiter in a first line ``sep=;``. Otherwise it is the one
    that divides header and first row into equally many columns, or the header into most.

    Raises:
        error: quotes are not by RFC 4180, or a row has more or fewer fields than the header.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    start, first = next((pair for pair in numbered if pair[1].strip()), (1, ""))
    if named := _NAMED_DELIMITER.fullmatch(first):
        start, first = next((pair for pair in numbered if pair[1].strip()), (1, ""))
    sample = [first, *(line for _, line in islice(numbered, 4))]
    delimiter = named[1] if named else max(_DELIMITERS, key=lambda mark: _fit(sample, mark))
    lines = chain(sample, (line for _, line in numbered))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    rows = _rows(path, reader, start, error)
    header = [" ".join(name.split()) for name in next(rows, (0, []))[1]]
    return CsvTable(delimiter, header, start - 1 + reader.line_num, rows)


def _fit(sample: list[str], delimiter: str) -> tuple[bool, int]:
    header: list[str] = []
    row: list[str] = []
    with suppress(csv.Error):
        rows = filter(any, csv.reader(sample, delimiter=delimiter))
        header, row = next(rows, []), next(rows, [])
    return 1 < len(header) == len(row), len(header)


def _rows(
    path: Path, reader: Any, start: int, error: type[ContextCliffError]
) -> Iterator[tuple[int, list[str]]]:
    width = 0
    while True:
        line = start + reader.line_num
        try:
            fields = next(reader, None)
        except csv.Error as problem:
            reason = str(problem).partition(" - ")[0]
            raise error(f"{path}, line {line}: {reason}.") from problem
        if fields is None:
            return
        if not any(map(str.strip, fields)):
            continue
        width = width or len(fields)
        if len(fields) != width:
            raise error(
                f"{path}, line {line} has {len(fields)} fields, the header has {width}; "
                "quote fields that contain the delimiter or a line break."
            )
        yield line, fields


def value_at(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of key ``name``, or else of ``a.b`` key b in object a; None without one."""
    outer, _, inner = name.partition(".")
    if name not in row and isinstance(row.get(outer), Mapping):
        return value_at(row[outer], inner)
    return row.get(name)


def key_names(row: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Yield the names by which `value_at` finds the values of a row, in objects as ``a.b``."""
    for name, value in row.items():
        if isinstance(value, Mapping) and value and within.count(".") < 8:
            yield from key_names(value, f"{within}{name}.")
        else:
            yield f"{within}{name}"


def saved_files(folder: Path, error: type[ContextCliffError]) -> list[Path]:
    """Return the Arrow files that `datasets` saved in ``folder`` (`save_to_disk`); empty without.

    Raises:
        error: the folder holds several splits, or a selection of its rows.
    """
    splits = _member(folder / "dataset_dict.json", "splits")
    if len(splits) > 1:
        names = ", ".join(splits)
        raise error(f"{folder} holds the splits {names}; name one of them: {folder / splits[0]}.")
    folder = folder.joinpath(*splits)
    if _member(folder / "state.json", "_indices_data_files"):
        raise error(f"{folder} holds a selection of rows; save it again after flatten_indices().")
    return [folder / Path(name).name for name in _member(folder / "state.json", "_data_files")]


def _member(file: Path, name: str) -> list[str]:
    with suppress(OSError, ValueError, AttributeError, KeyError, TypeError):
        values = loads(read_file(file)).get(name) or []
        return [value if isinstance(value, str) else value["filename"] for value in values]
    return []
