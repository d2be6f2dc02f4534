"""A stream of JSON values: the items of one top-level array, or objects one after another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any, NoReturn

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.readers.text_lines import text_pieces

__all__ = ["DECODER", "JsonStream"]

_SPACE = " \t\r\n"
_READ_AHEAD = 1 << 18


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a value; fill it or drop the row")


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Decodes JSON and refuses the NaN and Infinity that Python would let pass."""


class JsonStream:
    """Parses piece by piece: the buffer holds the current value and what was read ahead."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces = text_pieces(path)
        self._buffer = ""
        self._at = 0
        self._line = 1

    def values(self) -> Iterator[tuple[str, Any]]:
        """(place, value) of every value.

        Raises:
            CorpusError: the text is not JSON, holds NaN, or ends too early; with the line.
        """
        in_array = self._skip(_SPACE) == "["
        if in_array:
            self._at += 1
        count = 0
        while (first := self._skip(_SPACE + "," if count else _SPACE)) not in ("", "]"):
            count += 1
            yield f"{self._path}, line {self._line} (item {count})", self._value(count)
        if in_array and first == "":
            raise CorpusError(
                f"{self._path} ends inside its JSON array, after item {count}: it was cut off."
            )
        if first == "]":
            self._at += 1
            if not in_array or self._skip(_SPACE):
                raise CorpusError(
                    f"{self._path}, line {self._line} goes on after the JSON array's end."
                )

    def is_object(self) -> bool:
        """Whether the text begins as an object; nothing of it is consumed."""
        return self._skip(_SPACE) == "{"

    def members(self, spread: str | None = None) -> Iterator[tuple[str, str, Any]]:
        """(place, name, value) of every member of one top-level object, one at a time.

        The items of the member ``spread``, where it is an array, come one by one under its name.

        Raises:
            CorpusError: as :meth:`values`; or the text is no object.
        """
        if self._skip(_SPACE) != "{":
            raise CorpusError(f"{self._path}, line {self._line} does not begin a JSON object.")
        self._at += 1
        count = 0
        while (first := self._skip(_SPACE + "," if count else _SPACE)) not in ("", "}"):
            count += 1
            place = f"{self._path}, line {self._line} (member {count})"
            name = self._value(count)
            if not isinstance(name, str) or self._skip(_SPACE) != ":":
                raise CorpusError(f"{place} is not JSON: a quoted name and a colon belong there.")
            self._at += 1
            if self._skip(_SPACE) == "[" and name == spread:
                self._at += 1
                yield from ((where, name, value) for where, value in self._items(name))
            else:
                yield place, name, self._value(count)
        if first == "":
            raise CorpusError(
                f"{self._path} ends inside its JSON object, after member {count}: it was cut off."
            )
        self._at += 1
        if self._skip(_SPACE):
            raise CorpusError(f"{self._path}, line {self._line} goes on after the object's end.")

    def _items(self, name: str) -> Iterator[tuple[str, Any]]:
        """(place, value) of an array that was entered; steps over its end."""
        count = 0
        while (first := self._skip(_SPACE + "," if count else _SPACE)) not in ("", "]"):
            count += 1
            yield f"{self._path}, line {self._line} ({name}, item {count})", self._value(count)
        if first == "":
            raise CorpusError(
                f"{self._path} ends inside {name!r}, after item {count}: it was cut off."
            )
        self._at += 1

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

    def _read_on(self) -> bool:
        """Drop what is consumed and at least double what is not; False at the end of the file."""
        pieces, size = [self._buffer[self._at :]], 0
        wanted = max(_READ_AHEAD, len(pieces[0]))
        for _, text in self._pieces:
            pieces.append(text)
            size += len(text)
            if size >= wanted:
                break
        self._buffer, self._at = "".join(pieces), 0
        return size > 0

    def _value(self, count: int) -> Any:
        while True:
            try:
                value, end = DECODER.raw_decode(self._buffer, self._at)
                # A number that touches the buffer's end may have more digits to come.
                if end == len(self._buffer):
                    length = end - self._at
                    if self._read_on():
                        continue
                    end = length
                self._line += self._buffer.count("\n", self._at, end)
                self._at = end
                return value
            except JSONDecodeError as fault:
                # Unfinished text is reported where it starts or where the buffer ends.
                unfinished = fault.msg.startswith("Unterminated")
                unfinished = unfinished or fault.pos >= len(self._buffer) - 8
                if not unfinished or not self._read_on():
                    line = self._line + self._buffer.count("\n", self._at, fault.pos)
                    raise CorpusError(
                        f"{self._path}, line {line} is not JSON: {fault.msg} (item {count})."
                    ) from fault
            except ValueError as fault:
                raise CorpusError(f"{self._path}, item {count}: {fault}.") from fault
            except RecursionError as fault:
                raise CorpusError(
                    f"{self._path}, item {count} is nested too deeply to be an example."
                ) from fault
