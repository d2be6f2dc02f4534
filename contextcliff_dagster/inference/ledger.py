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
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from contextcliff_dagster.inference import ledger_reads, ledger_writes
from contextcliff_dagster.inference.budget import Budget, Spend
from contextcliff_dagster.inference.claims import Owner, is_alive, remove_dead
from contextcliff_dagster.inference.ledger_schema import prepare
from contextcliff_dagster.inference.ledger_writes import Begun, Description, Scope
from contextcliff_dagster.inference.outcome import Failure, Orphan, Outcome
from contextcliff_dagster.inference.sqlite_writer import Writer, connect, store_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contextcliff_dagster.inference.calls import PlannedCall
    from contextcliff_dagster.inference.recipe import Prompt

__all__ = ["Begun", "Ledger", "Scope"]

T = TypeVar("T")


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
        description = Description(call, prompt.hash, scope, self._compressed(call))

        def operation(db: sqlite3.Connection) -> Begun:
            if self._writer.disk_was_full:
                raise store_error(OSError("no space left"), self.path)
            if not repeat and (taken := ledger_writes.taken(db, call.call_key, self._owner.id)):
                return taken
            ledger_writes.reserve(db, scope, reserve, budget)
            ledger_writes.describe(db, description)
            attempt_id = ledger_writes.attempt(db, call.call_key, self._owner.id, scope, reserve)
            return Begun("send", attempt_id=attempt_id)

        return self._remember(call, self.submit(operation))

    def finish(
        self, attempt_id: int, call_key: str, outcome: Outcome, charge: Spend
    ) -> Future[None]:
        """Keep the outcome of a sent call, settle what was reserved, give up the claim."""

        def operation(db: sqlite3.Connection) -> None:
            ledger_writes.keep(db, call_key, outcome)
            ledger_writes.settle(db, attempt_id, charge)
            ledger_writes.release(db, call_key, self._owner.id)

        return self.submit(operation)

    def fail(
        self, attempt_id: int, call_key: str, failure: Failure, charge: Spend, *, release: bool
    ) -> Future[None]:
        """Note why an attempt brought no answer; with ``release`` the claim is given up."""

        def operation(db: sqlite3.Connection) -> None:
            ledger_writes.fail(db, attempt_id, call_key, failure)
            ledger_writes.settle(db, attempt_id, charge)
            if release:
                ledger_writes.release(db, call_key, self._owner.id)

        return self.submit(operation)

    def keep_unsent(
        self, call: PlannedCall, prompt: Prompt, scope: Scope, outcome: Outcome
    ) -> Future[None]:
        """Keep the outcome of a call that was judged without sending it (context overflow)."""
        description = Description(call, prompt.hash, scope, self._compressed(call))

        def operation(db: sqlite3.Connection) -> None:
            ledger_writes.describe(db, description)
            ledger_writes.keep(db, call.call_key, outcome)

        return self._remember(call, self.submit(operation))

    def release(self, call_key: str) -> Future[None]:
        """Give up our claim on a call that will not be sent again."""
        return self.submit(lambda db: ledger_writes.release(db, call_key, self._owner.id))

    def release_dead(self, owner: str) -> bool:
        """Free the claims of ``owner`` if its process is gone. True if they are free."""
        if is_alive(self._owner.folder, owner):
            return False
        self.write(lambda db: db.execute("DELETE FROM claims WHERE owner = ?", (owner,)))
        return True

    def _compressed(self, call: PlannedCall) -> bytes | None:
        """The document compressed, unless this process has stored it already."""
        if call.example.document_id in self._known_documents:
            return None
        import pyarrow as pa

        return bytes(pa.Codec("zstd").compress(call.document.encode(), asbytes=True))

    def _remember(self, call: PlannedCall, future: Future[T]) -> Future[T]:
        """Once the commit is through, do not compress and offer the document again."""

        def note(done: Future[T]) -> None:
            if done.exception() is None and not (
                isinstance(value := done.result(), Begun) and value.state != "send"
            ):
                self._known_documents.add(call.example.document_id)

        future.add_done_callback(note)
        return future

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
        owners = self.read("SELECT DISTINCT owner FROM attempts WHERE ended_at IS NULL")
        alive = {owner: is_alive(self._owner.folder, owner) for (owner,) in owners}
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
