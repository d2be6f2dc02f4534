"""Writing to PostgreSQL: in turns, exactly once, over connections that may break.

Every transaction begins by locking one small table, so that writers take turns as they do in
SQLite: what a budget or a claim was judged by still holds when it is committed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from contextcliff_dagster.inference.ledger.group_commit import (
    Ended,
    GroupCommit,
    Operation,
    run_each,
)
from contextcliff_dagster.inference.ledger.postgres_connection import (
    PostgresConnection,
    is_lost,
    open_connection,
    postgres_error,
)
from contextcliff_dagster.inference.ledger.schema import insist_on_version
from contextcliff_dagster.store import DatabaseUrl

PATIENCE_S = 30.0
"""How long a lost connection is tried again before the run ends: a server restarts in less."""
TRY_EVERY_S = 0.25


def lock_key(owner: str) -> int:
    """The advisory lock of an owner: the first 64 bits of its id, signed."""
    return int.from_bytes(bytes.fromhex(owner[:16]), signed=True)


# A lock's 64-bit key is shown as two halves.
HOLDERS = """
SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.classid::bigint = ? AND l.objid::bigint = ?
"""


def halves(owner: str) -> tuple[int, int]:
    key = int(owner[:16], 16)
    return key >> 32, key & 0xFFFFFFFF


class PostgresWriter(GroupCommit):
    """The one writing session of a process, which is also its owner."""

    def __init__(self, url: DatabaseUrl, owner: str) -> None:
        self._url, self._owner = url, owner
        self._db = self._connect()
        self._patience_s = PATIENCE_S
        super().__init__()

    def close(self) -> None:
        super().close()
        self._db.close()

    def _explained(self, fault: Exception) -> Exception:
        import psycopg2

        return postgres_error(fault, self._url) if isinstance(fault, psycopg2.Error) else fault

    def _connect(self) -> PostgresConnection:
        db = open_connection(self._url)
        try:
            # A session of ours that the server has not missed yet would keep the lock.
            db.execute(
                f"SELECT pg_terminate_backend(pid) FROM ({HOLDERS}) held"
                " WHERE pid <> pg_backend_pid()",
                halves(self._owner),
            )
            db.execute("SELECT pg_advisory_lock(?)", (lock_key(self._owner),)).fetchall()
        except BaseException:
            db.close()
            raise
        return db

    def _transact(self, operations: Sequence[Operation]) -> Ended:
        """One transaction; where the connection breaks, again over a new one.

        Whether a commit whose answer never came was done is asked of the server by the
        transaction's number, so that nothing is ever done twice.
        """
        import psycopg2

        patient_until = time.monotonic() + self._patience_s
        number: int | None = None
        ended: Ended = []
        while True:
            try:
                if self._db.is_lost:
                    self._db = self._connect()
                    if number is not None and self._was_committed(number):
                        return ended
                number = None
                number = self._begin()
                ended = run_each(self._db, operations, psycopg2.Error)
                self._db.execute("COMMIT")
                self._db.flush()
                self._patience_s = PATIENCE_S
                return ended
            except (psycopg2.DataError, psycopg2.IntegrityError):
                self._db.rollback()
                if len(operations) == 1:
                    raise
                return self._one_by_one(operations)
            except BaseException as fault:
                if not self._db.is_lost and not is_lost(fault):
                    self._db.rollback()
                    raise
                self._db.close()
                if time.monotonic() > patient_until or not is_lost(fault):
                    self._patience_s = 0.0  # what is still waiting need not wait as long
                    raise
                time.sleep(TRY_EVERY_S)

    def _one_by_one(self, operations: Sequence[Operation]) -> Ended:
        """One operation has values that the database refuses: the others are not to suffer."""
        ended: Ended = []
        for operation in operations:
            try:
                ended += self._transact([operation])
            except Exception as fault:
                ended.append((None, self._explained(fault)))
        return ended

    def _begin(self) -> int:
        self._db.execute("BEGIN")
        self._db.execute("LOCK TABLE ledger_version IN EXCLUSIVE MODE")
        row = self._db.execute("SELECT version, txid_current() FROM ledger_version").fetchone()
        insist_on_version(row[0], self._url)
        return int(row[1])

    def _was_committed(self, number: int) -> bool:
        while True:
            state = self._db.execute("SELECT txid_status(?)", (number,)).fetchone()[0]
            if state != "in progress":
                return bool(state == "committed")
            time.sleep(TRY_EVERY_S)
