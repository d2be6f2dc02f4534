"""UTF-8 lines of a file with their numbers, read as bytes so that a bad byte has an address."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from contextcliff_dagster.contracts import CorpusError

__all__ = ["text_lines"]

_UTF16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line with its own line end) of a UTF-8 file; a byte order mark is dropped.

    Raises:
        CorpusError: the file is binary or not UTF-8, with the line; or cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    if line.startswith(_UTF16_OR_32):
                        raise CorpusError(f"{path} is UTF-16 or UTF-32; save it as UTF-8.")
                    line = line.removeprefix(codecs.BOM_UTF8)
                if b"\x00" in line:
                    raise CorpusError(
                        f"{path}, line {number} holds NUL bytes: this is a binary file; "
                        "give JSON Lines, JSON, CSV, TSV or Parquet."
                    )
                try:
                    yield number, line.decode()
                except UnicodeDecodeError as fault:
                    raise CorpusError(
                        f"{path}, line {number} is not UTF-8 (byte {fault.start + 1} of the line "
                        f"is 0x{line[fault.start]:02x}); save the file as UTF-8."
                    ) from fault
    except OSError as fault:
        raise CorpusError(f"{path} cannot be read: {fault.strerror or fault}.") from fault
