"""A call ledger in one SQLite file, shared by the processes of one machine."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.owners import Owner, is_alive, remove_dead
from contextcliff_dagster.inference.ledger.schema import insist_on_version, prepare, table_names
from contextcliff_dagster.inference.sqlite_writer import Writer, connect, store_error

T = TypeVar("T")


class SqliteLedger:
    """The file as this process has it open (a `database.Backend`).

    Raises:
        StoreError: it cannot be written, is damaged, or is of a newer version (and then untouched).
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self._reading = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _refuse_newer(path)
            owners = path.with_name(path.name + ".owners")
            owners.mkdir(exist_ok=True)
            with _one_at_a_time(owners / "opening"):
                self._reader = connect(path)
                prepare(self._reader, path)
                self._owner = Owner(owners)
            remove_dead(owners)
            self._writer = Writer(path)
        except (sqlite3.Error, OSError) as fault:
            raise store_error(fault, path) from fault
        self.owner = self._owner.id

    @property
    def disk_was_full(self) -> bool:
        return self._writer.disk_was_full

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        return self._writer.submit(operation)

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._reading:
                return self._reader.execute(sql, parameters).fetchall()
        except sqlite3.Error as fault:
            raise store_error(fault, self.path) from fault

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        try:
            with closing(connect(self.path)) as db:
                db.execute("BEGIN")
                yield db
                db.execute("ROLLBACK")
        except sqlite3.Error as fault:
            raise store_error(fault, self.path) from fault

    def is_alive(self, owner: str) -> bool:
        return is_alive(self._owner.folder, owner)

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

    def faults(self) -> list[str]:
        rows = self.read("PRAGMA integrity_check")
        foreign = self.read("PRAGMA foreign_key_check")
        return [row[0] for row in rows if row[0] != "ok"] + [
            f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there"
            for row in foreign
        ]

    def compact(self) -> None:
        try:
            with closing(connect(self.path)) as db:
                # The log holds old pages too; VACUUM writes the file anew from the rows alone.
                db.execute("VACUUM")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as fault:
            raise store_error(fault, self.path) from fault

    def close(self) -> None:
        self._writer.close()
        self._owner.close()
        self._reader.close()


def _refuse_newer(path: Path) -> None:
    """Look at the version without a lock, a log or any other trace in the file."""
    if not path.is_file() or not path.stat().st_size:
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
    insist_on_version(version, path, older=True)


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Two processes that make the same ledger at the same moment do so one after the other."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
