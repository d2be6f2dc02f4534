"""Large files read in parts, never held whole: members of a zip or a JSON object, rows.

No member is read beyond a limit. Python's own `zipfile` reads Zstandard (method 93, which
inspect_ai writes) from 3.14 on; until then Arrow unpacks it.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.corpora.readers.rows import JsonStream, text_lines
from contextcliff_dagster.corpora.readers.tables import csv_table
from contextcliff_dagster.score_files.columns import BOM, loads, opened
from contextcliff_dagster.user_files import open_file

MOST_BYTES = 256 << 20
"""Maximum size of a single value in a log (a sample, a line); larger ones are taken for hostile."""

_DECODER = json.JSONDecoder()
_RESULTS = frozenset((".csv", ".eval", ".json", ".jsonl", ".ndjson", ".tsv"))


def files_in(path: Path) -> list[Path]:
    """Return the files in a folder, at any depth, whose endings are those of results, or itself."""
    found = sorted(path.rglob("*")) if path.is_dir() else []
    return [file for file in found if not _RESULTS.isdisjoint(file.suffixes)] or [path]


def walk(path: Path, *streamed: str) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for the members of the object in the file, in its order.

    If a member in ``streamed`` is an array, its items are yielded singly under its name. So are
    those of a top-level array, under the name "". NaN and Infinity are accepted: tools write them.

    Raises:
        ScoreFileError: the file is not JSON or ends too early, or one value is too large.
    """
    with opened(path) as file:
        stream = _json_stream(path, file)
        if stream.begins_with("["):
            yield from (("", value) for _, value in stream.values())
        else:
            yield from ((name, value) for _, name, value in stream.members(streamed))


def rows_of(path: Path) -> Iterator[Any]:
    """Yield the rows of a table by column, the values of JSON Lines or an array, or one value.

    JSON in a table's cells is parsed; empty cells are None.

    Raises:
        ScoreFileError: the file is damaged, ends too early, or one value is too large.
    """
    with opened(path) as file:
        start = file.read(64).removeprefix(BOM).lstrip()[:1]
    with opened(path) as file:
        if start in (b"{", b"["):
            yield from (value for _, value in _json_stream(path, file).values())
        elif start:
            lines = text_lines(path, io.BufferedReader(file), ScoreFileError)
            table = csv_table(path, lines, ScoreFileError)
            for _, cells in table.rows:
                yield dict(zip(table.header, map(_cell, cells), strict=True))


def _json_stream(path: Path, file: Any) -> JsonStream:
    return JsonStream(path, file, error=ScoreFileError, decoder=_DECODER, longest=MOST_BYTES)


def _cell(text: str) -> Any:
    with suppress(ValueError):
        return loads(text.encode()) if text[:1] in ("{", "[") else text or None
    return text


MOST_BYTES_IN_ALL = 32 << 30
"""Maximum unpacked bytes of one file: members may overlap, so its own size sets no limit."""

_ZSTANDARD = 93
_ENCRYPTED = 0x1
_LOCAL_HEADER = 30


class ZipMembers:
    """The members of the zip file ``path``, which is closed by ``close``.

    Raises:
        ScoreFileError: the file is not a whole zip file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open_file(path)
            self._zip = zipfile.ZipFile(self._file)
        except OSError as error:
            raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error
        except (zipfile.BadZipFile, ValueError, struct.error) as error:
            raise ScoreFileError(
                f"{path} is a broken zip file ({error}): it was cut off or damaged; copy it again."
            ) from error
        self.names = list(dict.fromkeys(self._zip.namelist()))
        self._unpacked = 0

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    def json(self, name: str) -> Any:
        """Return the JSON value of member ``name``; NaN and Infinity are accepted.

        Raises:
            ScoreFileError: the member is damaged, too large, encrypted, or not JSON.
        """
        content = self._read(name)
        try:
            return loads(content)
        except ValueError as error:
            raise self._damaged(name, "it is not JSON") from error

    def _read(self, name: str) -> bytes:
        info = self._zip.getinfo(name)
        if info.flag_bits & _ENCRYPTED:
            raise ScoreFileError(f"{self._path} is encrypted; unpack it and name the log in it.")
        too_large = ScoreFileError(
            f"{self._path}: {name} unpacks to more than {MOST_BYTES >> 20} MB, which no sample of "
            "a log does."
        )
        if max(info.file_size, info.compress_size) > MOST_BYTES:
            raise too_large
        try:
            if info.compress_type == _ZSTANDARD:
                content = self._zstandard(info)
            else:
                with self._zip.open(info) as member:
                    content = member.read(MOST_BYTES + 1)
        except NotImplementedError as error:
            raise ScoreFileError(
                f"{self._path}: {name} is packed by method {info.compress_type}, which is not "
                "known here; write the log as JSON (inspect log convert) and name that."
            ) from error
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, struct.error) as error:
            raise self._damaged(name, str(error)) from error
        if len(content) > MOST_BYTES:
            raise too_large
        self._unpacked += len(content)
        if self._unpacked > MOST_BYTES_IN_ALL:
            raise ScoreFileError(
                f"{self._path} unpacks to more than {MOST_BYTES_IN_ALL >> 30} GB, which no log "
                "does."
            )
        return content

    def _zstandard(self, info: zipfile.ZipInfo) -> bytes:
        import pyarrow as pa

        self._file.seek(info.header_offset)
        header = self._file.read(_LOCAL_HEADER)
        name_size, extra_size = struct.unpack("<HH", header[26:])
        self._file.seek(name_size + extra_size, 1)
        packed = self._file.read(info.compress_size)
        parts, size = [], 0
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            while size <= MOST_BYTES and (part := stream.read(1 << 20)):
                parts.append(part)
                size += len(part)
        content = b"".join(parts)
        if size <= MOST_BYTES and zlib.crc32(content) != info.CRC:
            raise zipfile.BadZipFile("its checksum does not match")
        return content

    def _damaged(self, name: str, why: str) -> ScoreFileError:
        return ScoreFileError(
            f"{self._path} is damaged in {name} ({why}); copy it again, or run the evaluation "
            "again."
        )
