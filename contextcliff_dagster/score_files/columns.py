"""The columns of a file, by name, whatever its format.

Arrow reads whole columns at the speed of the disk, and says little about what it cannot read. A
file that it refuses is read again row by row (`plain`), which is slow, forgiving where a value is
merely of another type than those before it, and exact about the row where it is not.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.row_parsers import (
    BOM,
    deepest,
    header_names,
    json_lines,
    loads,
    read_csv,
    read_objects,
)
from contextcliff_dagster.score_files.unpacking import opened

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
PACKED = (".gz", ".bz2", ".zst", ".lz4")
"""Endings of compressed files, which are read as what they hold (not Parquet: it packs itself)."""

_HEAD = 1 << 20
_DEEPEST = 200
_MOST_LISTED = 40
_UTF16_OR_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of all columns of a file, and ``rows`` values of each wanted one that it has.

    ``own_names``: the file's names of those that it calls otherwise.
    """

    path: Path
    found: tuple[str, ...]
    arrays: Mapping[str, pa.ChunkedArray]
    rows: int
    own_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def listed(self) -> str:
        """The names of all columns for a sentence; of many, the first."""
        more = len(self.found) - _MOST_LISTED
        names = ", ".join(self.found[:_MOST_LISTED]) or "none"
        return f"{names} and {more:,} others" if more > 0 else names

    def named(self, name: str) -> str:
        """Column ``name`` for a sentence, with the file's own name of it."""
        own = self.own_names.get(name, name)
        return name if own == name else f"{own} ({name})"


def read_columns(
    path: Path,
    texts: Collection[str],
    numbers: Collection[str],
    own_names: Mapping[str, str] | None = None,
) -> Columns:
    """The columns ``texts`` and ``numbers`` of a CSV, TSV, JSON Lines, JSON or Parquet file.

    ``texts`` keep the letters they are written with (``007``); ``numbers`` may come back as
    anything the file holds. ``own_names``: the file's name of a column that it calls otherwise.

    Raises:
        ScoreFileError: the file is not there, is empty, is not what its ending says, or has no
            column of ``own_names``.
    """
    readers = {"csv": _csv, "jsonl": _json_lines, "json": _json, "parquet": _parquet}
    own = dict(own_names or {})
    if unknown := [name for name in own if name not in {*texts, *numbers}]:
        raise ScoreFileError(
            f"--columns names {unknown[0]!r}, which is no column here; it names some of "
            f"{', '.join(sorted({*texts, *numbers}))}."
        )
    # A field with another name is not read under its own as well.
    theirs = [frozenset(own.get(name, name) for name in names) for names in (texts, numbers)]
    try:
        columns = readers[_kind(path)](path, *theirs)
    except FileNotFoundError as error:
        raise ScoreFileError(f"There is no file {path}.") from error
    except OSError as error:
        raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not columns.rows:
        raise ScoreFileError(f"{path} holds no rows: give at least two of different lengths.")
    if not own:
        return columns
    for name, column in own.items():
        if column not in columns.arrays:
            raise ScoreFileError(
                f"{path} has no column {column!r}, which --columns takes as {name!r}; columns "
                f"found: {', '.join(columns.found) or 'none'}."
            )
    arrays = {
        name: columns.arrays[own.get(name, name)]
        for name in dict.fromkeys((*texts, *numbers))
        if own.get(name, name) in columns.arrays
    }
    return replace(columns, arrays=arrays, own_names=own)


def stem(path: Path) -> str:
    """The file's name without what says its format: ``a.jsonl.gz`` is ``a``."""
    name = path.name
    for endings in (PACKED, tuple(FORMATS)):
        ending = Path(name).suffix
        if ending.lower() in endings and name != ending:
            name = name.removesuffix(ending)
    return name


def _kind(path: Path) -> str:
    if path.is_dir():
        raise ScoreFileError(f"{path} is a folder; name the files in it.")
    start = _first_bytes(path, 64)
    if not start.removeprefix(BOM).strip():
        raise ScoreFileError(f"{path} is empty: give at least two rows of different lengths.")
    if start.startswith(_UTF16_OR_32):
        raise ScoreFileError(f"{path} is UTF-16 or UTF-32; save it as UTF-8.")
    inner = Path(path.stem) if path.suffix.lower() in PACKED else path
    kind = FORMATS.get(inner.suffix.lower())
    if b"\x00" in start and not start.startswith((b"PAR1", b"PK")):
        raise ScoreFileError(
            f"{path} holds NUL bytes: this is a binary file; give CSV, TSV, JSON Lines, JSON or "
            "Parquet."
        )
    if start.startswith(b"PAR1"):
        kind = "parquet" if kind in (None, "parquet") else None
    elif kind == "parquet":
        kind = None
    elif kind is None and start.removeprefix(BOM).lstrip()[:1] in (b"{", b"["):
        kind = "json"
    if kind is None:
        raise ScoreFileError(
            f"{path} is not of a known format: give CSV, TSV, JSON Lines (.jsonl), JSON or Parquet "
            "with the ending that says so."
        )
    return kind


def _first_bytes(path: Path, count: int) -> bytes:
    with opened(path) as file:
        start: bytes = file.read(count)
    return start


def _csv(path: Path, texts: frozenset[str], numbers: frozenset[str]) -> Columns:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    head = _first_bytes(path, _HEAD).removeprefix(BOM)
    first = next((line for line in head.splitlines() if line.strip()), b"")
    skipped = head.index(first)  # blank lines before the header
    try:
        line = first.decode()
    except UnicodeDecodeError as error:
        raise ScoreFileError(f"The header of {path} is not UTF-8; save the file as UTF-8.") from (
            error
        )
    is_tsv = path.name.lower().split(".")[1:2] == ["tsv"]
    delimiter = "\t" if is_tsv else max(",;\t", key=line.count)
    header = header_names(path, line, delimiter)
    wanted = [name for name in header if name in texts | numbers]
    for name in wanted:
        if wanted.count(name) > 1:
            raise ScoreFileError(f"The header of {path} names column {name!r} twice.")
    # Arrow wants every name to be another.
    names = [name if name in wanted else f"{i} {name}" for i, name in enumerate(header)]
    if not wanted:
        return Columns(path, tuple(header), {}, 1)
    try:
        table = arrow_csv.read_csv(
            opened(path),
            arrow_csv.ReadOptions(
                column_names=names, skip_rows=1 + head[:skipped].count(b"\n"), use_threads=True
            ),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values='"' in line),
            arrow_csv.ConvertOptions(
                include_columns=wanted,
                column_types={name: pa.string() for name in wanted if name in texts},
                strings_can_be_null=True,
                null_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"],
            ),
        )
        kinds = [table[name].type for name in wanted]
        readable = not any(pa.types.is_temporal(k) or pa.types.is_binary(k) for k in kinds)
    except pa.ArrowInvalid:
        readable = False
    if readable:  # what is no UTF-8 comes as bytes
        return Columns(path, tuple(header), {n: table[n] for n in wanted}, table.num_rows)
    arrays, rows = read_csv(path, opened(path), delimiter, header, wanted)
    return Columns(path, tuple(header), arrays, rows)


def _json_lines(path: Path, texts: frozenset[str], numbers: frozenset[str]) -> Columns:
    import pyarrow as pa
    from pyarrow import json as arrow_json

    try:
        schema, present = _json_schema(_first_bytes(path, _HEAD), texts, numbers)
        with opened(path) as file:
            table = arrow_json.read_json(
                file,
                arrow_json.ReadOptions(use_threads=True, block_size=_HEAD),
                arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
    except pa.ArrowInvalid:
        with io.BufferedReader(opened(path)) as lines:
            return Columns(path, *read_objects(path, json_lines(path, lines), texts | numbers))
    arrays = {
        name: table[name]
        for name in schema.names
        if name in present or table[name].null_count < table.num_rows
    }
    return Columns(path, tuple(dict.fromkeys([*present, *arrays])), arrays, table.num_rows)


def _json_schema(
    head: bytes, texts: frozenset[str], numbers: frozenset[str]
) -> tuple[pa.Schema, list[str]]:
    """Types of the wanted fields by the first rows, and the names of all fields there."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    if len(head) == _HEAD:
        head = head[: head.rfind(b"\n") + 1]
    if deepest(head) > _DEEPEST:  # Arrow makes types of it by recursion, and ends the process
        raise pa.ArrowInvalid("nested too deeply")
    first = arrow_json.read_json(io.BytesIO(head)).schema
    fields = []
    for name in sorted(texts | numbers):
        plain = pa.string() if name in texts else pa.float64()
        seen = first.field(name).type if name in first.names else pa.null()
        if pa.types.is_null(seen) or (pa.types.is_integer(seen) and name in numbers):
            seen = plain  # a fraction may follow
        # What looks like a time is a name that looks like one.
        fields.append((name, pa.string() if pa.types.is_timestamp(seen) else seen))
    return pa.schema(fields), first.names


def _json(path: Path, texts: frozenset[str], numbers: frozenset[str]) -> Columns:
    if not _first_bytes(path, _HEAD).removeprefix(BOM).lstrip().startswith(b"["):
        return _json_lines(path, texts, numbers)
    with opened(path) as file:
        try:
            items = loads(file.read())
        except ValueError as error:
            raise ScoreFileError(f"{path} is not JSON: {error}.") from error
    return Columns(path, *read_objects(path, items, texts | numbers))


def _parquet(path: Path, texts: frozenset[str], numbers: frozenset[str]) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            present = file.schema_arrow.names
            wanted = [name for name in dict.fromkeys(present) if name in texts | numbers]
            for name in wanted:
                if present.count(name) > 1:
                    raise ScoreFileError(f"{path} names column {name!r} twice.")
            table = file.read(columns=wanted)
            return Columns(
                path, tuple(present), {n: table[n] for n in wanted}, file.metadata.num_rows
            )
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ScoreFileError(f"{path} is not readable Parquet: {reason}") from error
