"""Writing to a SQLite file, and what its faults mean for people."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.group_commit import (
    Ended,
    GroupCommit,
    Operation,
    run_each,
)
from contextcliff_dagster.inference.ledger.schema import insist_on_version

_RESERVE_BYTES = 4 << 20
_LITTLE_BYTES = 1 << 16
BUSY_SECONDS = 60.0


def connect(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode, for several threads one after the other."""
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def store_error(fault: BaseException, path: Path) -> StoreError:
    """The sentence for a fault of SQLite or the file system."""
    text = str(fault).lower()
    go_on = "run the same command again, everything measured is kept"
    elsewhere = "set CONTEXTCLIFF_HOME to another folder"
    if "full" in text or "no space" in text or ("disk i/o" in text and _is_full(path.parent)):
        what = f"the disk is full; free some space and {go_on}"
    elif "readonly" in text or "read-only" in text or "permission" in text:
        what = f"it cannot be written (read-only); give write permission or {elsewhere}"
    elif isinstance(fault, FileExistsError | NotADirectoryError) or "unable to open" in text:
        what = f"it cannot be opened; check the folder and its permissions, or {elsewhere}"
    elif "locked" in text or "busy" in text:
        what = f"it was locked for {BUSY_SECONDS:.0f} s; end the other process, then {go_on}"
    elif "not a database" in text or "malformed" in text:
        what = "it is damaged or no ledger; restore it from a backup, or move it away to start anew"
    else:
        what = f"{fault}; check the disk and {go_on}"
    return StoreError(f"The call ledger {path} failed: {what}.")


def _is_full(folder: Path) -> bool:
    """Whether the disk is full, which SQLite calls an I/O error where it maps memory."""
    try:
        return shutil.disk_usage(folder).free < _LITTLE_BYTES
    except OSError:
        return False


class Writer(GroupCommit):
    """The one writing connection of a process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._reserve = path.with_name(path.name + ".reserve")
        self._make_reserve()
        self.disk_was_full = False
        super().__init__()

    def close(self) -> None:
        """Finish what was submitted, then close the connection."""
        super().close()
        self._connection.close()

    def _make_reserve(self) -> None:
        # Space kept back: on a full disk it is given up, so that answers already paid can be
        # stored.
        with suppress(OSError):
            if not self._reserve.exists():
                try:
                    self._reserve.write_bytes(bytes(_RESERVE_BYTES))
                except OSError:
                    self._reserve.unlink(missing_ok=True)

    def _explained(self, fault: Exception) -> Exception:
        if isinstance(fault, sqlite3.Error | OSError):
            return store_error(fault, self._path)
        return fault

    def _transact(self, operations: Sequence[Operation]) -> Ended:
        try:
            return self._transaction(operations)
        except sqlite3.Error as fault:
            if "full" not in str(fault).lower():
                raise
            self.disk_was_full = True
            self._reserve.unlink(missing_ok=True)
            return self._transaction(operations)

    def _transaction(self, operations: Sequence[Operation]) -> Ended:
        db = self._connection
        db.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have brought the file to a newer version meanwhile.
            insist_on_version(db.execute("PRAGMA user_version").fetchone()[0], self._path)
            ended = run_each(db, operations, sqlite3.Error)
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            raise
        return ended
