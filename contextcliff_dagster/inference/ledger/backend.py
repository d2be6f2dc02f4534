"""The interface of a ledger's database: SQL with ``?`` for values, rows, and a writer thread.

Statements are written once, in SQL that both SQLite and PostgreSQL understand.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from contextcliff_dagster.contracts import ContextCliffError, StoreError

T = TypeVar("T")


class Rows(Protocol):
    """Rows of a statement; fetch them before executing the next statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Database(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows: ...


Operation = Callable[[Database], Any]
Ended = list[tuple[Any, Exception | None]]
"""Each operation's return value, or its error."""

_BATCH = 256
PATIENCE_S = 60.0
"""Seconds of retries on a database that refuses before the run ends: enough for a server to restart
or for the backup of a file."""
TRY_EVERY_S = 0.25


class GroupCommit(ABC):
    """A writer thread that commits all queued operations at once.

    A durable commit costs one disk flush, whatever its size; operations that arrive meanwhile queue
    up and share the next one. They run in the order of `submit`, each completely or not at all. A
    database that refuses is retried for ``patience_s`` from its first refusal, while submitted
    operations wait. ``name``: the ledger's address for display (no password).
    """

    patience_s = PATIENCE_S

    def __init__(self, name: str) -> None:
        self.name = name
        self.be_patient()
        self._queue: queue.SimpleQueue[tuple[Operation, Future[Any]] | None] = queue.SimpleQueue()
        self._submitting, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._work, name="ledger-writer", daemon=True)
        self._thread.start()

    @abstractmethod
    def _transact(self, operations: Sequence[Operation]) -> Ended:
        """Run the operations in one transaction and commit it, or raise and change nothing."""

    @abstractmethod
    def _explained(self, error: Exception) -> StoreError | None:
        """Return ``error`` as a readable StoreError; None if it does not come from the database."""

    def be_patient(self) -> None:
        """From now on, wait for a refusing database (again)."""
        self._hurried = threading.Event()
        self._refusing_since: float | None = None

    def hurry(self) -> None:
        """Stop waiting for a refusing database, because the process is ending."""
        self._hurried.set()

    def _try_again(self) -> bool:
        """Record a refusal and wait a moment; return False once the patience is used up."""
        if self._refusing_since is None:
            self._refusing_since = time.monotonic()
        if self._has_given_up():
            return False
        self._hurried.wait(TRY_EVERY_S)
        return True

    def _has_given_up(self) -> bool:
        """Return whether the database has refused for longer than we are willing to wait."""
        since = self._refusing_since
        return since is not None and (
            self._hurried.is_set() or time.monotonic() - since >= self.patience_s
        )

    def _wait_for_turn_s(self, seconds: float) -> float:
        """Return how long to wait for other writers: ``seconds``, or a moment after giving up.

        Answers still arrive after giving up, and each would otherwise wait for as long.
        """
        return min(seconds, TRY_EVERY_S) if self._has_given_up() else seconds

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        """Queue ``operation`` for a transaction; the returned future is done once this is durable.

        The future raises the operation's error, or StoreError.
        """
        future: Future[T] = Future()
        # A submitted operation always runs: a cancelled waiter must not undo a paid answer.
        future.set_running_or_notify_cancel()
        with self._submitting:
            if not self._closed:
                self._queue.put((operation, future))
                return future
        future.set_exception(StoreError(f"The call ledger {self.name} is closed; open it again."))
        return future

    def close(self) -> None:
        """Finish the submitted operations and end the writer thread."""
        with self._submitting:
            self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            batch = [self._queue.get()]
            while len(batch) < _BATCH:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            jobs = [job for job in batch if job is not None]
            if jobs:
                self._commit(jobs)
            if None in batch:
                return

    def _commit(self, jobs: list[tuple[Operation, Future[Any]]]) -> None:
        # Every future ends, whatever happens here, so that no caller waits for a dead thread.
        try:
            ended = self._transact([operation for operation, _ in jobs])
            if len(ended) != len(jobs):
                raise RuntimeError(f"{len(jobs)} operations, {len(ended)} of them ended")
        except BaseException as error:
            for _, future in jobs:
                future.set_exception(self._in_words(error))
            return
        for (_, future), (value, own_error) in zip(jobs, ended, strict=True):
            if own_error is not None:
                future.set_exception(own_error)
            else:
                future.set_result(value)

    def _in_words(self, error: BaseException) -> Exception:
        if isinstance(error, ContextCliffError):
            return error
        explained = self._explained(error) if isinstance(error, Exception) else None
        sentence = explained or StoreError(
            f"The call ledger {self.name} failed unexpectedly ({type(error).__name__}: {error}). "
            "Finished answers are kept: run the same command again, and report this if it fails "
            "again."
        )
        sentence.__cause__ = error
        return sentence

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise the database's errors as StoreError."""
        try:
            yield
        except ContextCliffError:
            raise
        except Exception as error:
            if explained := self._explained(error):
                raise explained from error
            raise


def run_each(db: Database, operations: Sequence[Operation], of_database: type[Exception]) -> Ended:
    """Run the operations inside the open transaction; a failing one undoes only itself.

    Raises:
        of_database: the database failed, not an operation: the transaction is void.
    """
    ended: Ended = []
    for operation in operations:
        db.execute("SAVEPOINT job")
        try:
            ended.append((operation(db), None))
        except of_database:
            raise
        except Exception as error:
            db.execute("ROLLBACK TO SAVEPOINT job")
            ended.append((None, error))
        db.execute("RELEASE SAVEPOINT job")
    return ended


BATCH = "batch-"
"""Beginning of the owners that are batches of calls (`ledger.batches`)."""
OPEN_BATCH = "SELECT 1 FROM call_batches WHERE owner = ? AND ended_at IS NULL"


class Backend(GroupCommit):
    """A ledger's database as opened by one process.

    ``owner`` is the right to claim calls; other processes see it end with this process.
    """

    owner: str
    disk_was_full = False
    """Whether the reserve for answers already paid has been used, so that nothing new may begin."""

    def missing_reserve(self) -> int:
        """Return the bytes that cannot be reserved for paid answers; 0 if all can."""
        return 0

    @abstractmethod
    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises StoreError if the ledger cannot be read."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Database]:
        """Open a connection whose queries all see one moment; its writes are dropped."""

    def is_alive(self, owner: str) -> bool:
        """Return whether the process of ``owner`` has its ledger open, or the batch is open."""
        if not owner.startswith(BATCH):
            return self.has_open(owner)
        return bool(self.read(OPEN_BATCH, (owner,)))

    @abstractmethod
    def has_open(self, owner: str) -> bool:
        """Return whether the process of ``owner`` still has its ledger open."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return table -> bytes on disk with its indexes; ``other`` is for all else."""

    @abstractmethod
    def integrity_errors(self) -> list[str]:
        """Run the database's own file check; return a sentence for each problem."""

    @abstractmethod
    def backup(self, file: Path) -> None:
        """Write all committed data to ``file`` while others write. Raises StoreError."""

    @abstractmethod
    def compact(self) -> None:
        """Return the space of deleted rows to the disk and erase their content."""
