"""Owners of claimed calls: processes whose existence the kernel confirms.

An owner is one open ledger of one process. It holds an exclusive `flock` on a file of its own;
when the process ends, however it ends, the kernel frees the lock, and any other process can see
by trying the lock that the owner is gone. No heartbeat, no timeout, no stale lock.
"""

from __future__ import annotations

import fcntl
import os
import uuid
import weakref
from contextlib import suppress
from pathlib import Path

from contextcliff_dagster.private_files import make_file, make_folder

_OPEN: weakref.WeakSet[Owner] = weakref.WeakSet()


class Owner:
    """The right to claim calls, held until `close` or the end of the process.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.folder = folder
        self.id = uuid.uuid4().hex
        self._path = folder / f"{self.id}.lock"
        while True:
            make_file(self._path)
            try:
                fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:  # a cleaner took it for a dead owner's
                continue
            # Waits only while another process is looking whether we are alive.
            fcntl.flock(fd, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                # Between create and lock a cleaner may have taken our file for a dead owner's.
                if self._path.stat().st_ino == os.fstat(fd).st_ino:
                    break
            os.close(fd)
        self._fd: int | None = fd
        _OPEN.add(self)

    def close(self) -> None:
        """Give up the right; the owner counts as gone from here on."""
        if self._fd is not None:
            with suppress(OSError):
                self._path.unlink()
            self._drop()

    def _drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def is_alive(folder: Path, owner_id: str) -> bool:
    """Whether the owner's process still lives and has its ledger open."""
    path = folder / f"{owner_id}.lock"
    try:
        # Network file systems lock only what may be written.
        fd = os.open(path, (os.O_RDWR if os.access(path, os.W_OK) else 0) | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove_dead(folder: Path) -> None:
    """Delete the files of owners that are gone. A missing file says the same as a free lock."""
    with suppress(OSError):
        for path in folder.glob("*.lock"):
            if not is_alive(folder, path.stem):
                with suppress(OSError):
                    path.unlink()


def _close_in_child() -> None:
    # A forked child shares the lock; left open, it would keep a dead parent looking alive.
    for owner in list(_OPEN):
        owner._drop()


os.register_at_fork(after_in_child=_close_in_child)
