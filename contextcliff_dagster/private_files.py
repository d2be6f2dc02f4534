"""How a file gets on the disk: never half written, and readable by its user alone.

Documents and answers are private, whatever the umask allows; by a setting the folder's group shares
them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.user_files import NO_FILES

GROUP = "CONTEXTCLIFF_STORE_GROUP"


def _shared() -> bool:
    given = os.environ.get(GROUP, "").strip()
    if given not in ("", "0", "1"):
        raise StoreError(
            f"{GROUP} is {given[:40]!r}; set it to 1 to let the folder's group read and write the "
            "store, or leave it out."
        )
    return given == "1"


def file_mode() -> int:
    """Return the mode of new files: 600, or 660 where ``CONTEXTCLIFF_STORE_GROUP`` is 1.

    Raises:
        StoreError: the variable has another value.
    """
    return 0o660 if _shared() else 0o600


def make_folder(path: Path) -> None:
    """Make ``path`` and the folders above it that are missing: 700, or 2770 for a group.

    Raises:
        OSError: it cannot be made.
        StoreError: see `file_mode`.
    """
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_folder(path.parent)
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        path.chmod(0o2770 if _shared() else 0o700)


def make_file(path: Path) -> None:
    """Make an empty file, where there is none; raises like `make_folder`."""
    mode = file_mode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        return
    try:
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def share_with_group(folder: Path) -> None:
    """Where a group shares the store, let it use what is ours in ``folder`` and below.

    SQLite gives no group the right to write, whatever the umask. Raises StoreError as `file_mode`.
    """
    for path in folder.rglob("*") if _shared() else ():
        with suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.getuid() and not path.is_symlink():
                path.chmod(status.st_mode | (0o2070 if path.is_dir() else 0o060))


def hide_from_others(folder: Path) -> None:
    """Take a folder of ours, and so all that is in it, from everybody who may not see new ones."""
    with suppress(OSError):
        status = folder.lstat()
        if status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode):
            folder.chmod(stat.S_IMODE(status.st_mode) & (0o7770 if _shared() else 0o7700))


@contextmanager
def private_umask() -> Iterator[None]:
    """Let other programs' libraries create files with these modes meanwhile, in all threads."""
    before = os.umask(0o007 if _shared() else 0o077)
    try:
        yield
    finally:
        os.umask(before)


_AGAIN = "and run the same command again"
_ELSEWHERE = "point CONTEXTCLIFF_HOME at a writable folder"
_FILE_IN_PLACE_OF_FOLDER = "a file is where a folder is needed; check CONTEXTCLIFF_HOME"
_WRITE_ERRORS = {
    errno.ENOSPC: f"the disk is full; free some space {_AGAIN}",
    errno.EDQUOT: f"the disk quota is used up; free some space {_AGAIN}",
    errno.EFBIG: f"the file may not grow further; raise the limit (ulimit -f) {_AGAIN}",
    errno.EROFS: f"the file system is read-only; {_ELSEWHERE}",
    errno.EACCES: f"permission is denied; {_ELSEWHERE}",
    errno.EPERM: f"permission is denied; {_ELSEWHERE}",
    errno.ENOTDIR: _FILE_IN_PLACE_OF_FOLDER,
    errno.EEXIST: _FILE_IN_PLACE_OF_FOLDER,
    errno.EISDIR: "it is a folder; name a file",
}


def _refuse_special(path: Path) -> None:
    """Renaming over a device or a pipe would replace it, for every program of the machine.

    Raises:
        OSError: there is something at ``path`` that is no regular file.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except ValueError as error:
        raise OSError(errno.EINVAL, "there is a NUL character in its name") from error
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(mode):
        what = NO_FILES.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"it is {what}; name a file", str(path))


@contextmanager
def atomic_path(path: Path, *, private: bool = True) -> Iterator[Path]:
    """A temporary path next to ``path``; renamed over it (after fsync) when the block ends well.

    Readers see the old file or the new one, never a part. ``private``: with the modes of
    `make_file` and `make_folder`, otherwise with those that the umask gives.

    Raises:
        StoreError: the folder cannot be made, or the disk refuses the write.
    """
    temporary = path.parent / f".{path.name[:200]}.{uuid.uuid4().hex}.tmp"
    try:
        _refuse_special(path)
        if private:
            make_folder(path.parent)
            make_file(temporary)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        reason = _WRITE_ERRORS.get(
            error.errno or 0, f"{error.strerror or error}; check CONTEXTCLIFF_HOME"
        )
        raise StoreError(
            f"Cannot write {path}: {reason} (what is measured so far is kept)."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time change files in ``folder``; others wait. No file is left behind.

    Raises:
        OSError: the folder cannot be opened.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a network file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
