"""A call ledger in a PostgreSQL database, shared by the processes of many machines.

An owner is a session that holds an advisory lock of its own; the server frees the lock when the
session ends, however it ends.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.postgres_connection import (
    SCHEMA,
    is_lost,
    open_connection,
    postgres_error,
)
from contextcliff_dagster.inference.ledger.postgres_schema import prepare
from contextcliff_dagster.inference.ledger.postgres_writer import (
    HOLDERS,
    PATIENCE_S,
    TRY_EVERY_S,
    PostgresWriter,
    halves,
)
from contextcliff_dagster.inference.ledger.schema import table_names
from contextcliff_dagster.store import DatabaseUrl

T = TypeVar("T")


class PostgresLedger:
    """The database as this process has it open (a `database.Backend`).

    Raises:
        StoreError: it cannot be reached or written, or is of a newer version (and then untouched).
    """

    disk_was_full = False

    def __init__(self, url: DatabaseUrl) -> None:
        self._url, self.name = url, str(url)
        self._reading = threading.Lock()
        self.owner = uuid.uuid4().hex
        with self._in_words():
            self._reader = open_connection(url)
            try:
                prepare(self._reader, url)
                self._writer = PostgresWriter(url, self.owner)
            except BaseException:
                self._reader.close()
                raise

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except Exception as fault:
            import psycopg2

            if isinstance(fault, psycopg2.Error):
                raise postgres_error(fault, self._url) from fault
            raise

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        return self._writer.submit(operation)

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        patient_until = time.monotonic() + PATIENCE_S
        with self._in_words(), self._reading:
            while True:
                try:
                    if self._reader.is_lost:
                        self._reader = open_connection(self._url)
                    return self._reader.execute(sql, parameters).fetchall()
                except Exception as fault:
                    self._reader.rollback()
                    if not is_lost(fault) or time.monotonic() > patient_until:
                        raise
                    self._reader.close()
                    time.sleep(TRY_EVERY_S)

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        with self._in_words(), closing(open_connection(self._url)) as db:
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

    def faults(self) -> list[str]:
        return []  # its files are the server's own affair: see data checksums and pg_amcheck

    def compact(self) -> None:
        with self._in_words(), closing(open_connection(self._url)) as db:
            for table in table_names():
                db.execute(f"VACUUM (FULL, ANALYZE) {table}")
                db.flush()

    def close(self) -> None:
        self._writer.close()
        self._reader.close()
