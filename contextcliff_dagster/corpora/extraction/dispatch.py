"""The text of one file, by the reader of its kind."""

from __future__ import annotations

import errno
import os
import re
import stat
from importlib import import_module
from pathlib import Path

from contextcliff_dagster.corpora.extraction.decoding import decoded, tidied
from contextcliff_dagster.corpora.extraction.file_type import kind_of
from contextcliff_dagster.corpora.extraction.kinds_and_limits import Limits, RefusedError
from contextcliff_dagster.user_files import NO_FILES

_READERS = frozenset(("pdf", "docx", "epub", "html"))
"""Kinds with a module of their name in `formats/`, loaded at first use."""

_ADDRESS = re.compile(r" ?\b(?:at )?0x[0-9a-fA-F]+")
"""Of an object, in a parser's message: it differs between runs."""


def read_file(path: bytes, limits: Limits) -> tuple[str, str, list[str]]:
    """Text, kind and notes of a file, see `kinds_and_limits.Extracted`.

    Raises:
        RefusedError: there is no text to be had.
        MemoryError: it takes more memory than there may be.
    """
    data = file_bytes(path, limits)
    notes: list[str] = []
    kind = "any kind of text"
    try:
        kind = kind_of(data, os.fsdecode(path), notes)
        if kind in _READERS:
            reader = import_module(f"contextcliff_dagster.corpora.extraction.formats.{kind}")
            text = reader.read(data, limits, notes)
        else:
            text = decoded(data, notes)
        return tidied(text, notes), kind, notes
    except (RefusedError, MemoryError):
        raise
    except RecursionError as error:
        raise RefusedError(f"cannot be read as {kind}: it is nested too deeply") from error
    except Exception as error:
        # Parsers fail in ways of their own; whatever it is, it is this file's.
        line = _ADDRESS.sub("", " ".join(str(error).split())).rstrip(".")
        name = type(error).__name__
        reason = f"{name}: {line[:150]}" if line else name
        raise RefusedError(f"cannot be read as {kind}: {reason}") from error


_PIECE = 1 << 20
_REASONS = {
    errno.ENOENT: "is no longer there",
    errno.EACCES: "may not be read: permission denied",
    errno.EPERM: "may not be read: not permitted",
    errno.ELOOP: "is a symbolic link that leads round in a circle",
    errno.ENXIO: "is a socket",  # what opening one reports
}


def file_bytes(path: bytes, limits: Limits) -> bytes:
    """All bytes of a file that may not be one, may change, or may be larger than memory.

    Raises:
        RefusedError: it is none, is not there, is too large, or changed while it was read.
    """
    descriptor = -1
    try:
        # Without O_NONBLOCK, opening a named pipe waits until it is written to.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, flags)
        return _read(descriptor, limits)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror or error}")
        if error.errno == errno.ENOENT and Path(os.fsdecode(path)).is_symlink():
            reason = "is a symbolic link to nothing"
        raise RefusedError(reason) from error
    except ValueError as error:  # there is a NUL in its name
        raise RefusedError("is no longer there") from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _read(descriptor: int, limits: Limits) -> bytes:
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise RefusedError(f"is {NO_FILES.get(stat.S_IFMT(before.st_mode), 'no regular file')}")
    most = int(limits.file_mb * 1e6)
    if before.st_size > most:
        raise RefusedError(
            f"is {before.st_size / 1e6:,.0f} MB large, more than the {limits.file_mb:,g} MB allowed"
        )
    data = bytearray()
    # Read up to the end: files of /proc report a size of 0, and others grow meanwhile.
    while piece := os.read(descriptor, _PIECE):
        data += piece
        if len(data) > most:
            raise RefusedError(f"grew beyond the {limits.file_mb:,g} MB allowed while it was read")
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or (
        before.st_size and len(data) != before.st_size
    ):
        raise RefusedError("was written to while it was read")
    return bytes(data)
