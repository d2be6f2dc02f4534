"""Large JSON without holding it: the members of one object, or the rows of a file, in turn."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.corpora.readers.json_stream import JsonStream
from contextcliff_dagster.score_files.row_parsers import BOM, json_lines
from contextcliff_dagster.score_files.unpacking import opened

MOST_BYTES = 256 << 20
"""No single value of a log (a sample, a line) may be larger; what is, was made to be."""

_BUFFER = 1 << 20
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


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of JSON Lines, or of one JSON array.

    Raises:
        ScoreFileError: a row is no object, or too large.
    """
    with io.BufferedReader(opened(path), _BUFFER) as file:
        while (first := file.peek(1)[:1]) and first in b" \t\r\n" + BOM:
            file.read(1)
        if first == b"[":
            items: Iterator[Any] = (item for _, item in walk(path, file, ()))
        else:
            items = json_lines(path, _bounded_lines(path, file))
        for row, item in enumerate(items, start=1):
            if not isinstance(item, dict):
                raise ScoreFileError(f"{path}, row {row} is not a JSON object.")
            yield item


def _bounded_lines(path: Path, file: io.BufferedReader) -> Iterator[bytes]:
    row = 0
    while line := file.readline(MOST_BYTES + 1):
        row += 1
        if len(line) > MOST_BYTES:
            raise ScoreFileError(
                f"{path}, row {row} is longer than {MOST_BYTES >> 20} MB, which no answer is."
            )
        yield line
