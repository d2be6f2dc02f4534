"""Writing to PostgreSQL: in turns, exactly once, over connections that may break.

Every transaction begins by locking one small table, so that writers take turns as they do in
SQLite: what a budget or a claim was judged by still holds when it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.backend import Backend, Ended, Operation, run_each
from contextcliff_dagster.inference.ledger.postgres_connection import (
    PostgresConnection,
    is_lost,
    postgres_error,
)
from contextcliff_dagster.inference.ledger.schema import require_version
from contextcliff_dagster.inference.requests.outcome import utc_now
from contextcliff_dagster.store import DatabaseUrl

_TURN_SECONDS = 8
"""How long to wait for a lock at a time: who wants to end is not kept longer."""

# A lock's 64-bit key is shown as two halves.
HOLDERS = """
SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.classid::bigint = ? AND l.objid::bigint = ?
"""


def halves(owner: str) -> tuple[int, int]:
    """The two halves of an owner's advisory lock: the first 64 bits of its id."""
    key = int(owner[:16], 16)
    return key >> 32, key & 0xFFFFFFFF


_NOTE_BATCH = """
INSERT INTO batches VALUES (?, ?, ?)
ON CONFLICT (owner) DO UPDATE SET batch = excluded.batch, at = excluded.at
"""
_READ_ONLY = "25006"
_FORGOTTEN_AFTER = timedelta(days=1)
"""When the row of a writer that died is of no more use: far longer than its patience."""


class PostgresWriter(Backend):
    """The one writing session of a process, which is also its owner."""

    def __init__(self, url: DatabaseUrl, owner: str) -> None:
        self.owner = owner
        self._batch = 0
        self._url = url
        self._db = self._connect()
        super().__init__(str(url))

    def close(self) -> None:
        """Finish what was submitted, then disconnect."""
        super().close()
        with suppress(Exception):  # no answer is lost with a row that stays
            before = (datetime.now(UTC) - _FORGOTTEN_AFTER).isoformat(timespec="microseconds")
            self._db.execute("DELETE FROM batches WHERE owner = ? OR at < ?", (self.owner, before))
            self._db.flush()
        self._db.close()

    def _explained(self, error: Exception) -> StoreError | None:
        import psycopg2

        return postgres_error(error, self._url) if isinstance(error, psycopg2.Error) else None

    def _connect(self) -> PostgresConnection:
        db = PostgresConnection(self._url)
        try:
            db.execute(f"SET lock_timeout TO '{_TURN_SECONDS}s'")
            # A session of ours that the server has not missed yet would keep the lock.
            db.execute(
                f"SELECT pg_terminate_backend(pid) FROM ({HOLDERS}) held"
                " WHERE pid <> pg_backend_pid()",
                halves(self.owner),
            )
            key = int.from_bytes(bytes.fromhex(self.owner[:16]), signed=True)
            db.execute("SELECT pg_advisory_lock(?)", (key,)).fetchall()
        except BaseException:
            db.close()
            raise
        return db

    def _transact(self, operations: Sequence[Operation]) -> Ended:
        """Run one transaction; again where the server refuses, over a new connection if need be.

        A transaction notes the number of its batch in the writer's own row: where the answer to its
        commit never came, that row says whether it was done, so that nothing is done twice and
        nothing is called kept that is not. (A server that crashed gives transaction numbers out
        again that it had not yet written down, so `txid_status` would not do.)
        """
        import psycopg2

        self._batch += 1
        ended: Ended = []
        while True:
            try:
                if self._db.is_lost:
                    self._db = self._connect()
                if self._begin() == self._batch:
                    self._db.rollback()
                    return ended
                ended = run_each(self._db, operations, psycopg2.Error)
                self._db.execute(_NOTE_BATCH, (self.owner, self._batch, utc_now()))
                self._db.execute("COMMIT")
                self._db.flush()
                self._refusing_since = None
                return ended
            except (psycopg2.DataError, psycopg2.IntegrityError):
                self._db.rollback()
                if len(operations) == 1:
                    raise
                return self._one_by_one(operations)
            except psycopg2.Error as error:
                # Behind another connection there may be the server that took a standby's place.
                if is_lost(error) or error.pgcode == _READ_ONLY:
                    self._db.close()
                else:
                    self._db.rollback()
                if not self._try_again():
                    raise
            except BaseException:
                self._db.rollback()
                raise

    def _one_by_one(self, operations: Sequence[Operation]) -> Ended:
        """One operation has values that the database refuses: the others are not to suffer."""
        ended: Ended = []
        for operation in operations:
            try:
                ended += self._transact([operation])
            except Exception as error:
                ended.append((None, self._in_words(error)))
        return ended

    def _begin(self) -> int | None:
        """Begin a transaction in turn; the number of this writer's last batch that was committed.

        Once the table is locked no earlier session of ours is at a commit any more.
        """
        wait_ms = max(self._wait_for_turn_s(_TURN_SECONDS) * 1000, 1)  # 0: without end
        self._db.execute(f"BEGIN; SET LOCAL lock_timeout TO '{wait_ms:.0f}ms'")
        self._db.execute("LOCK TABLE ledger_version IN EXCLUSIVE MODE")
        version, batch = self._db.execute(
            "SELECT v.version, b.batch FROM ledger_version v LEFT JOIN batches b ON b.owner = ?",
            (self.owner,),
        ).fetchone()
        require_version(version, self._url)
        return None if batch is None else int(batch)
