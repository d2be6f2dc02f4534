"""File formats as streams of (place, row): JSON Lines, JSON, CSV, TSV and Parquet.

Every reader holds one row (or one small batch) at a time, whatever the file's size.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any, NoReturn

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.lines import text_lines

__all__ = ["READERS", "Rows"]

Rows = Iterator[tuple[str, Any]]
"""(place, row): ``qa.jsonl, line 7`` and its fields."""

_SPACE = " \t\r\n"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a value; fill it or drop the row")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def json_lines(path: Path) -> Rows:
    """One JSON object a line; blank lines are skipped."""
    for number, line in text_lines(path):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            yield place, _DECODER.decode(line.strip(_SPACE))
        except JSONDecodeError as fault:
            raise CorpusError(
                f"{place} is not one JSON object: {fault.msg} at column {fault.colno}."
            ) from fault
        except ValueError as fault:
            raise CorpusError(f"{place}: {fault}.") from fault
        except RecursionError as fault:
            raise CorpusError(f"{place} is nested too deeply to be an example.") from fault


def json_values(path: Path) -> Rows:
    """The items of a top-level JSON array (``data.json``), or objects one after another.

    Parsed piece by piece: the buffer holds the current item and what was read ahead.
    """
    lines = text_lines(path)
    buffer, position, line, count = "", 0, 1, 0
    in_array, ended = False, False

    def more() -> bool:
        """Drop what is consumed and at least double what is not; False at the end of the file."""
        nonlocal buffer, position, ended
        pieces, size = [buffer[position:]], 0
        wanted = max(1 << 18, len(pieces[0]))
        for _, text in lines:
            pieces.append(text)
            size += len(text)
            if size >= wanted:
                break
        buffer, position = "".join(pieces), 0
        ended = size == 0
        return not ended

    def skip(characters: str) -> str:
        """Step over these characters; the next one, or "" at the end."""
        nonlocal position, line
        while True:
            while position < len(buffer) and buffer[position] in characters:
                line += buffer[position] == "\n"
                position += 1
            if position < len(buffer):
                return buffer[position]
            if not more():
                return ""

    if skip(_SPACE) == "[":
        in_array, position = True, position + 1
    while (first := skip(_SPACE + "," if count else _SPACE)) not in ("", "]"):
        place = f"{path}, line {line} (item {count + 1})"
        try:
            value, end = _decode(buffer, position, more, lambda: (buffer, position))
        except JSONDecodeError as fault:
            at = line + buffer.count("\n", position, fault.pos)
            raise CorpusError(f"{path}, line {at} is not JSON: {fault.msg}.") from fault
        except ValueError as fault:
            raise CorpusError(f"{place}: {fault}.") from fault
        except RecursionError as fault:
            raise CorpusError(f"{place} is nested too deeply to be an example.") from fault
        line += buffer.count("\n", position, end)
        position, count = end, count + 1
        yield place, value
    if in_array and first == "":
        raise CorpusError(f"{path} ends inside its JSON array, after item {count}: it was cut off.")
    if first == "]":
        position += 1
        if skip(_SPACE):
            raise CorpusError(f"{path}, line {line} goes on after the JSON array's end.")


def _decode(
    buffer: str, position: int, more: Callable[[], bool], state: Callable[[], tuple[str, int]]
) -> tuple[Any, int]:
    """One JSON value at ``position``, reading on while it may only be unfinished."""
    while True:
        try:
            value, end = _DECODER.raw_decode(buffer, position)
            # A number that touches the buffer's end may have more digits to come.
            if end < len(buffer) or not more():
                return value, end
        except JSONDecodeError as fault:
            # Unfinished text is reported at its start or at the buffer's end; anything else is wrong now.
            unfinished = fault.msg.startswith("Unterminated") or fault.pos >= len(buffer) - 8
            if not unfinished or not more():
                raise
        buffer, position = state()


def _delimited(path: Path, delimiter: str) -> Rows:
    # The limit is the csv module's own and global; a field may be a whole book.
    csv.field_size_limit(2**31 - 1)
    numbered = text_lines(path)
    reader = csv.reader((text for _, text in numbered), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    start = 1
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as fault:
            raise CorpusError(f"{path}, line {start}: {fault}.") from fault
        if fields is None:
            return
        place = f"{path}, line {start}"
        start = reader.line_num + 1
        if not any(fields):
            continue
        if header is None:
            header = [name.strip() for name in fields]
            if twice := [name for name in header if name and header.count(name) > 1]:
                raise CorpusError(f"{place}: the header names column {twice[0]!r} twice.")
            continue
        if len(fields) != len(header):
            raise CorpusError(
                f"{place} has {len(fields)} fields, the header has {len(header)}; "
                "quote fields that contain the delimiter or a line break."
            )
        yield place, dict(zip(header, fields, strict=True))


def comma_separated(path: Path) -> Rows:
    """CSV with a header line, RFC 4180 quoting."""
    return _delimited(path, ",")


def tab_separated(path: Path) -> Rows:
    """TSV with a header line, quoted as CSV."""
    return _delimited(path, "\t")


def parquet(path: Path) -> Rows:
    """Rows of a Parquet file, a small batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
                raise CorpusError(f"{path} names a column twice.")
            for batch in file.iter_batches(batch_size=32, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except UnicodeDecodeError as fault:
        raise CorpusError(f"{path}, after row {number}: a text column is not UTF-8.") from fault
    except (pa.ArrowException, OSError) as fault:
        message = str(fault).splitlines()[0]
        raise CorpusError(
            f"{path} is not readable Parquet (after row {number}): {message}"
        ) from fault


READERS: dict[str, Callable[[Path], Rows]] = {
    "jsonl": json_lines,
    "json": json_values,
    "csv": comma_separated,
    "tsv": tab_separated,
    "parquet": parquet,
}
