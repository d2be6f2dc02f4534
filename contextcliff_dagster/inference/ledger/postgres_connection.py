"""One connection to PostgreSQL that takes the ledger's statements, and its errors for people.

Statements whose rows are not asked for are sent along with the next one whose are: over a network,
a call takes a few round trips and not a dozen.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError, StoreUnreachableError
from contextcliff_dagster.redaction import redact
from contextcliff_dagster.store import DatabaseUrl

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

SCHEMA = "contextcliff"
"""All tables are in a schema of their own, so that a database may be shared with other programs."""
LOCK_SECONDS = 60
_TOGETHER_BYTES = 4 << 20

# A server that is gone, and for the server a client that is gone, is noticed within half a minute.
_DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "contextcliff",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# A commit that a crash of the server may undo is none.
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
    """``text`` without U+0000; `unescape` is its inverse."""
    if "\0" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, _ESCAPE + "1").replace("\0", _ESCAPE + "0")


def unescape(text: str) -> str:
    """The text that was escaped."""
    if _ESCAPE not in text:
        return text
    return re.sub(f"{_ESCAPE}([01])", lambda match: "\0" if match[1] == "0" else _ESCAPE, text)


@lru_cache(maxsize=1000)
def as_psycopg(sql: str) -> str:
    """``sql`` with psycopg2's placeholders for ``?``; quoted text stays as it is."""
    return _TOKEN.sub(lambda token: _PLACEHOLDERS.get(token[0], token[0].replace("%", "%%")), sql)


_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|[?%]""")
_PLACEHOLDERS = {"?": "%s", "%": "%%"}


_OPEN: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()
"""A forked child must not keep these open."""


class PostgresRows:
    """What a statement gave, fetched at the latest before the next statement is executed."""

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
                "`pip install 'contextcliff-dagster[postgres]'`."
            ) from error
        given = extensions.parse_dsn(url.secret)
        self.raw: Connection = psycopg2.connect(**{**_DEFAULTS, **given})
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
        """Run a statement, at the latest when its rows are asked for or at `flush`."""
        values = [escape(value) if isinstance(value, str) else value for value in parameters]
        # Without values psycopg2 looks for no placeholders.
        whole = self._cursor.mogrify(as_psycopg(sql), values) if values else sql.encode()
        self._pending.append(whole)
        self._pending_bytes += len(whole)
        self._newest = rows = PostgresRows(self)
        if self._pending_bytes > _TOGETHER_BYTES:
            self.flush()
        return rows

    def flush(self) -> None:
        """Send what is waiting."""
        if self._pending:
            together, self._pending = b";\n".join(self._pending), []
            self._pending_bytes = 0
            self._cursor.execute(together)

    def _cursor_for(self, rows: PostgresRows) -> Any:
        if rows is not self._newest:
            raise RuntimeError("Rows are to be fetched before the next statement is executed.")
        self.flush()
        return self._cursor

    @property
    def is_lost(self) -> bool:
        """Whether the server is not at the other end any more."""
        return bool(self.raw.closed)

    def rollback(self) -> None:
        """Forget what is waiting, undo what was sent; a lost connection has done so itself."""
        self._pending.clear()
        self._pending_bytes = 0
        with suppress(Exception):
            self._cursor.execute("ROLLBACK")

    def close(self) -> None:
        """Disconnect."""
        with suppress(Exception):
            self.raw.close()


def _read_as_sqlite_does(raw: Connection) -> None:
    """Values as SQLite gives them: bytes, plain numbers, texts with U+0000."""
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
    """The sentence for an error of PostgreSQL or of the way there; never with the password."""
    text = redact(str(error), url.secrets, limit=200)
    code = str(getattr(error, "pgcode", None) or "")
    go_on = "run the same command again, everything measured is kept"
    lower = text.lower()
    if "authentication failed" in lower or "no password supplied" in lower or code == "28P01":
        what = "the server refuses the user or the password; check them in CONTEXTCLIFF_LEDGER"
    elif code == "3D000" or ("database" in lower and "does not exist" in lower):
        what = "the server has no such database; create it, or check CONTEXTCLIFF_LEDGER"
    elif code == "42501":
        what = f"the user may not do that ({text}); grant it CREATE on the database"
    elif code in ("53100", "58030"):
        what = f"the server's disk is full; free some space there and {go_on}"
    elif code == "25006":
        what = "the server is read-only (a standby?); name the one that can be written"
    elif code == "55P03":
        what = f"another program has locked it; end that one, then {go_on}"
    elif is_lost(error):
        what = f"the connection cannot be had ({text}); see that the server runs, then {go_on}"
    else:
        what = f"{text}; check the server's log and {go_on}"
    kind = StoreUnreachableError if is_lost(error) else StoreError
    return kind(f"The call ledger {url} failed: {what}.")


# A lock or deadlock, too little of something, read-only, cancelled, a disk that fails.
_PASSING = ("25006", "40", "53", "55", "57014", "58")
_WRONG = ("authentication failed", "no password supplied", "does not exist", "translate host")


def may_pass(error: BaseException) -> bool:
    """Whether the ledger may be opened later though nobody corrects anything."""
    code = str(getattr(error, "pgcode", None) or "")
    # Of what is wrong on the way there only the words tell.
    wrong = any(words in str(error).lower() for words in _WRONG)
    return code.startswith(_PASSING) or (is_lost(error) and not wrong)


def is_lost(error: BaseException) -> bool:
    """Whether ``error`` is of the connection, so that another one may do."""
    import psycopg2

    if isinstance(error, psycopg2.InterfaceError):
        return True
    # The bare class: the way there failed in a manner that the driver has no class for.
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
