"""Large JSON without holding it: the members of one object, or the items of one array, in turn."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.corpora.readers.json_stream import JsonStream

MOST_BYTES = 256 << 20
"""No single value of a log (a sample, a line) may be larger; what is, was made to be."""

_CHUNK = 1 << 20
_DECODER = json.JSONDecoder()


def walk(path: Path, file: Any, streamed: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of the members of the object in ``file``, in the order of the file.

    A member of ``streamed`` that is an array comes item by item under its name. An array in place
    of the object comes item by item under the name "". NaN and Infinity pass: tools write them.

    Raises:
        ScoreFileError: the file is not JSON or ends too early, or one value is too large.
    """
    stream = JsonStream(path, file, error=ScoreFileError, decoder=_DECODER, longest=MOST_BYTES)
    if stream.begins_with("["):
        yield from (("", value) for _, value in stream.values())
    else:
        yield from ((name, value) for _, name, value in stream.members(streamed))


def rows(path: Path, file: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row from 1, object) of JSON Lines, or of one JSON array.

    Raises:
        ScoreFileError: a row is no object, or too large.
    """
    from contextcliff_dagster.score_files.row_parsers import objects_of

    first = b""
    while not first.strip(b" \t\r\n\xef\xbb\xbf"):
        if not (first := file.read(1)):
            return
    if first == b"[":
        items: Iterator[Any] = (item for _, item in walk(path, _Again(first, file), ()))
    else:
        items = objects_of(path, _lines(path, _Again(first, file)))
    for row, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise ScoreFileError(f"{path}, row {row} is not a JSON object.")
        yield row, item


class _Again:
    """A file whose first bytes were read already."""

    def __init__(self, first: bytes, file: Any) -> None:
        self._first, self._file = first, file

    def read(self, size: int) -> bytes:
        first, self._first = self._first, b""
        read: bytes = self._file.read(size)
        return first + read


def _lines(path: Path, file: Any) -> Iterator[bytes]:
    """Lines of bounded length."""
    parts: list[bytes] = []
    size = row = 0
    while chunk := file.read(_CHUNK):
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            row += 1
            yield b"".join([*parts, piece])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MOST_BYTES:
            raise ScoreFileError(
                f"{path}, row {row + 1} is longer than {MOST_BYTES >> 20} MB, which no answer is."
            )
    yield b"".join(parts)
