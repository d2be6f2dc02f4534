"""A call ledger in a PostgreSQL database, shared by the processes of many machines.

A connection runs the ledger's statements and turns its errors into readable sentences. Statements
whose rows are not needed are sent along with the next one whose rows are: over a network, a call
takes a few round trips, not a dozen.

Writers take turns and write exactly once, over connections that may break. Every transaction begins
by locking one small table, so writers take turns as in SQLite: the facts behind a budget or claim
decision still hold when it is committed.

An owner is a session that holds its own advisory lock; the server frees the lock when the session
ends, for whatever reason.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError, StoreUnreachableError, install_command
from contextcliff_dagster.inference.ledger.backend import (
    TRY_EVERY_S,
    Backend,
    Database,
    Ended,
    Operation,
    run_each,
)
from contextcliff_dagster.inference.ledger.schema import (
    LEDGER_VERSION,
    bring_up_to_date,
    require_version,
    table_names,
)
from contextcliff_dagster.inference.requests.call_plan import utc_now
from contextcliff_dagster.redaction import redact
from contextcliff_dagster.store import DatabaseUrl

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

SCHEMA = "contextcliff"
"""Schema that holds all tables, so that other programs may share the database."""
LOCK_SECONDS = 60
_TOGETHER_BYTES = 4 << 20

# Server and client each notice within half a minute that the other is gone.
_DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "contextcliff",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# A commit must survive a crash of the server.
_SETTINGS = f"""
SET search_path TO {SCHEMA};
SET client_encoding TO 'UTF8';
SET lock_timeout TO '{LOCK_SECONDS}s';
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off';
SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; SET tcp_keepalives_count TO 3;
"""

# PostgreSQL's texts cannot hold U+0000; a model's answer can. Escaped by a character that no text
# needs (it is of the private use area, and escapes itself too), so that every text comes back.
_ESCAPE = "\ue0f0"


def escape(text: str) -> str:
    """Return ``text`` without U+0000; `unescape` is its inverse."""
    if "\0" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, _ESCAPE + "1").replace("\0", _ESCAPE + "0")


def unescape(text: str) -> str:
    """Return the original of an escaped text."""
    if _ESCAPE not in text:
        return text
    return re.sub(f"{_ESCAPE}([01])", lambda match: "\0" if match[1] == "0" else _ESCAPE, text)


@lru_cache(maxsize=1000)
def as_psycopg(sql: str) -> str:
    """Return ``sql`` with psycopg2's placeholders for ``?``; quoted text stays unchanged."""
    return _TOKEN.sub(lambda token: _PLACEHOLDERS.get(token[0], token[0].replace("%", "%%")), sql)


_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|[?%]""")
_PLACEHOLDERS = {"?": "%s", "%": "%%"}
_OPEN: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()
"""Open connections, which a forked child must not keep open."""


class PostgresRows:
    """Rows of a statement, fetched before the next statement is executed."""

    def __init__(self, db: PostgresConnection) -> None:
        self._db = db

    @property
    def rowcount(self) -> int:
        return int(self._db._cursor_for(self).rowcount)

    def fetchone(self) -> Any:
        return self._db._cursor_for(self).fetchone()

    def fetchall(self) -> list[Any]:
        return list(self._db._cursor_for(self).fetchall())


class PostgresConnection:
    """A `backend.Database` over psycopg2, in autocommit mode: transactions are BEGIN and COMMIT.

    psycopg2, because it comes with dagster-postgres; sending statements together replaces the
    pipelines of psycopg 3.

    Raises:
        StoreError: psycopg2 is not installed.
        psycopg2.Error: the server cannot be reached or refuses.
    """

    def __init__(self, url: DatabaseUrl) -> None:
        try:
            import psycopg2
            from psycopg2 import extensions
        except ImportError as error:
            raise StoreError(
                f"The call ledger {url} needs the PostgreSQL driver; install it with "
                f"{install_command('postgres')}."
            ) from error
        url_options = extensions.parse_dsn(url.secret)
        self.raw: Connection = psycopg2.connect(**{**_DEFAULTS, **url_options})
        _OPEN.add(self)
        self.raw.autocommit = True
        self._cursor = self.raw.cursor()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._newest: PostgresRows | None = None
        try:
            self._cursor.execute(_SETTINGS)
            _read_as_sqlite_does(self.raw)
        except BaseException:
            self.close()
            raise

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> PostgresRows:
        """Queue a statement, which runs at the latest when its rows are fetched or at `flush`."""
        values = [escape(value) if isinstance(value, str) else value for value in parameters]
        # Without values, psycopg2 does not look for placeholders.
        statement = self._cursor.mogrify(as_psycopg(sql), values) if values else sql.encode()
        self._pending.append(statement)
        self._pending_bytes += len(statement)
        self._newest = rows = PostgresRows(self)
        if self._pending_bytes > _TOGETHER_BYTES:
            self.flush()
        return rows

    def flush(self) -> None:
        if self._pending:
            together, self._pending = b";\n".join(self._pending), []
            self._pending_bytes = 0
            self._cursor.execute(together)

    def _cursor_for(self, rows: PostgresRows) -> Any:
        if rows is not self._newest:
            raise RuntimeError("Rows must be fetched before the next statement is executed.")
        self.flush()
        return self._cursor

    @property
    def is_lost(self) -> bool:
        return bool(self.raw.closed)

    def rollback(self) -> None:
        """Drop queued statements and undo sent ones, unless a lost connection has undone them."""
        self._pending.clear()
        self._pending_bytes = 0
        with suppress(Exception):
            self._cursor.execute("ROLLBACK")

    def close(self) -> None:
        with suppress(Exception):
            self.raw.close()


def _read_as_sqlite_does(raw: Connection) -> None:
    """Make the connection return values as SQLite does: bytes, plain numbers, texts with U+0000."""
    import psycopg2
    from psycopg2 import extensions as e

    def number(value: Any, _: Any) -> int | float | None:
        return None if value is None else int(value) if "." not in value else float(value)

    def text(value: Any, _: Any) -> str | None:
        return None if value is None else unescape(value)

    def data(value: Any, cursor: Any) -> bytes | None:
        view = psycopg2.BINARY(value, cursor)
        return None if view is None else bytes(view)

    for types in (
        e.new_type((1700,), "LEDGER_NUMBER", number),
        e.new_type((25, 1043), "LEDGER_TEXT", text),
        e.new_type((17,), "LEDGER_BYTES", data),
    ):
        e.register_type(types, raw)


def postgres_error(error: BaseException, url: DatabaseUrl) -> StoreError:
    """Return an error of PostgreSQL or its network as a sentence that never has the password."""
    text = redact(str(error), url.secrets, limit=200)
    code = str(getattr(error, "pgcode", None) or "")
    go_on = "run the same command again; finished answers are kept"
    lower = text.lower()
    if "authentication failed" in lower or "no password supplied" in lower or code == "28P01":
        problem = "the server refuses the user or the password; check them in CONTEXTCLIFF_LEDGER"
    elif code == "3D000" or ("database" in lower and "does not exist" in lower):
        problem = "the server has no such database; create it, or check CONTEXTCLIFF_LEDGER"
    elif code == "42501":
        problem = f"the user lacks a privilege ({text}); grant it CREATE on the database"
    elif code in ("53100", "58030"):
        problem = f"the server's disk is full; free some space there and {go_on}"
    elif code == "25006":
        problem = "the server is read-only (a standby?); use the primary server"
    elif code == "55P03":
        problem = f"another program has locked it; end that program, then {go_on}"
    elif is_lost(error):
        problem = f"the connection failed ({text}); check that the server runs, then {go_on}"
    else:
        problem = f"{text}; check the server's log and {go_on}"
    kind = StoreUnreachableError if is_lost(error) else StoreError
    return kind(f"The call ledger {url} failed: {problem}.")


# A lock or deadlock, too little of something, read-only, cancelled, a disk that fails.
_PASSING = ("25006", "40", "53", "55", "57014", "58")
_WRONG = ("authentication failed", "no password supplied", "does not exist", "translate host")


def may_pass(error: BaseException) -> bool:
    """Return whether the ledger may become usable without any correction."""
    code = str(getattr(error, "pgcode", None) or "")
    # A network fault shows only in the words.
    wrong = any(words in str(error).lower() for words in _WRONG)
    return code.startswith(_PASSING) or (is_lost(error) and not wrong)


def is_lost(error: BaseException) -> bool:
    """Return whether ``error`` concerns the connection, so that a new one may help."""
    import psycopg2

    if isinstance(error, psycopg2.InterfaceError):
        return True
    # The bare class: the network failed in a way that the driver has no class for.
    if (
        not isinstance(error, psycopg2.OperationalError)
        and type(error) is not psycopg2.DatabaseError
    ):
        return False
    # 08: connection; 57P: shutdown, crash, starting up. Without a code: no answer.
    code = error.pgcode or "08"
    return code[:2] == "08" or code[:3] == "57P"


def _close_in_child() -> None:
    # A forked child shares the socket: left open, it would keep a dead parent's lock; closed in
    # order, it would end the parent's session. So something else takes the socket's number.
    for db in list(_OPEN):
        with suppress(Exception):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, db.raw.fileno(), inheritable=False)
            os.close(nothing)


os.register_at_fork(after_in_child=_close_in_child)


_TURN_SECONDS = 8
"""Seconds to wait for a lock at a time, so that a process that wants to end can do so soon."""

# A lock's 64-bit key is shown as two halves.
HOLDERS = """
SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.classid::bigint = ? AND l.objid::bigint = ?
"""


def halves(owner: str) -> tuple[int, int]:
    """Return the two halves of an owner's advisory lock: the first 64 bits of its id."""
    key = int(owner[:16], 16)
    return key >> 32, key & 0xFFFFFFFF


_NOTE_BATCH = """
INSERT INTO batches VALUES (?, ?, ?)
ON CONFLICT (owner) DO UPDATE SET batch = excluded.batch, at = excluded.at
"""
_READ_ONLY = "25006"
_FORGOTTEN_AFTER = timedelta(days=1)
"""Age at which a dead writer's row is useless, which is far longer than its patience."""


class PostgresLedger(Backend):
    """This process's sessions with the ledger database: one for writing, one for reading.

    The writing one is also its owner.

    Raises:
        StoreError: it cannot be reached or written, or has a newer version (then unchanged).
    """

    def __init__(self, url: DatabaseUrl, *, patient: bool = True) -> None:
        self._url = url
        self._batch = 0
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
            self.owner = uuid.uuid4().hex
            self._db = self._connect()
            super().__init__(str(self._url))
        except BaseException:
            self._reader.close()
            raise

    def close(self) -> None:
        """Finish the submitted operations, then end both sessions."""
        super().close()
        with suppress(Exception):  # a row left behind loses no answer
            before = (datetime.now(UTC) - _FORGOTTEN_AFTER).isoformat(timespec="microseconds")
            self._db.execute("DELETE FROM batches WHERE owner = ? OR at < ?", (self.owner, before))
            self._db.flush()
        self._db.close()
        self._reader.close()

    def _explained(self, error: Exception) -> StoreError | None:
        import psycopg2

        return postgres_error(error, self._url) if isinstance(error, psycopg2.Error) else None

    def _connect(self) -> PostgresConnection:
        db = PostgresConnection(self._url)
        try:
            db.execute(f"SET lock_timeout TO '{_TURN_SECONDS}s'")
            # A dead session of ours that the server has not noticed would keep the lock.
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
        """Run one transaction; retry if the server refuses, over a new connection if need be.

        A transaction records its batch number in the writer's own row. If the reply to its commit
        never came, that row shows whether it was done, so nothing is done twice or wrongly reported
        as stored. (After a crash a server may reuse transaction numbers that it had not yet written
        down, so `txid_status` would not do.)
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
                # A new connection may reach the server that replaced a failed one.
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
        """Run the operations separately, because the database refuses the values of one of them."""
        ended: Ended = []
        for operation in operations:
            try:
                ended += self._transact([operation])
            except Exception as error:
                ended.append((None, self._in_words(error)))
        return ended

    def _begin(self) -> int | None:
        """Begin a transaction when it is our turn; return the number of our last committed batch.

        Once the table is locked, no earlier session of ours can still commit.
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

    def has_open(self, owner: str) -> bool:
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
        return []  # the server checks its own files: data checksums, pg_amcheck

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
    """Create missing tables and upgrade older ones, all or nothing.

    Raises:
        StoreError: the ledger has a newer version, or the database is not in UTF-8.
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
    # Not to_regclass: its answer may come from a session cache that is older than the tables,
    # which another process made while we waited for its lock.
    sql = "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'ledger_version'"
    table_row = db.execute(sql, (SCHEMA,)).fetchone()
    return int(db.execute("SELECT version FROM ledger_version").fetchone()[0]) if table_row else 0


_TYPES = (
    (r"INTEGER PRIMARY KEY", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
    (r"INTEGER", "BIGINT"),
    (r"REAL", "DOUBLE PRECISION"),
    (r"BLOB", "BYTEA"),
    (r"TEXT", 'TEXT COLLATE "C"'),  # sorted by code points, as SQLite sorts
    (r"WITHOUT ROWID", ""),
)


class _InPostgres:
    """Adapter that executes the schema's SQLite statements in PostgreSQL."""

    def __init__(self, db: PostgresConnection) -> None:
        self._db = db

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        if sql.lstrip().startswith(("CREATE TABLE", "ALTER TABLE")):
            for theirs, ours in _TYPES:
                sql = re.sub(rf"\b{theirs}\b", ours, sql)
        return self._db.execute(sql, parameters)
