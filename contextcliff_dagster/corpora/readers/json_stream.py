"""A stream of JSON values: items of a top-level array, members of an object, or values in a row."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any, NoReturn

from contextcliff_dagster.contracts import ContextCliffError, CorpusError
from contextcliff_dagster.corpora.readers.text_lines import text_chunks
from contextcliff_dagster.user_files import open_file

_SPACE = " \t\r\n"
_READ_AHEAD = 1 << 19
_NUMBER_GOES_ON = 4
"""A number so near the end of what was read may go on: 1 of 1.5, or of 1e-9."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a value; fill it or drop the row")


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Decodes JSON and refuses the NaN and Infinity that Python would let pass."""


class JsonStream:
    """Parses piece by piece: the buffer holds the current value and what was read ahead.

    Args:
        file: the file's bytes, from where they are to be read; ``path`` is opened when None.
        error: what is raised, always with the path and where it can be with the line.
        longest: characters of the longest value that is read.
    """

    def __init__(
        self,
        path: Path,
        file: Any = None,
        *,
        error: type[ContextCliffError] = CorpusError,
        decoder: json.JSONDecoder = DECODER,
        longest: int | None = None,
    ) -> None:
        self._path, self._error, self._decoder, self._longest = path, error, decoder, longest
        self._pieces = self._text(file)
        self._buffer = ""
        self._at = 0
        self._line = 1

    def begins_with(self, character: str) -> bool:
        """Whether this is the first character that is no white space; nothing is consumed."""
        return self._skip(_SPACE) == character

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield (place, value) of every item of an array, or of every value in a row.

        Raises:
            ContextCliffError: the text is not JSON, holds NaN, or ends too early; with the line.
        """
        if self.begins_with("["):
            yield from self._items("its JSON array", "item")
            self._end("the JSON array's end")
            return
        count = 0
        while self._skip(_SPACE + "," if count else _SPACE):
            count += 1
            yield f"{self._path}, line {self._line} (item {count})", self._value(count)

    def members(self, spread: Collection[str] = ()) -> Iterator[tuple[str, str, Any]]:
        """Yield (place, name, value) of every member of one top-level object, one at a time.

        The items of a member in ``spread``, where it is an array, come one by one under its name.

        Raises:
            ContextCliffError: as :meth:`values`; or the text is no object.
        """
        if not self.begins_with("{"):
            self._fail(f", line {self._line} does not begin a JSON object.")
        self._at += 1
        count = 0
        while self._goes_on("}", count, "its JSON object", "member"):
            count += 1
            place = f"{self._path}, line {self._line} (member {count})"
            name = self._value(count)
            if not isinstance(name, str) or not self.begins_with(":"):
                raise self._error(f"{place} is not JSON: a quoted name and a colon belong there.")
            self._at += 1
            if self.begins_with("[") and name in spread:
                for where, value in self._items(repr(name), f"{name}, item"):
                    yield where, name, value
            else:
                yield place, name, self._value(count)
        self._end("the object's end")

    def _items(self, what: str, label: str) -> Iterator[tuple[str, Any]]:
        """Yield (place, value) of the array that begins here; step over its end."""
        self._at += 1
        count = 0
        while self._goes_on("]", count, what, "item"):
            count += 1
            yield f"{self._path}, line {self._line} ({label} {count})", self._value(count)

    def _goes_on(self, end: str, count: int, what: str, unit: str) -> bool:
        """Step over the comma behind ``count`` values; whether another comes before ``end``."""
        first = self._skip(_SPACE)
        if count and first == ",":
            self._at += 1
            first = self._skip(_SPACE)
        elif count and first not in (end, ""):
            self._fail(f", line {self._line} is not JSON: {first!r} in place of a comma.")
        if not first:
            self._fail(f" ends inside {what}, after {unit} {count}: it was cut off.")
        self._at += first == end
        return first != end

    def _end(self, what: str) -> None:
        if self._skip(_SPACE):
            self._fail(f", line {self._line} goes on after {what}.")

    def _skip(self, characters: str) -> str:
        """Step over these characters; the next one, or "" at the end."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in characters:
                self._line += self._buffer[self._at] == "\n"
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._read_on():
                return ""

    def _text(self, file: Any) -> Iterator[str]:
        if file is not None:
            yield from text_chunks(self._path, file, self._error)
            return
        try:
            with open_file(self._path) as opened:
                yield from text_chunks(self._path, opened, self._error)
        except OSError as error:
            self._fail(f" cannot be read: {error.strerror or error}.", error)

    def _read_on(self) -> bool:
        """Drop what is consumed and at least double what is not; False at the end of the file."""
        pieces, size = [self._buffer[self._at :]], 0
        if self._longest is not None and len(pieces[0]) > self._longest:
            self._fail(f" holds a value of more than {self._longest >> 20} MB, which no answer is.")
        wanted = max(_READ_AHEAD, len(pieces[0]))
        for text in self._pieces:
            pieces.append(text)
            size += len(text)
            if size >= wanted:
                break
        self._buffer, self._at = "".join(pieces), 0
        return size > 0

    def _value(self, count: int) -> Any:
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except JSONDecodeError as error:
                # Unfinished text is reported where it starts or where the buffer ends.
                unfinished = error.msg.startswith("Unterminated")
                if (unfinished or error.pos >= len(self._buffer) - 12) and self._read_on():
                    continue
                line = self._line + self._buffer.count("\n", self._at, error.pos)
                cut = unfinished or error.pos >= len(self._buffer)
                where = f"item {count}): it was cut off" if cut else f"item {count})"
                self._fail(f", line {line} is not JSON: {error.msg} ({where}.", error)
            except ValueError as error:
                self._fail(f", item {count}: {error}.", error)
            except RecursionError as error:
                self._fail(f", item {count} is nested too deeply to be an example.", error)
            length = end - self._at
            if len(self._buffer) - end < _NUMBER_GOES_ON and self._read_on():
                continue
            self._line += self._buffer.count("\n", self._at, self._at + length)
            self._at += length
            return value

    def _fail(self, what: str, cause: Exception | None = None) -> NoReturn:
        raise self._error(f"{self._path}{what}") from cause
