"""A call ledger in a PostgreSQL database, shared by the processes of many machines.

An owner is a session that holds an advisory lock of its own; the server frees the lock when the
session ends, however it ends.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.backend import TRY_EVERY_S, Database
from contextcliff_dagster.inference.ledger.postgres_connection import (
    SCHEMA,
    PostgresConnection,
    is_lost,
    may_pass,
)
from contextcliff_dagster.inference.ledger.postgres_writer import HOLDERS, PostgresWriter, halves
from contextcliff_dagster.inference.ledger.schema import (
    LEDGER_VERSION,
    bring_up_to_date,
    require_version,
    table_names,
)
from contextcliff_dagster.store import DatabaseUrl


class PostgresLedger(PostgresWriter):
    """The database as this process has it open: the writing session, and one that reads.

    Raises:
        StoreError: it cannot be reached or written, or is of a newer version (and then untouched).
    """

    def __init__(self, url: DatabaseUrl, *, patient: bool = True) -> None:
        self._url = url
        self._reading = threading.Lock()
        self.be_patient()
        if not patient:
            self.hurry()
        with self._explaining():
            while True:
                try:
                    self._open()
                    return
                except StoreError:
                    raise
                except Exception as error:
                    if not may_pass(error) or not self._try_again():
                        raise

    def _open(self) -> None:
        self._reader = PostgresConnection(self._url)
        try:
            prepare(self._reader, self._url)
            super().__init__(self._url, uuid.uuid4().hex)
        except BaseException:
            self._reader.close()
            raise

    def close(self) -> None:
        """Finish what was submitted, then end both sessions."""
        super().close()
        self._reader.close()

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        patient_until = time.monotonic() + self.patience_s
        with self._explaining(), self._reading:
            while True:
                try:
                    if self._reader.is_lost:
                        self._reader = PostgresConnection(self._url)
                    return self._reader.execute(sql, parameters).fetchall()
                except Exception as error:
                    self._reader.rollback()
                    patient = time.monotonic() < patient_until and not self._hurried.is_set()
                    if not is_lost(error) or not patient:
                        raise
                    self._reader.close()
                    self._hurried.wait(TRY_EVERY_S)

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        with self._explaining(), closing(PostgresConnection(self._url)) as db:
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            yield db
            db.rollback()

    def is_alive(self, owner: str) -> bool:
        # An id that is none of ours has no lock.
        if not re.fullmatch(r"[0-9a-f]{32}", owner):
            return False
        return bool(self.read(HOLDERS, halves(owner)))

    def sizes(self) -> dict[str, int]:
        rows = self.read(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relnamespace = ?::regnamespace AND relkind = 'r'",
            (SCHEMA,),
        )
        return {name: int(size) for name, size in rows if name in table_names()}

    def integrity_errors(self) -> list[str]:
        return []  # its files are the server's own affair: see data checksums and pg_amcheck

    def backup(self, file: Path) -> None:
        raise StoreError(
            f"The call ledger {self._url} is in PostgreSQL; back it up with "
            f"`pg_dump --schema {SCHEMA} --file {file}`."
        )

    def compact(self) -> None:
        with self._explaining(), closing(PostgresConnection(self._url)) as db:
            for table in table_names():
                db.execute(f"VACUUM (FULL, ANALYZE) {table}")
                db.flush()


# The same steps as in SQLite make the tables, in PostgreSQL's words.
_MAKING = 0x636F6E74657874  # the advisory lock under which the tables are made


def prepare(db: PostgresConnection, url: DatabaseUrl) -> None:
    """Create the tables where there are none, bring older ones up to date, all or nothing.

    Raises:
        StoreError: a ledger of a newer version, or a database that is not in UTF-8.
        psycopg2.Error: the server refuses.
    """
    if _version(db) == LEDGER_VERSION:
        return
    try:
        db.execute("BEGIN")
        db.execute("SELECT pg_advisory_xact_lock(?)", (_MAKING,)).fetchall()
        version = _version(db)  # another process may have been faster
        if not version:
            encoding = db.execute("SHOW server_encoding").fetchone()[0]
            if encoding != "UTF8":
                raise StoreError(
                    f"The call ledger {url} is in a database with the encoding {encoding}, which "
                    "cannot hold every text; create one with `CREATE DATABASE ... ENCODING 'UTF8' "
                    "TEMPLATE template0` and name it in CONTEXTCLIFF_LEDGER."
                )
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            db.execute("CREATE TABLE ledger_version (version BIGINT NOT NULL)")
            db.execute("INSERT INTO ledger_version VALUES (0)")
        require_version(version, url, older=True)
        # A process that writes with the older program ends first, and is refused afterwards.
        db.execute("LOCK TABLE ledger_version IN ACCESS EXCLUSIVE MODE")
        bring_up_to_date(_InPostgres(db), version)
        db.execute("UPDATE ledger_version SET version = ?", (LEDGER_VERSION,))
        db.execute("COMMIT")
        db.flush()
    except BaseException:
        db.rollback()
        raise


def _version(db: PostgresConnection) -> int:
    # Not to_regclass: it may answer from the session's cache what was so before another process,
    # for whose lock we have waited, made the tables.
    sql = "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'ledger_version'"
    there = db.execute(sql, (SCHEMA,)).fetchone()
    return int(db.execute("SELECT version FROM ledger_version").fetchone()[0]) if there else 0


_TYPES = (
    (r"INTEGER PRIMARY KEY", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
    (r"INTEGER", "BIGINT"),
    (r"REAL", "DOUBLE PRECISION"),
    (r"BLOB", "BYTEA"),
    (r"TEXT", 'TEXT COLLATE "C"'),  # sorted by code points, as SQLite sorts
    (r"WITHOUT ROWID", ""),
)


class _InPostgres:
    """Takes the schema's statements in SQLite's words and executes them in PostgreSQL's."""

    def __init__(self, db: PostgresConnection) -> None:
        self._db = db

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        if sql.lstrip().startswith(("CREATE TABLE", "ALTER TABLE")):
            for theirs, ours in _TYPES:
                sql = re.sub(rf"\b{theirs}\b", ours, sql)
        return self._db.execute(sql, parameters)
