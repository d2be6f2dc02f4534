"""Who uses a study: runs share its folder, and a renaming has it alone."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.private_files import make_folder
from contextcliff_dagster.store import Store


class Renaming(NamedTuple):
    """A renaming that was begun."""

    old: str
    new: str

    @property
    def command(self) -> str:
        """What finishes it."""
        return f"contextcliff studies rename {self.old} {self.new}"


def renaming_note(store: Store) -> Path:
    """The file that is there from the beginning of a renaming to its end."""
    return store.root / "_renaming.json"


def begun_renaming(store: Store) -> Renaming | None:
    """The renaming that was begun in ``store`` and has not ended."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads(renaming_note(store).read_bytes())
        return Renaming(str(note["old"]), str(note["new"]))
    return None


@contextmanager
def study_used(store: Store, study: str) -> Iterator[None]:
    """Keep ``study`` from being renamed meanwhile; the lock ends with the process, however it ends.

    Raises:
        StoreError: it is being renamed, or that was interrupted.
    """
    with _lock(store, study, fcntl.LOCK_SH) as held:
        begun = begun_renaming(store)
        if begun is not None and study in begun:
            raise StoreError(
                f"Study {begun.old!r} is being renamed to {begun.new!r}; where that was "
                f"interrupted, `{begun.command}` finishes it."
            )
        if not held:
            raise StoreError(
                f"Study {study!r} is being renamed; go on under its new name once that has ended."
            )
        yield


@contextmanager
def study_alone(store: Store, study: str) -> Iterator[None]:
    """Have ``study`` alone for a while.

    Raises:
        StoreError: a run is using it.
    """
    with _lock(store, study, fcntl.LOCK_EX) as held:
        if not held:
            raise StoreError(
                f"Study {study!r} has a run in progress or is already being renamed; wait for that "
                "to finish, then try again."
            )
        yield


@contextmanager
def _lock(store: Store, study: str, mode: int) -> Iterator[bool]:
    """Whether ``study`` is locked as ``mode`` says; so it is where nothing can be made for that.

    An empty folder for the lock alone: a new study has none yet while its first run prepares it.
    """
    folder = store.root / "_locks" / study
    try:
        if store.root.is_dir():  # only reading makes no store
            make_folder(folder)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        held = True
        try:
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            held = False
        except OSError:  # a network file system without locks
            pass
        yield held
    finally:
        os.close(handle)
