"""A call ledger in one SQLite file, shared by the processes of one machine."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.backend import (
    Backend,
    Database,
    Ended,
    Operation,
    run_each,
)
from contextcliff_dagster.inference.ledger.owners import Owner, is_alive, remove_dead
from contextcliff_dagster.inference.ledger.schema import (
    LEDGER_VERSION,
    prepare,
    require_version,
    table_names,
)
from contextcliff_dagster.private_files import make_file, make_folder
from contextcliff_dagster.store import atomic_path

T = TypeVar("T")

_RESERVE_BYTES = 4 << 20
_LITTLE_BYTES = 1 << 16
BUSY_SECONDS = 60.0
_TURN_SECONDS = 2.0
"""Longest single wait for another process, in seconds, so that this process can end soon."""


class SqliteLedger(Backend):
    """This process's connections to the ledger file: one for reading, one for writing.

    Raises:
        StoreError: it cannot be written, is damaged, or has a newer version (then unchanged).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reading = threading.Lock()
        self._reserve = path.with_name(path.name + ".reserve")
        with self._explaining():
            make_folder(path.parent)
            _refuse_newer(path)
            owners = _owners(path)
            make_folder(owners)
            make_file(owners / "opening")
            make_file(path)  # the log and the index next to it get the same mode
            with (owners / "opening").open("a") as handle:
                # Processes that create the same ledger at once take turns.
                fcntl.flock(handle, fcntl.LOCK_EX)
                self._reader = connect(path)
                prepare(self._reader, path)
                self._right = Owner(owners)
            remove_dead(owners)
            self._writer = connect(path)
        self.owner = self._right.id
        self.missing_reserve()
        super().__init__(str(path))

    def close(self) -> None:
        """Finish the submitted operations, give up the right to claim calls, and disconnect."""
        super().close()
        self._writer.close()
        self._right.close()
        self._reader.close()

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path)

    def missing_reserve(self) -> int:
        # Reserved space: on a full disk it is released, so that paid answers can be stored.
        try:
            if not self._reserve.exists() or self._reserve.stat().st_size < _RESERVE_BYTES:
                make_file(self._reserve)
                self._reserve.write_bytes(bytes(_RESERVE_BYTES))
        except OSError:
            with suppress(OSError):
                self._reserve.unlink(missing_ok=True)
            return _RESERVE_BYTES
        self.disk_was_full = False
        return 0

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._explaining(), self._reading:
            return self._reader.execute(sql, parameters).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        try:
            with closing(self._connect()) as db:
                db.execute("BEGIN")
                yield db
                db.execute("ROLLBACK")
        except sqlite3.Error as error:  # an OSError is the caller's, maybe writing a file
            raise store_error(error, self.path) from error

    def has_open(self, owner: str) -> bool:
        return is_alive(_owners(self.path), owner)

    def sizes(self) -> dict[str, int]:
        files = (self.path.with_name(self.path.name + suffix) for suffix in ("", "-wal"))
        size = sum(file.stat().st_size for file in files if file.exists())
        # dbstat counts the pages of tables and indexes; not every build of SQLite has it.
        if not self.read("SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'"):
            return {"other": size}
        rows = self.read(
            "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name"
            " WHERE s.aggregate GROUP BY 1"
        )
        sizes = {name: int(pages) for name, pages in rows if name in table_names()}
        return {**sizes, "other": max(size - sum(sizes.values()), 0)}

    def integrity_errors(self) -> list[str]:
        rows = self.read("PRAGMA integrity_check")
        foreign = self.read("PRAGMA foreign_key_check")
        return [row[0] for row in rows if row[0] != "ok"] + [
            f"row {row[1]} of {row[0]} refers to a missing row of {row[2]}" for row in foreign
        ]

    def backup(self, file: Path) -> None:
        if file.exists() and file.samefile(self.path):
            raise StoreError(f"{file} is the call ledger itself; choose another file.")
        with (
            self._explaining(),
            atomic_path(file) as temporary,
            closing(self._connect()) as db,
            closing(connect(temporary)) as copy,
        ):
            db.backup(copy)  # in one step: other processes may write meanwhile
            copy.execute("PRAGMA journal_mode=DELETE")  # one file that is whole

    def compact(self) -> None:
        with self._explaining(), closing(connect(self.path)) as db:
            # The log holds old pages too; VACUUM writes the file anew from the rows alone.
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _explained(self, error: Exception) -> StoreError | None:
        if isinstance(error, sqlite3.Error | OSError):
            return store_error(error, self.path)
        return None

    def _transact(self, operations: Sequence[Operation]) -> Ended:
        while True:
            try:
                ended = self._transaction(operations)
            except sqlite3.OperationalError as error:
                if "full" in str(error).lower() and not self.disk_was_full:
                    self.disk_was_full = True
                    self._reserve.unlink(missing_ok=True)
                elif not self._try_again():
                    raise
            else:
                self._refusing_since = None
                return ended

    def _transaction(self, operations: Sequence[Operation]) -> Ended:
        db = self._writer
        db.execute(f"PRAGMA busy_timeout = {self._wait_for_turn_s(_TURN_SECONDS) * 1000:.0f}")
        db.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have brought the file to a newer version meanwhile.
            require_version(db.execute("PRAGMA user_version").fetchone()[0], self.path)
            ended = run_each(db, operations, sqlite3.Error)
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            raise
        return ended


class ReadOnlySqlite(SqliteLedger):
    """A ledger file in a read-only folder, which is only read and gives no claims.

    Raises:
        StoreError: it is damaged, or has a version that this program cannot read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.owner = path, str(path), ""
        self._reading, self._copy = threading.Lock(), ExitStack()
        self._uri = f"{path.absolute().as_uri()}?mode=ro"
        with self._explaining():
            try:
                self._reader = self._connect()
                version = self._reader.execute("PRAGMA user_version").fetchone()[0]
            except sqlite3.OperationalError:
                # SQLite must write an index of the log, but cannot do so here.
                self._uri = self._without_log()
                self._reader = self._connect()
                version = self._reader.execute("PRAGMA user_version").fetchone()[0]
            require_version(version, path, older=True)
            if version < LEDGER_VERSION:
                raise StoreError(
                    f"The call ledger {path} has an older version ({version}) and cannot be "
                    "upgraded in a read-only folder; copy it to another folder."
                )

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )

    def _without_log(self) -> str:
        """Return the file's address if it has no log, else the address of a copy with its log."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if not log.exists() or not log.stat().st_size:
            return f"{self.path.absolute().as_uri()}?immutable=1"
        folder = Path(self._copy.enter_context(tempfile.TemporaryDirectory(prefix="contextcliff-")))
        for file in (self.path, log):
            shutil.copyfile(file, folder / file.name)
        return (folder / self.path.name).as_uri()

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        raise StoreError(f"The call ledger {self.path} is read-only here.")

    def close(self) -> None:
        self._reader.close()
        self._copy.close()


def _owners(path: Path) -> Path:
    return path.with_name(f"{path.name}.owners")


def _refuse_newer(path: Path) -> None:
    """Check the version without a lock, a log or any other trace in the file."""
    if not path.is_file() or not path.stat().st_size:
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
    require_version(version, path, older=True)


def connect(path: Path, busy_s: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Return a connection in autocommit mode that several threads may use in turn."""
    connection = sqlite3.connect(
        path, timeout=busy_s, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def store_error(error: BaseException, path: Path) -> StoreError:
    """Return the error to show for a fault of SQLite or the file system."""
    text = str(error).lower()
    go_on = "run the same command again; finished answers are kept"
    elsewhere = "set CONTEXTCLIFF_HOME to another folder"
    if "full" in text or "no space" in text or ("disk i/o" in text and _is_full(path.parent)):
        problem = f"the disk is full; free some space and {go_on}"
    elif "readonly" in text or "read-only" in text or "permission" in text:
        problem = f"it cannot be written (read-only); give write permission or {elsewhere}"
    elif isinstance(error, FileExistsError | NotADirectoryError) or "unable to open" in text:
        problem = f"it cannot be opened; check the folder and its permissions, or {elsewhere}"
    elif "locked" in text or "busy" in text:
        problem = f"another process has locked it; end that process, then {go_on}"
    elif "not a database" in text or "malformed" in text:
        problem = (
            "it is damaged or not a ledger; restore a backup, or move it away and rebuild it from "
            "the store's tables (`contextcliff ledger restore`)"
        )
    else:
        problem = f"{error}; check the disk and {go_on}"
    return StoreError(f"The call ledger {path} failed: {problem}.")


def _is_full(folder: Path) -> bool:
    """Return whether the disk is full, which SQLite reports as an I/O error for mapped memory."""
    try:
        return shutil.disk_usage(folder).free < _LITTLE_BYTES
    except OSError:
        return False
