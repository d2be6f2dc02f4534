"""Files of the user, opened so that none of them can hold a command up.

Belongs here: telling a file from what merely has a name (a named pipe, a device, a folder), bounds
on what is read whole, and JSON of any depth. What is wrong is always an `OSError` whose
``strerror`` completes "cannot be read: ..."; the rooms turn it into their own sentence.
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
"""What has a name and is no regular file."""

MOST_BYTES = 64 << 20
"""Of a file that is read whole and is neither documents nor weights."""


def open_file(path: str | Path) -> io.BufferedReader:
    """The regular file at ``path``, opened for reading in binary.

    A pipe or a device is refused before it is read: it may have no end, or nothing may ever come.

    Raises:
        OSError: it is no regular file, or it cannot be opened.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe waits until somebody writes to it.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except ValueError as error:
        raise OSError(errno.EINVAL, "there is a NUL character in its name") from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # what opening one reports
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
    """Return if ``path`` is a regular file that may be read; raises as `open_file`.

    For libraries that open files by themselves.
    """
    open_file(path).close()


def read_file(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """All bytes of the regular file at ``path``.

    Raises:
        OSError: as `open_file`, or there are more than ``most`` of them.
    """
    with open_file(path) as file:
        size, content = os.fstat(file.fileno()).st_size, bytearray()
        # Piece by piece: read(n) takes room for n bytes, however few there are.
        while max(size, len(content)) <= most and (piece := file.read(_PIECE)):
            content += piece
    if max(size, len(content)) > most:
        limit = f"{most >> 20} MB" if most >= 1 << 20 else f"{most >> 10} kB"
        raise OSError(errno.EINVAL, f"it is larger than {limit}, the most it may have", str(path))
    return bytes(content)


def loads(content: bytes | str, **options: Any) -> Any:
    """The JSON value in ``content``, with the options of `json.loads`.

    Raises:
        ValueError: there is none, or it is nested so deeply that nothing could use it.
    """
    try:
        return json.loads(content, **options)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
