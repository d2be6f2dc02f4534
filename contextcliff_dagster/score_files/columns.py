"""A file's columns by name, as numbers and names, whatever the file's format.

Arrow reads the columns of CSV and Parquet at disk speed, but says little about a table that it
cannot read. Such a CSV is read again row by row, which names the line.
"""

from __future__ import annotations

import errno
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.contracts.arrays import Bools, Floats
from contextcliff_dagster.corpora.readers.rows import ENDINGS, READERS, is_utf16, text_lines
from contextcliff_dagster.corpora.readers.tables import (
    GROUPED,
    csv_table,
    key_names,
    saved_files,
    value_at,
)
from contextcliff_dagster.user_files import require_file

MOST_TOKENS = 1e12
"""Maximum length that is accepted; above it, an integer has lost digits or a unit is wrong."""
_WHOLE = "Write whole numbers without separators"


def need(columns: Columns, *names: str, hint: str = "") -> None:
    """Raise ScoreFileError if a column in ``names`` is missing; list the columns and ``hint``."""
    for name in names:
        if name not in columns.arrays:
            if columns.found and all(re.fullmatch(r"-?[\d.,]+", found) for found in columns.found):
                raise ScoreFileError(
                    f"{columns.path} begins with numbers: its first line must name the columns, "
                    "such as length_tokens,score."
                )
            # length_tokens may be usage.prompt_tokens, or Length Tokens
            ends = (name, name.replace("length", "prompt"))
            like = [
                found
                for found in columns.found
                if re.sub(r"\W+", "_", found.rpartition(".")[2].strip().lower()) in ends
            ]
            mapped = quote(f"{name}={like[0] if like else 'ITS_NAME'}")
            raise ScoreFileError(
                f"{columns.path} has no column {name!r}; columns found: {columns.listed}; if one "
                f"of them is it, add --columns {mapped}{hint}."
            )


def numbers(columns: Columns, name: str) -> Floats:
    """Return column ``name`` as floats, NaN for empty cells; true and false are 1 and 0.

    Raises:
        ScoreFileError: a value is not a number.
    """
    array = decoded(columns.arrays[name])
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _parsed(columns, name, array)
    if (values := floats(array)) is None:
        raise ScoreFileError(
            f"{columns.path}: column {columns.named(name)!r} holds {array.type}, not numbers."
        )
    return values


def floats(array: pa.Array | pa.ChunkedArray) -> Floats | None:
    """Return numbers as floats, NaN for nulls, 1 for true; None if there are other values."""
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return np.full(len(array), np.nan)
    if types.is_boolean(kind):
        array = pc.cast(array, pa.uint8())
    elif not (types.is_decimal(kind) or types.is_integer(kind) or types.is_floating(kind)):
        return None
    return np.asarray(pc.cast(array, pa.float64(), safe=False), dtype=np.float64)


def texts(columns: Columns, name: str) -> pa.ChunkedArray:
    """Return column ``name`` as strings, null for empty cells; 7 and 7.0 both become "7"."""
    array = decoded(columns.arrays[name])
    try:
        return strings(array)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise ScoreFileError(
            f"{columns.path}: column {columns.named(name)!r} holds {array.type}, not names."
        ) from error


def strings(array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """Return names or numbers as strings, null if empty; 7 and 7.0 are both "7".

    Raises:
        ArrowException: they are neither.
    """
    if pa.types.is_floating(array.type):
        whole = pc.if_else(pc.is_nan(array), None, array)
        if pc.all(pc.equal(whole, pc.trunc(whole))).as_py():
            array = pc.cast(whole, pa.int64(), safe=False)
    names = pc.cast(array, pa.string())
    return pc.if_else(pc.equal(names, ""), None, names)


def refuse(columns: Columns, name: str, bad: Bools, why: str) -> None:
    """Raise ScoreFileError if any value is ``bad``, quoting the first one, then ``why``."""
    if not bad.any():
        return
    row = int(np.flatnonzero(bad)[0])
    n_others = int(bad.sum()) - 1
    others = f" (and {n_others:,} more)" if n_others else ""
    array = columns.arrays[name]
    value = array[row].as_py()
    if isinstance(value, str):
        text = repr(value) if pd.isna(pd.to_numeric(value, errors="coerce")) else value
    else:
        text = "empty" if value is None else f"{value:g}"
    raise ScoreFileError(
        f"{columns.path}, row {row + 1}{others}: {columns.named(name)} is {text}{why}."
    )


def lengths(columns: Columns) -> Floats:
    """Return ``length_tokens``, checked to be positive and whole.

    Raises:
        ScoreFileError: one is not.
    """
    tokens = numbers(columns, "length_tokens")
    refuse(columns, "length_tokens", ~np.isfinite(tokens), "; a length is a number of tokens")
    refuse(columns, "length_tokens", tokens <= 0, "; a length is above 0 tokens")
    refuse(columns, "length_tokens", tokens > MOST_TOKENS, "; no text has that many tokens")
    why = f": a fraction, or a number with a thousands separator? {_WHOLE}"
    refuse(columns, "length_tokens", tokens != np.round(tokens), why)
    return tokens


def rows_by_model(columns: Columns) -> list[tuple[str | None, Any]]:
    """Return (model, index of its rows), ordered by name; all rows if no row names a model.

    Raises:
        ScoreFileError: some rows name a model and others do not.
    """
    everything = slice(None)
    if "model" not in columns.arrays:
        return [(None, everything)]
    models = texts(columns, "model")
    refuse(columns, "model", models.is_null().to_numpy(), "; name it in every row, or in none")
    codes, names = pd.factorize(models.to_pandas(), sort=True)
    if len(names) == 1:
        return [(str(names[0]), everything)]
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return list(zip(map(str, names), parts, strict=True))


def of_scale(columns: Columns, name: str, values: Floats, scale: float) -> Floats:
    """Return ``values`` (0..scale, NaN allowed) as fractions 0..1.

    Raises:
        ScoreFileError: one lies outside 0..scale.
    """
    hint = ""
    if scale == 1 and np.nanmax(values, initial=0.0) <= 100:
        hint = "; --scale states the largest possible score, such as --scale 100 for percentages"
    outside = (values < 0) | (values > scale)
    refuse(columns, name, outside, f", outside 0..{scale:g}{hint}")
    # Rounding removes the error of the division: 56.7 of 100 equals .567 exactly.
    return values if scale == 1 else np.round(values / scale, 12)


def decoded(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a dictionary; other arrays as they are."""
    if pa.types.is_dictionary(array.type):
        return pc.cast(array, array.type.value_type)
    return array


def _parsed(columns: Columns, name: str, array: pa.ChunkedArray) -> Floats:
    """Parse numbers stored as text; refuse those that can be read in two ways."""
    text = pc.utf8_lower(pc.utf8_trim_whitespace(array))
    is_large = columns.decimal_comma and name.endswith(("_ms", "_usd"))
    if name == "n" or name.endswith("_tokens") or is_large:
        is_grouped = _matching(text, GROUPED.pattern)
        grouped = text.filter(is_grouped).to_pylist()
        # One number with a decimal separator settles those of the column.
        if grouped and len(grouped) == pc.sum(_matching(text, ".*[.,].*")).as_py():
            whole = int(re.sub(r"\D", "", grouped[0]))
            why = f": a fraction, or {whole:,} with a thousands separator? {_WHOLE}"
            refuse(columns, name, is_grouped.to_numpy(), why)
    if columns.decimal_comma:
        why = ", with a decimal point, where other numbers of the file have a comma"
        refuse(columns, name, _matching(text, r".*\..*").to_numpy(), why)
        text = pc.replace_substring(text, ",", ".")
    with suppress(pa.ArrowInvalid):  # what Arrow does not know is read more slowly
        return np.asarray(pc.cast(text, pa.float64()).to_numpy(), dtype=np.float64)
    trimmed = text.to_pandas().replace({"true": "1", "false": "0", "": None})
    values = pd.to_numeric(trimmed, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    is_filled = trimmed.notna().to_numpy() & (trimmed != "nan").fillna(False).to_numpy(bool)
    why = ", no number; write digits and a decimal point only"
    refuse(columns, name, np.isnan(values) & is_filled, why)
    return np.asarray(values, dtype=np.float64)


def _matching(text: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.match_substring_regex(text, f"^(?:{pattern})$"), False)


RATIO, SMALL_BYTES = 200, 256 << 20
"""A compressed file may unpack to `SMALL_BYTES`, or to `RATIO` times its own size: results with
their prompts unpack to 3 to 30 times that size."""
_PIECE = 1 << 20


def opened(path: Path) -> pa.NativeFile:
    """Open the file for reading; UTF-16 with a byte order mark as UTF-8.

    Raises:
        OSError: it is not a regular file, or cannot be opened or unpacked.
        ScoreFileError: it unpacks to more than any table of results would.
    """
    require_file(path)
    if _is_packed(path):
        state = path.stat()
        _require_bounded(path, state.st_size, state.st_mtime_ns)
    with _stream(path) as file:
        if not is_utf16(start := file.read(2)):
            return _stream(path)
        try:
            return pa.BufferReader((start + file.read()).decode("utf-16").encode())
        except UnicodeError as error:
            raise OSError(errno.EINVAL, str(error)) from error


def _stream(path: Path) -> pa.NativeFile:
    return pa.input_stream(str(path), compression="detect")


def _is_packed(path: Path) -> bool:
    try:
        return pa.Codec.detect(str(path)) is not None
    except (ValueError, TypeError):
        return False


@lru_cache(maxsize=64)  # a file is opened several times: to recognise it, for its header, for all
def _require_bounded(path: Path, size: int, mtime_ns: int) -> None:
    limit = max(SMALL_BYTES, RATIO * size)
    unpacked = 0
    with _stream(path) as file:
        while piece := file.read(_PIECE):
            unpacked += len(piece)
            if unpacked > limit:
                raise ScoreFileError(
                    f"{path} unpacks to more than {limit >> 20:,} MB, {limit // max(1, size):,} "
                    "times its size, too much for a table of results; unpack it if you trust it."
                )


BOM = b"\xef\xbb\xbf"


def as_array(values: list[Any]) -> pa.ChunkedArray:
    """Return values as one Arrow array: numbers if all are numbers, else strings; empty lists if
    one of them is a list or an object."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds & {list, dict}:
        return pa.chunked_array([pa.nulls(len(values), pa.list_(pa.string()))])
    if kinds <= {bool} or kinds <= {int, float}:
        wanted = None if len(kinds) == 1 else pa.float64()
        with suppress(OverflowError, pa.ArrowInvalid):
            return pa.chunked_array([pa.array(values, wanted)])
    return pa.chunked_array([pa.array([_letters(value) for value in values], pa.string())])


def _letters(value: Any) -> str | None:
    if isinstance(value, str):  # half a surrogate pair is not text
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return None if value is None else json.dumps(value, default=str).strip('"')


def loads(content: bytes) -> Any:
    """Parse ``content`` as JSON; NaN and Infinity are accepted, and refused later by row.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return orjson.loads(content.removeprefix(BOM))
    except orjson.JSONDecodeError:
        try:
            return json.loads(content.decode("utf-8-sig"))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error


def json_lines(path: Path, lines: Iterable[bytes]) -> Iterator[Any]:
    """Yield the JSON value in each non-empty line. Raises ScoreFileError: a line is not JSON."""
    filled_lines = (line for line in lines if line.strip(b" \t\r\n" + BOM))
    for row, line in enumerate(filled_lines, start=1):
        try:
            yield loads(line)
        except ValueError as error:
            reason = getattr(error, "msg", None) or str(error)
            raise ScoreFileError(f"{path}, row {row} is not one JSON object: {reason}.") from error


def read_objects(
    path: Path, items: Iterable[Any], wanted: Collection[str]
) -> tuple[tuple[str, ...], dict[str, pa.ChunkedArray], int]:
    """Return the names of all fields in ``items``, the ``wanted`` fields, and the item count.

    ``a.b`` is field b of the objects in field a (`value_at`).

    Raises:
        ScoreFileError: an item is not an object.
    """
    values: dict[str, list[Any]] = {}
    first: dict[str, Any] = {}  # values of all fields
    rows = 0
    for item in items:
        if not isinstance(item, dict):
            raise ScoreFileError(
                f"{path}, row {rows + 1} is not a JSON object with named fields such as "
                "length_tokens."
            )
        if not item.keys() <= first.keys():
            first = {**item, **first}
            new = {name for name in wanted if name in first or "." in name} - values.keys()
            values |= {name: [None] * rows for name in new}
        for name, column in values.items():
            column.append(value_at(item, name) if "." in name else item.get(name))
        rows += 1
    present = {n for n in values if n in first or any(value is not None for value in values[n])}
    return tuple(key_names(first)), {n: as_array(values[n]) for n in wanted if n in present}, rows


FORMATS = ENDINGS
PACKED = (".gz", ".bz2", ".zst", ".lz4")
"""Endings of compressed files, whose content is read (Parquet has its own compression)."""

_HEAD = 1 << 20
_MOST_LISTED = 40


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of all columns in a file, and the ``rows`` values of each wanted column in it.

    ``own_names``: our name for a column -> the file's, where they differ. ``decimal_comma``: the
    numbers in it have no decimal point.
    """

    path: Path
    found: tuple[str, ...]
    arrays: Mapping[str, pa.ChunkedArray]
    rows: int
    own_names: Mapping[str, str] = field(default_factory=dict)
    decimal_comma: bool = False

    @property
    def listed(self) -> str:
        """Return the column names as a phrase for messages, truncated if there are many."""
        n_others = len(self.found) - _MOST_LISTED
        names = ", ".join(self.found[:_MOST_LISTED]) or "none"
        return f"{names} and {n_others:,} others" if n_others > 0 else names

    def named(self, name: str) -> str:
        """Return column ``name`` as a phrase for messages, including the file's own name for it."""
        in_file = self.own_names.get(name, name)
        return name if in_file == name else f"{in_file} ({name})"


def read_columns(
    path: Path,
    texts: Collection[str],
    numbers: Collection[str],
    own_names: Mapping[str, str] | None = None,
) -> Columns:
    """Read the columns ``texts`` and ``numbers`` from a file, or a folder that `datasets` saved.

    ``texts`` keep their exact characters (``007``); ``numbers`` may be returned as anything in the
    file. ``own_names``: our name for a column -> the file's, where they differ; ``a.b`` is b of the
    objects in a, unless a column has that name.

    Raises:
        ScoreFileError: the file is missing or empty, does not have the format of its ending, or
            lacks a column of ``own_names``.
    """
    readers: dict[str, Callable[..., Columns]] = {
        "csv": _csv, "tsv": _csv, "jsonl": _json_lines, "json": _json, "parquet": _parquet,
        "arrow": partial(_by_row, "arrow"),
    }  # fmt: skip
    renamed = dict(own_names or {})
    if unknown := [name for name in renamed if name not in {*texts, *numbers}]:
        raise ScoreFileError(
            f"--columns names {unknown[0]!r}, which is not a known column; choose from "
            f"{', '.join(sorted({*texts, *numbers}))}."
        )
    # A renamed column is not also read under our name.
    sets = [frozenset(renamed.get(name, name) for name in names) for names in (texts, numbers)]
    try:
        columns = readers[_kind(path)](path, *sets)
    except FileNotFoundError as error:
        raise ScoreFileError(f"There is no file {path}.") from error
    except OSError as error:
        raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not columns.rows:
        raise ScoreFileError(f"{path} holds no rows: give at least two of different lengths.")
    if not renamed:
        return columns
    for name, column in renamed.items():
        if column not in columns.arrays:
            raise ScoreFileError(
                f"{path} has no column {column!r}, which --columns takes as {name!r}; columns "
                f"found: {columns.listed}."
            )
    arrays = {
        name: columns.arrays[renamed.get(name, name)]
        for name in dict.fromkeys((*texts, *numbers))
        if renamed.get(name, name) in columns.arrays
    }
    return replace(columns, arrays=arrays, own_names=renamed)


def stem(path: Path) -> str:
    """Return the file's name without its format's endings: ``a`` for ``a.jsonl.gz``."""
    name = path.name
    for endings in (PACKED, tuple(FORMATS)):
        ending = Path(name).suffix
        if ending.lower() in endings and name != ending:
            name = name.removesuffix(ending)
    return name


def _kind(path: Path) -> str:
    if saved_files(path, ScoreFileError):
        return "arrow"
    if path.is_dir():
        raise ScoreFileError(f"{path} is a folder; give the files in it.")
    start = _first_bytes(path, 64)
    if not start.removeprefix(BOM).strip():
        raise ScoreFileError(f"{path} is empty: give at least two rows of different lengths.")
    unpacked_path = Path(path.stem) if path.suffix.lower() in PACKED else path
    kind = FORMATS.get(unpacked_path.suffix.lower())
    if b"\x00" in start and kind != "arrow" and not start.startswith((b"PAR1", b"PK")):
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
    lines = text_lines(path, io.BufferedReader(opened(path)), ScoreFileError)
    delimiter, header, n_lines, rows = csv_table(path, lines, ScoreFileError)
    wanted = [name for name in header if name in texts | numbers]
    for name in wanted:
        if wanted.count(name) > 1:
            raise ScoreFileError(f"The header of {path} names column {name!r} twice.")
    # Arrow needs distinct names.
    names = [name if name in wanted else f"{i} {name}" for i, name in enumerate(header)]
    if not wanted:
        return Columns(path, tuple(header), {}, 1)
    try:
        table = arrow_csv.read_csv(
            opened(path),
            arrow_csv.ReadOptions(column_names=names, skip_rows=n_lines, use_threads=True),
            arrow_csv.ParseOptions(delimiter=delimiter),
            arrow_csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),  # 1.000 may be a thousand
                strings_can_be_null=True,
                null_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"],
            ),
        )
        # Spreadsheets end in rows of empty cells.
        is_exact = any(table[name][-1].is_valid for name in wanted) if len(table) else False
    except pa.ArrowInvalid:
        is_exact = False
    if not is_exact:
        places = [header.index(name) for name in wanted]
        cells = [[fields[place].strip() or None for place in places] for _, fields in rows]
        columns = zip(*cells, strict=True) if cells else [()] * len(wanted)
        schema = pa.schema([(name, pa.string()) for name in wanted])
        table = pa.table(list(columns), schema)
    arrays = {name: table[name] for name in wanted}
    decimal_comma = delimiter != "," and any(
        pc.any(_matching(arrays[name], r".*\d,\d.*")).as_py() for name in numbers & {*wanted}
    )
    return Columns(path, tuple(header), arrays, len(table), decimal_comma=decimal_comma)


def _json_lines(path: Path, texts: frozenset[str], numbers: frozenset[str]) -> Columns:
    with io.BufferedReader(opened(path)) as lines:
        return Columns(path, *read_objects(path, json_lines(path, lines), texts | numbers))


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
    try:
        with pq.ParquetFile(path) as file:
            present = file.schema_arrow.names
            if any("." in name and name not in present for name in texts | numbers):
                return _by_row("parquet", path, texts, numbers)
            wanted = [name for name in dict.fromkeys(present) if name in texts | numbers]
            for name in wanted:
                if present.count(name) > 1:
                    raise ScoreFileError(f"{path} names column {name!r} twice.")
            table = file.read(columns=wanted)
            leaves = (file.schema.column(i).path for i in range(len(file.schema)))
            found = tuple(dict.fromkeys(leaf.partition(".list.")[0] for leaf in leaves))
            return Columns(path, found, {n: table[n] for n in wanted}, file.metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ScoreFileError(f"{path} is not readable Parquet: {reason}") from error


def _by_row(kind: str, path: Path, texts: frozenset[str], numbers: frozenset[str]) -> Columns:
    rows = (row for _, row in READERS[kind](path))
    return Columns(path, *read_objects(path, rows, texts | numbers))
