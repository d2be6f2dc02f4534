"""The call ledger: the one truth about what was asked, what it cost, and what came back.

Every attempt is committed before its request is sent and every answer before it is counted, so
that a crash at any moment loses no finished call and pays none twice. Several processes may share
one ledger: a call belongs to the owner that claimed it for as long as that owner lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger import queries, statements
from contextcliff_dagster.inference.ledger.backend import Backend, Database
from contextcliff_dagster.inference.ledger.statements import Begun, Description, Scope
from contextcliff_dagster.inference.requests.outcome import (
    Failure,
    MaybePaid,
    Orphan,
    Outcome,
    utc_now,
)
from contextcliff_dagster.inference.spending.budget import Budget, Spend
from contextcliff_dagster.store import DatabaseUrl

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.call_plan import PlannedCall
    from contextcliff_dagster.inference.requests.recipe import Prompt

__all__ = ["Begun", "Ledger", "Scope"]

T = TypeVar("T")


class Ledger:
    """One process's door to the ledger; a context manager. Open one per run."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._closed = False
        self._known_documents: set[str] = set()

    @classmethod
    def open(cls, where: Path | DatabaseUrl) -> Ledger:
        """Open the ledger in a SQLite file or a PostgreSQL database, made anew where there is none.

        Raises:
            StoreError: it cannot be reached or written, is damaged, or is of a newer version.
        """
        if isinstance(where, DatabaseUrl):
            from contextcliff_dagster.inference.ledger.postgres import PostgresLedger

            return cls(PostgresLedger(where))
        from contextcliff_dagster.inference.ledger.sqlite import SqliteLedger

        return cls(SqliteLedger(where))

    @property
    def name(self) -> str:
        """Where it is, as it may be shown."""
        return self.backend.name

    def close(self) -> None:
        """Commit what was submitted, give up all claims, disconnect."""
        if self._closed:
            return
        self._closed = True
        owner = self.backend.owner
        self.submit(lambda db: statements.release_all(db, owner))
        self.backend.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- writing -------------------------------------------------------------------------------

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        """Run ``operation`` in a write transaction; done once it is on the disk."""
        return self.backend.submit(operation)

    def write(self, operation: Callable[[Database], T]) -> T:
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

        The future raises BudgetError (nothing noted) or StoreError.
        """
        description = Description(call, prompt.hash, scope, self._compressed(call))

        def operation(db: Database) -> Begun:
            if self.backend.disk_was_full:
                raise StoreError(
                    f"The call ledger {self.name} failed: the disk is full; free some space and "
                    "run the same command again, everything measured is kept."
                )
            # Before a repeated attempt, too: who lost the connection for a while may have been
            # taken for dead.
            if taken := statements.taken(db, call.call_key, self.backend.owner):
                return taken
            now = utc_now()  # one moment for both: at midnight, too, a call is of one day
            statements.reserve(db, scope, reserve, budget, now)
            statements.describe(db, description)
            attempt_id = statements.attempt(
                db, call.call_key, self.backend.owner, scope, reserve, now
            )
            return Begun("send", attempt_id=attempt_id)

        return self._remember(call, self.submit(operation))

    def finish(
        self, attempt_id: int, call_key: str, outcome: Outcome, charge: Spend
    ) -> Future[None]:
        """Keep the outcome of a sent call, settle what was reserved, give up the claim."""

        def operation(db: Database) -> None:
            statements.keep(db, call_key, outcome)
            statements.settle(db, attempt_id, charge)
            statements.release(db, call_key, self.backend.owner)

        return self.submit(operation)

    def fail(
        self, attempt_id: int, call_key: str, failure: Failure, charge: Spend, *, release: bool
    ) -> Future[None]:
        """Note why an attempt brought no answer; with ``release`` the claim is given up."""

        def operation(db: Database) -> None:
            statements.fail(db, attempt_id, call_key, failure)
            statements.settle(db, attempt_id, charge)
            if release:
                statements.release(db, call_key, self.backend.owner)

        return self.submit(operation)

    def keep_unsent(
        self, call: PlannedCall, prompt: Prompt, scope: Scope, outcome: Outcome
    ) -> Future[None]:
        """Keep the outcome of a call that was judged without sending it (context overflow)."""
        description = Description(call, prompt.hash, scope, self._compressed(call))

        def operation(db: Database) -> None:
            statements.describe(db, description)
            statements.keep(db, call.call_key, outcome)

        return self._remember(call, self.submit(operation))

    def release(self, call_key: str) -> Future[None]:
        """Give up our claim on a call that will not be sent again."""
        return self.submit(lambda db: statements.release(db, call_key, self.backend.owner))

    def release_dead(self, owner: str) -> bool:
        """Free the claims of ``owner`` if its process is gone. True if they are free."""

        def operation(db: Database) -> bool:
            # Looked at again while nobody else writes: an owner that comes back (its connection
            # was gone for a while) claims nothing meanwhile.
            if self.backend.is_alive(owner):
                return False
            statements.release_all(db, owner)
            return True

        return not self.backend.is_alive(owner) and self.write(operation)

    def forget_documents(self) -> None:
        """Offer documents anew with the next calls: some were removed."""
        self._known_documents.clear()

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
            StoreError: the ledger cannot be read.
        """
        return self.backend.read(sql, parameters)

    def snapshot(self) -> AbstractContextManager[Database]:
        """A connection whose queries all see one moment; nothing written there is kept.

        Entering and leaving raise StoreError as `read` does.
        """
        return self.backend.snapshot()

    def outcomes(self, call_keys: Iterable[str]) -> dict[str, Outcome]:
        """Call key -> outcome, of those that have one."""
        return queries.outcomes(self.backend, call_keys)

    def failures(self, call_keys: Iterable[str]) -> dict[str, Failure]:
        """Call key -> last failure, of those that failed."""
        return queries.failures(self.backend, call_keys)

    def claimed(self, call_keys: Iterable[str]) -> dict[str, str]:
        """Call key -> owner, of those that somebody is at."""
        return queries.claimed(self.backend, call_keys)

    def orphans(
        self, study: str | None = None, campaign: str | None = None, model: str | None = None
    ) -> list[Orphan]:
        """Requests whose process died before their answer was kept."""
        owners = self.read("SELECT DISTINCT owner FROM attempts WHERE ended_at IS NULL")
        alive = {owner: self.backend.is_alive(owner) for (owner,) in owners}
        return queries.orphans(self.backend, alive, study, campaign, model)

    def maybe_paid(self, call_keys: Iterable[str]) -> MaybePaid:
        """Requests of these calls that died after they were sent, orphans among them."""
        keys = set(call_keys)
        died = queries.maybe_paid(self.backend, keys)
        lost = [orphan for orphan in self.orphans() if orphan.call_key in keys]
        usd = died.usd + sum(orphan.reserved_usd for orphan in lost)
        return MaybePaid(died.requests + len(lost), usd)

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
        return queries.prompt(self.backend, call_key)

    def stats(self) -> dict[str, Any]:
        """Counts of what the ledger holds, orphans among them, and its size in bytes."""
        return queries.stats(self.backend, self.orphans())

    def stats_by_campaign(self) -> list[dict[str, Any]]:
        """Counts and money for each study, campaign and model."""
        return queries.stats_by_campaign(self.backend, self.orphans())
