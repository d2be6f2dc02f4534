"""UTF-8 lines of a file with their numbers, read as bytes so that a bad byte has an address."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from contextcliff_dagster.contracts import CorpusError

__all__ = ["text_lines", "text_pieces"]

_LONGEST_PIECE = 1 << 18
_UTF16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line with its own line end) of a UTF-8 file; a byte order mark is dropped.

    Raises:
        CorpusError: the file is binary or not UTF-8, with the line; or cannot be read.
    """
    return _read(path, -1)


def text_pieces(path: Path) -> Iterator[tuple[int, str]]:
    """As :func:`text_lines`, but a line above 256 KiB comes in several pieces.

    JSON is often written as one line, however large the file.
    """
    return _read(path, _LONGEST_PIECE)


def _read(path: Path, longest: int) -> Iterator[tuple[int, str]]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    number, before = 1, 0  # bytes of the line that were given to the decoder
    try:
        with path.open("rb") as file:
            while True:
                piece = file.readline(longest)
                held = len(decoder.getstate()[0]) if before else 0
                if not piece and not held:
                    return
                ends = piece.endswith(b"\n") or longest < 0 or len(piece) < longest
                if number == 1 and before == 0:
                    if piece.startswith(_UTF16_OR_32):
                        raise CorpusError(f"{path} is UTF-16 or UTF-32; save it as UTF-8.")
                    piece = piece.removeprefix(codecs.BOM_UTF8)
                if b"\x00" in piece:
                    raise CorpusError(
                        f"{path}, line {number} holds NUL bytes: this is a binary file; "
                        "give JSON Lines, JSON, CSV, TSV or Parquet."
                    )
                try:
                    if ends and not held:
                        yield number, piece.decode()
                    else:
                        yield number, decoder.decode(piece, final=ends)
                except UnicodeDecodeError as fault:
                    raise CorpusError(
                        f"{path}, line {number} is not UTF-8 "
                        f"(byte {before - held + fault.start + 1} of the line "
                        f"is 0x{fault.object[fault.start]:02x}); save the file as UTF-8."
                    ) from fault
                before = 0 if ends else before + len(piece)
                number += piece.endswith(b"\n")
    except OSError as fault:
        raise CorpusError(f"{path} cannot be read: {fault.strerror or fault}.") from fault
