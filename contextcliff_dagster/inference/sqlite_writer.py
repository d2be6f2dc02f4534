"""One thread that writes to SQLite, and commits what has gathered meanwhile in one go.

A commit with ``synchronous=FULL`` costs a flush of the disk, whatever its size; while one is under
way the next operations queue up and share the next. A future is done only after its commit.
"""

from __future__ import annotations

import queue
import shutil
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from contextcliff_dagster.contracts import StoreError

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], Any]

_BATCH = 256
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


class Writer:
    """Runs operations, each as a whole or not at all, in the order of `submit`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._queue: queue.SimpleQueue[tuple[Operation, Future[Any]] | None] = queue.SimpleQueue()
        self._reserve = path.with_name(path.name + ".reserve")
        self._make_reserve()
        self.disk_was_full = False
        self._thread = threading.Thread(target=self._work, name="ledger-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run ``operation`` in a transaction; the future is done once it is on the disk.

        The future raises what the operation raised, or StoreError.
        """
        future: Future[T] = Future()
        # Once submitted it will be done: a waiter that is cancelled must not undo a paid answer.
        future.set_running_or_notify_cancel()
        self._queue.put((operation, future))
        return future

    def close(self) -> None:
        """Finish what was submitted, then close the connection."""
        self._queue.put(None)
        self._thread.join()
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

    def _work(self) -> None:
        while True:
            batch = [self._queue.get()]
            while len(batch) < _BATCH:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            jobs = [job for job in batch if job is not None]
            if jobs:
                self._commit(jobs)
            if None in batch:
                return

    def _commit(self, jobs: list[tuple[Operation, Future[Any]]]) -> None:
        try:
            try:
                outcomes = self._transaction(jobs)
            except sqlite3.Error as fault:
                if "full" not in str(fault).lower():
                    raise
                self.disk_was_full = True
                self._reserve.unlink(missing_ok=True)
                outcomes = self._transaction(jobs)
        except Exception as fault:
            error = (
                store_error(fault, self._path)
                if isinstance(fault, (sqlite3.Error, OSError))
                else fault
            )
            for _, future in jobs:
                future.set_exception(error)
            return
        for (_, future), (value, error_) in zip(jobs, outcomes, strict=True):
            if error_ is not None:
                future.set_exception(error_)
            else:
                future.set_result(value)

    def _transaction(
        self, jobs: list[tuple[Operation, Future[Any]]]
    ) -> list[tuple[Any, Exception | None]]:
        db = self._connection
        outcomes: list[tuple[Any, Exception | None]] = []
        db.execute("BEGIN IMMEDIATE")
        try:
            for operation, _ in jobs:
                db.execute("SAVEPOINT job")
                try:
                    outcomes.append((operation(db), None))
                except sqlite3.Error:
                    raise  # the disk, not the job: nothing of this batch counts
                except Exception as fault:
                    db.execute("ROLLBACK TO job")
                    outcomes.append((None, fault))
                db.execute("RELEASE job")
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            raise
        return outcomes
