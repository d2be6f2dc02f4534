"""The call ledger: the one truth about what was asked, what it cost, and what came back.

Every attempt is committed before its request is sent and every answer before it is counted, so
that a crash at any moment loses no finished call and pays none twice. Several processes may share
one ledger: a call belongs to the owner that claimed it for as long as that owner lives.
"""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from contextcliff_dagster.inference import ledger_reads
from contextcliff_dagster.inference.budget import Budget, Spend
from contextcliff_dagster.inference.claims import Owner, is_alive, remove_dead
from contextcliff_dagster.inference.ledger_schema import prepare
from contextcliff_dagster.inference.outcome import Failure, Orphan, Outcome, utc_now
from contextcliff_dagster.inference.sqlite_writer import Writer, connect, store_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contextcliff_dagster.inference.calls import PlannedCall
    from contextcliff_dagster.inference.recipe import Prompt

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose money and whose serving identity a call is about."""

    study: str
    campaign: str
    model: str
    identity_hash: str


@dataclass(frozen=True, slots=True)
class Begun:
    """May the call be sent? ``send``: yes, as ``attempt_id``. ``finished``: it has an outcome.
    ``held``: ``owner`` is at it."""

    state: Literal["send", "finished", "held"]
    attempt_id: int = 0
    owner: str = ""


class Ledger:
    """One process's door to the ledger file; a context manager. Open one per run."""

    def __init__(
        self, path: Path, owner: Owner, writer: Writer, reader: sqlite3.Connection
    ) -> None:
        self.path, self._owner, self._writer, self._reader = path, owner, writer, reader
        self._reading = threading.Lock()
        self._closed = False
        self._known_documents: set[str] = set()

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Open the ledger at ``path``, made anew where there is none.

        Raises:
            StoreError: it cannot be written, is damaged, or is of a newer version.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            owners = path.with_name(path.name + ".owners")
            owners.mkdir(exist_ok=True)
            with _one_at_a_time(owners / "opening"):
                reader = connect(path)
                prepare(reader, path)
                owner = Owner(owners)
            remove_dead(owners)
            return cls(path, owner, Writer(path), reader)
        except (sqlite3.Error, OSError) as fault:
            raise store_error(fault, path) from fault

    def close(self) -> None:
        """Commit what was submitted, give up all claims, close the file."""
        if self._closed:
            return
        self._closed = True
        owner = self._owner.id
        self._writer.submit(lambda db: db.execute("DELETE FROM claims WHERE owner = ?", (owner,)))
        self._writer.close()
        self._owner.close()
        self._reader.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- writing -------------------------------------------------------------------------------

    def submit(self, operation: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run ``operation`` in a write transaction; done once it is on the disk."""
        return self._writer.submit(operation)

    def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """`submit`, waited for."""
        return self.submit(operation).result()

    def begin(
        self,
        call: PlannedCall,
        prompt: Prompt,
        scope: Scope,
        reserve: Spend,
        budget: Budget,
        *,
        repeat: bool = False,
    ) -> Future[Begun]:
        """Claim ``call``, reserve what it may cost and note the attempt, all before it is sent.

        With ``repeat`` the call is our own and another attempt of it starts.

        The future raises BudgetError (nothing noted) or StoreError.
        """
        texts = self._texts(call)
        me = self._owner.id

        def operation(db: sqlite3.Connection) -> Begun:
            if self._writer.disk_was_full:
                raise store_error(OSError("no space left"), self.path)
            now = utc_now()
            if not repeat:
                if db.execute(
                    "SELECT 1 FROM results WHERE call_key = ?", (call.call_key,)
                ).fetchone():
                    return Begun("finished")
                row = db.execute(
                    "SELECT owner FROM claims WHERE call_key = ?", (call.call_key,)
                ).fetchone()
                if row and row[0] != me:
                    return Begun("held", owner=row[0])
            self._reserve(db, scope, reserve, budget)
            self._describe(db, call, prompt, scope, texts, now)
            db.execute("INSERT OR IGNORE INTO claims VALUES (?, ?, ?)", (call.call_key, me, now))
            cursor = db.execute(
                "INSERT INTO attempts (call_key, owner, study, campaign, model, started_at, reserved_usd, reserved_tokens)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    call.call_key,
                    me,
                    scope.study,
                    scope.campaign,
                    scope.model,
                    now,
                    reserve.usd,
                    reserve.tokens,
                ),
            )
            return Begun("send", attempt_id=int(cursor.lastrowid or 0))

        return self._remember(call, self.submit(operation))

    def finish(
        self, attempt_id: int, call_key: str, outcome: Outcome, charge: Spend
    ) -> Future[None]:
        """Keep the outcome of a sent call, settle what was reserved, give up the claim."""

        def operation(db: sqlite3.Connection) -> None:
            _keep(db, call_key, outcome)
            _settle(db, attempt_id, charge)
            db.execute("DELETE FROM claims WHERE call_key = ?", (call_key,))

        return self.submit(operation)

    def fail(
        self, attempt_id: int, call_key: str, failure: Failure, charge: Spend, *, release: bool
    ) -> Future[None]:
        """Note why an attempt brought no answer; with ``release`` the claim is given up."""

        def operation(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    attempt_id,
                    call_key,
                    failure.kind,
                    failure.maybe_paid,
                    failure.status,
                    failure.final,
                    failure.message,
                    utc_now(),
                ),
            )
            _settle(db, attempt_id, charge)
            if release:
                db.execute("DELETE FROM claims WHERE call_key = ?", (call_key,))

        return self.submit(operation)

    def keep_unsent(
        self, call: PlannedCall, prompt: Prompt, scope: Scope, outcome: Outcome
    ) -> Future[None]:
        """Keep the outcome of a call that was judged without sending it (context overflow)."""
        texts = self._texts(call)

        def operation(db: sqlite3.Connection) -> None:
            self._describe(db, call, prompt, scope, texts, utc_now())
            _keep(db, call.call_key, outcome)

        return self._remember(call, self.submit(operation))

    def release(self, call_key: str) -> Future[Any]:
        """Give up our claim on a call that will not be sent again."""
        me = self._owner.id
        return self.submit(
            lambda db: db.execute(
                "DELETE FROM claims WHERE call_key = ? AND owner = ?", (call_key, me)
            )
        )

    def release_dead(self, owner: str) -> bool:
        """Free the claims of ``owner`` if its process is gone. True if they are free."""
        if is_alive(self._owner.folder, owner):
            return False
        self.write(lambda db: db.execute("DELETE FROM claims WHERE owner = ?", (owner,)))
        return True

    def _texts(self, call: PlannedCall) -> bytes | None:
        """The document compressed, unless this process has stored it already."""
        if call.example.document_id in self._known_documents:
            return None
        import pyarrow as pa

        return bytes(pa.Codec("zstd").compress(call.document.encode(), asbytes=True))

    def _describe(
        self,
        db: sqlite3.Connection,
        call: PlannedCall,
        prompt: Prompt,
        scope: Scope,
        zstd: bytes | None,
        now: str,
    ) -> None:
        example, recipe = call.example, call.recipe
        if zstd is not None:
            size = len(call.document.encode())
            db.execute(
                "INSERT OR IGNORE INTO documents VALUES (?, ?, ?)",
                (example.document_id, size, zstd),
            )
        db.execute("INSERT OR IGNORE INTO recipes VALUES (?, ?)", (recipe.hash, recipe.body))
        db.execute(
            "INSERT OR IGNORE INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (call.call_key, scope.study, scope.campaign, scope.model, scope.identity_hash, recipe.hash, example.example_id,
             example.document_id, example.question, call.replicate, prompt.hash, now),
        )  # fmt: skip

    def _remember(self, call: PlannedCall, future: Future[T]) -> Future[T]:
        """Once the commit is through, do not compress and offer the document again."""

        def note(done: Future[T]) -> None:
            if done.exception() is None and not (
                isinstance(value := done.result(), Begun) and value.state != "send"
            ):
                self._known_documents.add(call.example.document_id)

        future.add_done_callback(note)
        return future

    @staticmethod
    def _reserve(db: sqlite3.Connection, scope: Scope, reserve: Spend, budget: Budget) -> None:
        key = (scope.study, scope.campaign)
        row = db.execute(
            "SELECT usd, tokens, calls FROM spend WHERE study = ? AND campaign = ?", key
        ).fetchone()
        budget.check(Spend(*row) if row else Spend(), reserve)
        db.execute(
            "INSERT INTO spend VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " usd = usd + excluded.usd, tokens = tokens + excluded.tokens, calls = calls + excluded.calls",
            (*key, reserve.usd, reserve.tokens, reserve.calls),
        )

    # --- reading -------------------------------------------------------------------------------

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            with self._reading:
                return self._reader.execute(sql, parameters).fetchall()
        except sqlite3.Error as fault:
            raise store_error(fault, self.path) from fault

    def outcomes(self, call_keys: Iterable[str]) -> dict[str, Outcome]:
        """Call key -> outcome, of those that have one."""
        return ledger_reads.outcomes(self, call_keys)

    def failures(self, call_keys: Iterable[str]) -> dict[str, Failure]:
        """Call key -> last failure, of those that failed."""
        return ledger_reads.failures(self, call_keys)

    def claimed(self, call_keys: Iterable[str]) -> dict[str, str]:
        """Call key -> owner, of those that somebody is at."""
        return ledger_reads.claimed(self, call_keys)

    def orphans(self, study: str | None = None, campaign: str | None = None) -> list[Orphan]:
        """Requests whose process died before their answer was kept."""
        alive = {row[0]: is_alive(self._owner.folder, row[0])
                 for row in self.read("SELECT DISTINCT owner FROM attempts WHERE ended_at IS NULL")}  # fmt: skip
        return ledger_reads.orphans(self, alive, study, campaign)

    def spent(self, study: str, campaign: str) -> Spend:
        """Money, tokens and requests of a campaign so far, with what is reserved and orphaned."""
        rows = self.read(
            "SELECT usd, tokens, calls FROM spend WHERE study = ? AND campaign = ?",
            (study, campaign),
        )
        return Spend(*rows[0]) if rows else Spend()

    def prompt(self, call_key: str) -> Prompt:
        """The prompt of a call, rebuilt byte for byte from its parts.

        Raises:
            StoreError: there is no such call, or its parts do not give the prompt that was sent.
        """
        return ledger_reads.prompt(self, call_key)

    def stats(self) -> dict[str, Any]:
        """Counts of what the ledger holds, orphans among them, and its size in bytes."""
        return ledger_reads.stats(self, len(self.orphans()))


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Two processes that make the same ledger at the same moment do so one after the other."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _keep(db: sqlite3.Connection, call_key: str, outcome: Outcome) -> None:
    values = asdict(outcome)
    columns = ", ".join(values)
    marks = ", ".join("?" * len(values))
    # The first outcome stands: a call is never measured over.
    db.execute(
        f"INSERT OR IGNORE INTO results (call_key, {columns}) VALUES (?, {marks})",
        (call_key, *values.values()),
    )


def _settle(db: sqlite3.Connection, attempt_id: int, charge: Spend) -> None:
    row = db.execute(
        "UPDATE attempts SET ended_at = ?, charged_usd = ?, charged_tokens = ? WHERE attempt_id = ? AND ended_at IS NULL"
        " RETURNING study, campaign, reserved_usd, reserved_tokens",
        (utc_now(), charge.usd, charge.tokens, attempt_id),
    ).fetchone()
    if row:
        db.execute(
            "UPDATE spend SET usd = usd + ?, tokens = tokens + ? WHERE study = ? AND campaign = ?",
            (charge.usd - row[2], charge.tokens - row[3], row[0], row[1]),
        )
