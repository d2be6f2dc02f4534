"""The call ledger: the authoritative record of questions, costs and answers.

Every attempt is committed before its request is sent, and every answer before it is counted, so a
crash at any moment loses no finished call and pays for none twice. Several processes may share a
ledger: a call belongs to the owner that claimed it while that owner lives.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from contextcliff_dagster.contracts import AnswersLostError, ContextCliffError, StoreError
from contextcliff_dagster.inference.ledger import statements
from contextcliff_dagster.inference.ledger.backend import Backend, Database
from contextcliff_dagster.inference.ledger.owners import Answer, Spool
from contextcliff_dagster.inference.ledger.queries import LedgerReader
from contextcliff_dagster.inference.ledger.statements import Begun, Scope
from contextcliff_dagster.inference.requests.call_plan import Failure, Outcome, PlannedCall, utc_now
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending import Budget, Spend
from contextcliff_dagster.store import DatabaseUrl, store_root

__all__ = ["Begun", "Ledger", "Scope"]

SPOOL = "_spool"
T = TypeVar("T")


class Ledger(LedgerReader):
    """A context manager for one process's access to the ledger. Open one per run."""

    def __init__(self, backend: Backend, spool: Spool) -> None:
        super().__init__(backend)
        self.id = ""
        self._closed = False
        self._known_documents: set[str] = set()
        self.spool = spool
        self._spooled: set[str] = set()
        self._lost: dict[str, str] = {}
        if backend.owner and spool.files():
            # A command that only reads need not wait; `make_ready` waits before a paid call.
            backend.hurry()
            with suppress(OSError, StoreError):
                self.take_in()
            backend.be_patient()

    @classmethod
    def open(cls, where: Path | DatabaseUrl, *, patient: bool = True) -> Ledger:
        """Open the ledger in a SQLite file or a PostgreSQL database, creating it if it is missing.

        Answers that it refused earlier are stored if it takes them now. If ``patient``, wait for a
        server that cannot be reached, as for writing.

        Raises:
            StoreError: it cannot be reached or written, is damaged, or has a newer version.
        """
        if isinstance(where, DatabaseUrl):
            from contextcliff_dagster.inference.ledger.postgres import PostgresLedger

            backend: Backend = PostgresLedger(where, patient=patient)
            return cls(backend, Spool(store_root() / SPOOL, backend.owner))
        from contextcliff_dagster.inference.ledger.sqlite import SqliteLedger

        backend = SqliteLedger(where)
        return cls(backend, Spool(where.parent / SPOOL, backend.owner))

    @classmethod
    def open_to_read(cls, where: Path | DatabaseUrl) -> Ledger:
        """Open a ledger that may be in a read-only folder, in which case it is only read.

        Raises:
            StoreError: as `open`; or it has an older version and cannot be upgraded.
        """
        writable = not isinstance(where, Path) or all(
            os.access(path, os.W_OK) for path in (where, where.parent)
        )
        if writable or not isinstance(where, Path):
            return cls.open(where)
        from contextcliff_dagster.inference.ledger.sqlite import ReadOnlySqlite

        return cls(ReadOnlySqlite(where), Spool(where.parent / SPOOL, ""))

    def close(self) -> None:
        """Commit the submitted operations, give up all claims, and disconnect.

        Calls whose answers wait in the spool stay claimed, so that nobody makes them again.
        """
        if not self._closed:
            self._closed = True
            if self.backend.owner:
                self.backend.hurry()
            if self.backend.owner and not self._spooled:
                self.submit(lambda db: statements.release_all(db, self.backend.owner))
            self.backend.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        """Run ``operation`` in a write transaction; the future is done once it is on disk."""
        return self.backend.submit(operation)

    def write(self, operation: Callable[[Database], T]) -> T:
        """Run ``operation`` as `submit` does, wait, and return its result."""
        return self.submit(operation).result()

    def begin(
        self,
        call: PlannedCall,
        prompt: Prompt,
        scope: Scope,
        reserve: Spend,
        budget: Budget,
        estimated_tokens: int = 0,
    ) -> Future[Begun]:
        """Claim ``call``, reserve its maximum cost and record the attempt, all before sending it.

        ``estimated_tokens``: the prompt's size by our own count (`LedgerReader.most_of_estimate`).
        The future raises BudgetError (nothing was noted) or StoreError.
        """
        prompt_hash, zstd = prompt.hash, self.compressed(call)
        me = self.backend.owner

        def operation(db: Database) -> Begun:
            if self.backend.disk_was_full:
                raise StoreError(
                    f"The call ledger {self.name} failed: the disk is full; free some space "
                    "and run the same command again. Finished answers are kept."
                )
            # Also checked before a retry: a process that lost its connection for a while may
            # have been considered dead.
            if taken := statements.taken(db, call.call_key, me):
                return taken
            now = utc_now()  # one time for both, so that midnight cannot split a call
            statements.reserve(db, scope, reserve, budget, now)
            statements.describe(db, call, prompt_hash, scope, zstd)
            attempt_id = statements.attempt(
                db, call.call_key, me, scope, reserve, estimated_tokens, now
            )
            return Begun("send", attempt_id=attempt_id)

        return self._remember(call, self.submit(operation))

    def finish(
        self, attempt_id: int, call_key: str, outcome: Outcome, charge: Spend
    ) -> Future[None]:
        """Store the outcome of a sent call, settle its reservation, and give up the claim.

        The future raises StoreError if the ledger refuses; the answer then waits in the spool.
        """
        answer = Answer(attempt_id, call_key, outcome, charge)

        def operation(db: Database) -> None:
            study = statements.settle(db, attempt_id, charge)
            statements.keep(db, call_key, outcome, self.backend.owner, study)
            statements.release(db, call_key, self.backend.owner)

        finished: Future[None] = Future()
        finished.set_running_or_notify_cancel()

        def stored(done: Future[None]) -> None:
            if (refusal := done.exception()) is None:
                finished.set_result(None)
                return
            try:
                self.spool.add(answer)
                self._spooled.add(call_key)
            except Exception as error:
                self._lost[call_key] = str(error.__cause__ or error)
            finished.set_exception(refusal)

        self.submit(operation).add_done_callback(stored)
        return finished

    def take_in(self) -> None:
        """Store the answers that wait in the spool; those that are refused keep waiting."""

        def store(owner: str, answer: Answer) -> Future[bool]:
            return self.submit(lambda db: statements.take_in(db, owner, answer))

        self.spool.take_in(store)
        if not self.spool.own.exists():
            self._spooled.clear()

    def make_ready(self) -> None:
        """Prepare for paid calls: store waiting answers, and check that there is room for new ones.

        Raises:
            StoreError: the ledger refuses writes, or its disk has no room.
        """
        self._lost.clear()
        self.backend.be_patient()
        self.write(lambda db: None)
        self.take_in()
        if missing := self.backend.missing_reserve():
            raise StoreError(
                f"The call ledger {self.name} has no room for the {missing:,} bytes that it "
                "reserves for answers already paid; free some space there and run the same "
                "command again."
            )

    def told(self, error: ContextCliffError) -> ContextCliffError:
        """Return ``error``, extended by the fate of any answers that could not be stored."""
        if self._spooled:
            error = type(error)(f"{error} {self.spool.sentence(len(self._spooled))}")
        if self._lost:
            reason = next(iter(self._lost.values()))
            return AnswersLostError(
                f"{error} The spool {self.spool.folder} cannot be written either ({reason}); free "
                f"some space there. Answers to {len(self._lost)} calls are lost, and the next run "
                "pays for them again.",
                list(self._lost),
            )
        return error

    def fail(
        self, attempt_id: int, call_key: str, failure: Failure, charge: Spend, *, release: bool
    ) -> Future[None]:
        """Record why an attempt brought no answer; if ``release``, give up the claim."""

        def operation(db: Database) -> None:
            statements.fail(db, attempt_id, call_key, failure)
            statements.settle(db, attempt_id, charge)
            if release:
                statements.release(db, call_key, self.backend.owner)

        return self.submit(operation)

    def keep_unsent(
        self, call: PlannedCall, prompt: Prompt, scope: Scope, outcome: Outcome
    ) -> Future[None]:
        """Store the outcome of a call that was judged without sending it (context overflow)."""
        prompt_hash, zstd = prompt.hash, self.compressed(call)

        def operation(db: Database) -> None:
            statements.describe(db, call, prompt_hash, scope, zstd)
            statements.keep(db, call.call_key, outcome, self.backend.owner, scope.study)

        return self._remember(call, self.submit(operation))

    def restore(
        self,
        call: PlannedCall,
        prompt: Prompt,
        scope: Scope,
        outcome: Outcome,
        charge: Spend,
        origin: str | None = None,
    ) -> Future[bool]:
        """Store an outcome that the ledger lost, and its charge; return False if it is not lost.

        ``origin``: the archive it comes from, if any; it is then recorded as imported from there.
        """
        prompt_hash, zstd = prompt.hash, self.compressed(call)

        def operation(db: Database) -> bool:
            if (taken := statements.taken(db, call.call_key, "")) and taken.state == "finished":
                return False
            statements.describe(db, call, prompt_hash, scope, zstd)
            if origin is None:
                statements.keep(db, call.call_key, outcome, None, scope.study)
            else:
                row = {**statements.row_of(call.call_key, outcome), "origin": origin}
                statements.keep_imported(db, scope.study, row, adopt=False)
            if charge.calls:
                at, alive = outcome.finished_at, self.backend.is_alive
                statements.restore_attempt(db, call.call_key, scope, charge, at, alive)
            return True

        return self._remember(call, self.submit(operation))

    def release(self, call_key: str) -> Future[None]:
        """Give up our claim on a call that will not be sent again, unless its answer waits."""
        if call_key in self._spooled:
            return self.submit(lambda db: None)
        return self.submit(lambda db: statements.release(db, call_key, self.backend.owner))

    def release_dead(self, owner: str) -> bool:
        """Free the claims of ``owner`` if its process is gone; return whether they are free."""

        def operation(db: Database) -> bool:
            # Checked again while no other process writes, so that an owner whose connection comes
            # back cannot claim anything meanwhile.
            if self.backend.is_alive(owner):
                return False
            statements.release_all(db, owner)
            return True

        if self.backend.is_alive(owner):
            return False
        if self.spool.file_of(owner).exists():
            self.take_in()  # before another process makes the call again
        return self.write(operation)

    def takes(self, ledger_id: str | None) -> bool:
        """Return whether answers of a study with ``ledger_id`` (None: a new one) belong here.

        A ledger without measurements, made where another was lost, takes over the id.
        """

        def operation(db: Database) -> bool:
            row = db.execute("SELECT id FROM ledgers").fetchone()
            if ledger_id and not db.execute("SELECT 1 FROM results LIMIT 1").fetchone():
                db.execute("DELETE FROM ledgers")
                row = (ledger_id,)
                db.execute("INSERT INTO ledgers VALUES (?)", row)
            elif row is None:
                row = (uuid.uuid4().hex,)
                db.execute("INSERT INTO ledgers VALUES (?)", row)
            self.id = str(row[0])
            return ledger_id in (None, self.id)

        id_rows = self.read("SELECT id FROM ledgers")
        return (bool(id_rows) and id_rows[0][0] == ledger_id) or self.write(operation)

    def forget_documents(self) -> None:
        """Store documents again with the next calls, because some were removed."""
        self._known_documents.clear()

    def compressed(self, call: PlannedCall) -> bytes | None:
        """Return the compressed document, or None if this process has stored it already."""
        if call.example.document_id in self._known_documents:
            return None
        import pyarrow as pa

        return bytes(pa.Codec("zstd").compress(call.document.encode(), asbytes=True))

    def _remember(self, call: PlannedCall, future: Future[T]) -> Future[T]:
        """Remember the document once it is committed, so that it is not sent again."""

        def note(done: Future[T]) -> None:
            if done.exception() is None and getattr(done.result(), "state", "send") == "send":
                self._known_documents.add(call.example.document_id)

        future.add_done_callback(note)
        return future
