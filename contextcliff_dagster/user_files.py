"""Opening of user files so that none of them can block a command.

Belongs here: telling regular files from named pipes, devices and folders, limits on file size, and
JSON of any depth. Every failure is an `OSError` whose ``strerror`` completes "cannot be read: ...";
callers turn it into their own messages.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from pathlib import Path
from typing import Any

_PIECE = 1 << 20

NO_FILES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""Descriptions of file types that are not regular files."""

MOST_BYTES = 64 << 20
"""Maximum size of a file that is read whole, other than documents and weights."""


def open_file(path: str | Path) -> io.BufferedReader:
    """Open the regular file at ``path`` for binary reading.

    Pipes and devices are refused before they are read, because reading them may never end.

    Raises:
        OSError: ``path`` is not a regular file, or it cannot be opened.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe waits until somebody writes to it.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except ValueError as error:
        raise OSError(errno.EINVAL, "there is a NUL character in its name") from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # opening a socket reports this
            raise OSError(errno.EINVAL, "it is a socket, not a file", str(path)) from error
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            what = NO_FILES.get(stat.S_IFMT(mode), "something else")
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(number, f"it is {what}, not a file", str(path))
        return io.BufferedReader(io.FileIO(descriptor))
    except BaseException:
        os.close(descriptor)
        raise


def require_file(path: str | Path) -> None:
    """Raise as `open_file` unless ``path`` is a readable regular file.

    Call it before handing the path to a library that opens files itself.
    """
    open_file(path).close()


def read_file(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """Return all bytes of the regular file at ``path``.

    Raises:
        OSError: as `open_file`, or the file has more than ``most`` bytes.
    """
    with open_file(path) as file:
        size, content = os.fstat(file.fileno()).st_size, bytearray()
        # In pieces: read(n) allocates n bytes, however small the file is.
        while max(size, len(content)) <= most and (piece := file.read(_PIECE)):
            content += piece
    if max(size, len(content)) > most:
        limit = f"{most >> 20} MB" if most >= 1 << 20 else f"{most >> 10} kB"
        raise OSError(errno.EINVAL, f"it is larger than the limit of {limit}", str(path))
    return bytes(content)


def loads(content: bytes | str, **options: Any) -> Any:
    """Return the JSON value in ``content``; ``options`` go to `json.loads`.

    Raises:
        ValueError: ``content`` is not JSON, or it is nested too deeply.
    """
    try:
        return json.loads(content, **options)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
