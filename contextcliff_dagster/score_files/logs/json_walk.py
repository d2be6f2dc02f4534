"""Large JSON without holding it: the members of one object, or the items of one array, in turn."""

from __future__ import annotations

import codecs
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

from contextcliff_dagster.contracts import ScoreFileError

MOST_BYTES = 256 << 20
"""No single value of a log (a sample, a line) may be larger; what is, was made to be."""

_CHUNK = 1 << 20
_NUMBER_GOES_ON = 4
_DECODER = json.JSONDecoder()


def walk(path: Path, file: Any, streamed: Collection[str]) -> Iterator[tuple[str, Any]]:
    """(name, value) of the members of the object in ``file``, in the order of the file.

    A member of ``streamed`` that is an array comes item by item under its name. An array in place
    of the object comes item by item under the name "". NaN and Infinity pass: tools write them.

    Raises:
        ScoreFileError: the file is not JSON or ends too early, or one value is too large.
    """
    reader = _Reader(path, file)
    first = reader.next()
    if first == "[":
        yield from (("", item) for item in reader.items())
        return
    if first != "{":
        reader.fail("begins with no object")
    reader.step()
    while reader.next() != "}":
        name = reader.value()
        if not isinstance(name, str) or reader.next() != ":":
            reader.fail("has a member without a name")
        reader.step()
        if name in streamed and reader.next() == "[":
            yield from ((name, item) for item in reader.items())
        else:
            yield name, reader.value()
        reader.comma("}")


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


class _Reader:
    """The buffer holds the value being read and what was read ahead."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file = path, file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._buffer = ""
        self._at = 0

    def next(self) -> str:
        """The next character that is no white space; "" at the end."""
        while True:
            while self._at < len(self._buffer):
                if not (character := self._buffer[self._at]).isspace():
                    return character
                self._at += 1
            if not self._more():
                return ""

    def step(self) -> None:
        self._at += 1

    def comma(self, end: str) -> None:
        """Step over the comma between two members; before ``end`` stands none."""
        if (found := self.next()) == ",":
            self.step()
        elif found != end:
            self.fail("ends too early: it was cut off" if not found else f"has {found!r} in it")

    def items(self) -> Iterator[Any]:
        self.step()
        while self.next() != "]":
            yield self.value()
            self.comma("]")
        self.step()

    def value(self) -> Any:
        self.next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as fault:
                near_end = fault.pos >= len(self._buffer) - 12
                if (fault.msg.startswith("Unterminated") or near_end) and self._more():
                    continue
                self.fail("ends too early: it was cut off" if near_end else f"has {fault.msg}")
            except RecursionError:
                self.fail("is nested too deeply")
            length = end - self._at
            # A number near the buffer's end may go on there: 1 of 1.5, or of 1e-9.
            if len(self._buffer) - end < _NUMBER_GOES_ON and self._more():
                continue
            self._at += length
            return value

    def _more(self) -> bool:
        """Drop what was read and at least double the rest; False at the end of the file."""
        rest = self._buffer[self._at :]
        if len(rest) > MOST_BYTES:
            self.fail(f"holds a value of more than {MOST_BYTES >> 20} MB, which no answer is")
        raw = self._file.read(max(_CHUNK, len(rest)))
        try:
            text = self._decode(raw, not raw)
        except UnicodeDecodeError as fault:
            raise ScoreFileError(f"{self._path} is not UTF-8; save it as UTF-8.") from fault
        self._buffer, self._at = rest + text, 0
        return bool(raw)

    def fail(self, what: str) -> NoReturn:
        raise ScoreFileError(f"{self._path} is not the JSON of a log: it {what}.")
