"""Atomic writes of private files: never half written, readable only by their owner.

Documents and answers are private whatever the umask allows; a setting shares them with the folder's
group.
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
    setting = os.environ.get(GROUP, "").strip()
    if setting not in ("", "0", "1"):
        raise StoreError(
            f"{GROUP} is {setting[:40]!r}; set it to 1 to let the folder's group read and write "
            "the store, or leave it out."
        )
    return setting == "1"


def file_mode() -> int:
    """Return the mode of new files: 600, or 660 if ``CONTEXTCLIFF_STORE_GROUP`` is 1.

    Raises:
        StoreError: the variable has another value.
    """
    return 0o660 if _shared() else 0o600


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parents with mode 700, or 2770 if a group shares the store.

    Raises:
        OSError: a folder cannot be created.
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
    """Create an empty file unless it exists; raises like `make_folder`."""
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
    """Give a group that shares the store access to the user's files in ``folder`` and below.

    SQLite never makes files group-writable, whatever the umask. Raises StoreError as `file_mode`.
    """
    for path in folder.rglob("*") if _shared() else ():
        with suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.getuid() and not path.is_symlink():
                path.chmod(status.st_mode | (0o2070 if path.is_dir() else 0o060))


def hide_from_others(folder: Path) -> None:
    """Remove other users' access to a folder the user owns, and thus to everything in it."""
    with suppress(OSError):
        status = folder.lstat()
        if status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode):
            folder.chmod(stat.S_IMODE(status.st_mode) & (0o7770 if _shared() else 0o7700))


@contextmanager
def private_umask() -> Iterator[None]:
    """Set the umask within the block so that third-party libraries create private files too."""
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
    errno.EISDIR: "it is a folder; choose a file",
}


def _refuse_special(path: Path) -> None:
    """Refuse to replace a device or pipe, which a rename would remove for every program.

    Raises:
        OSError: ``path`` exists and is not a regular file.
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
        raise OSError(errno.EINVAL, f"it is {what}; choose a file", str(path))


@contextmanager
def atomic_path(path: Path, *, private: bool = True) -> Iterator[Path]:
    """Yield a temporary path, renamed over ``path`` after fsync if the block succeeds.

    Readers see the old file or the new one, never a part of it. If ``private``, files get the modes
    of `make_file` and `make_folder`; otherwise the umask decides.

    Raises:
        StoreError: the folder cannot be created, or the file cannot be written.
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
    """Lock ``folder`` within the block; other processes wait. No lock file is left behind.

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
