"""UTF-8 text of a file, by lines or chunks, read as bytes so that errors name the line."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import ContextCliffError, CorpusError
from contextcliff_dagster.user_files import open_file

_CHUNK = 1 << 19
_LONGEST_LINE = 1 << 28
UTF16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line with its own line end) of a UTF-8 file, less a byte order mark.

    Raises:
        CorpusError: the file is binary or not UTF-8, with the line; or cannot be read.
    """
    try:
        with open_file(path) as file:
            if b"\x00" in (start := file.peek()) and not start.startswith(UTF16_OR_32):
                raise binary(path, 1 + start[: start.index(b"\x00")].count(b"\n"), CorpusError)
            for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
                if len(line) == _LONGEST_LINE:
                    raise _longer(path, number, line)
                if number == 1:
                    line = _without_mark(path, line, CorpusError)
                try:
                    if b"\x00" in line:
                        raise binary(path, number, CorpusError)
                    yield number, line.decode()
                except UnicodeDecodeError as error:
                    raise _not_utf8(path, number, error.start + 1, error, CorpusError) from error
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from error


def text_chunks(path: Path, file: Any, error: type[ContextCliffError]) -> Iterator[str]:
    """Yield the text of the binary ``file`` in pieces, less a byte order mark.

    JSON is often written as one line, however large the file. ``error`` is raised as
    :func:`text_lines` raises CorpusError, with the same addresses.
    """
    decode = (decoder := codecs.getincrementaldecoder("utf-8")()).decode
    line, before = 1, 0  # where a chunk begins: the line, and how many bytes of it came before
    chunk = _without_mark(path, file.read(_CHUNK), error)
    while True:
        if (nul := chunk.find(b"\x00")) >= 0:
            raise binary(path, line + chunk.count(b"\n", 0, nul), error)
        held = len(decoder.getstate()[0])
        try:
            yield decode(chunk, not chunk)
        except UnicodeDecodeError as bad:
            read = bad.object[: bad.start]
            if b"\n" in read:
                before, held = 0, read.rfind(b"\n") + 1
            place = before - held + bad.start + 1
            raise _not_utf8(path, line + read.count(b"\n"), place, bad, error) from bad
        if not chunk:
            return
        line += chunk.count(b"\n")
        ended = chunk.rfind(b"\n") + 1
        before = len(chunk) - ended if ended else before + len(chunk)
        chunk = file.read(_CHUNK)


def _without_mark(path: Path, first: bytes, error: type[ContextCliffError]) -> bytes:
    if first.startswith(UTF16_OR_32):
        raise error(f"{path} is UTF-16 or UTF-32; save it as UTF-8.")
    return first.removeprefix(codecs.BOM_UTF8)


def binary(path: Path, line: int, error: type[ContextCliffError]) -> ContextCliffError:
    """The error that there is a NUL byte in ``line``."""
    return error(
        f"{path}, line {line} holds NUL bytes: this is a binary file; "
        "give JSON Lines, JSON, CSV, TSV or Parquet."
    )


def _longer(path: Path, line: int, start: bytes) -> ContextCliffError:
    if b"\x00" in start:
        return binary(path, line, CorpusError)
    return CorpusError(
        f"{path}, line {line} is longer than {_LONGEST_LINE >> 20} MB, which no example is; write "
        "one example a line."
    )


def _not_utf8(
    path: Path, line: int, place: int, bad: UnicodeDecodeError, error: type[ContextCliffError]
) -> ContextCliffError:
    return error(
        f"{path}, line {line} is not UTF-8 (byte {place} of the line "
        f"is 0x{bad.object[bad.start]:02x}); save the file as UTF-8."
    )
