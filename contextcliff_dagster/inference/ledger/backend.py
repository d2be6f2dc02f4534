"""Interface of a ledger's database: SQL with ``?`` for values, rows, and a thread that writes.

The statements are written once, in words that SQLite and PostgreSQL both understand.
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
    """The rows of a statement; to be fetched before the next statement is executed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Database(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows: ...


Operation = Callable[[Database], Any]
Ended = list[tuple[Any, Exception | None]]
"""Return value of each operation, or its own error."""

_BATCH = 256
PATIENCE_S = 60.0
"""How long a database that refuses is tried again before the run ends: a server restarts in less,
and a backup of a file is made."""
TRY_EVERY_S = 0.25


class GroupCommit(ABC):
    """One thread that writes, and commits all queued operations at once.

    A durable commit costs a flush of the disk, whatever its size; while one is under way the next
    operations queue up and share the next. They run in the order of `submit`, each as a whole or
    not at all. A database that refuses is tried again for ``patience_s`` from its first refusal on,
    and submitted operations wait. ``name``: address of the ledger for display (no password).
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
        """Run the operations in one transaction and commit it, or raise and leave no trace."""

    @abstractmethod
    def _explained(self, error: Exception) -> StoreError | None:
        """Return ``error`` in words for people; None where it is not of the database."""

    def be_patient(self) -> None:
        """Wait for a database that refuses, from now on (again)."""
        self._hurried = threading.Event()
        self._refusing_since: float | None = None

    def hurry(self) -> None:
        """Wait for it no longer: the process is to end."""
        self._hurried.set()

    def _try_again(self) -> bool:
        """Note a refusal, and wait a moment; False where it was waited long enough."""
        if self._refusing_since is None:
            self._refusing_since = time.monotonic()
        if self._has_given_up():
            return False
        self._hurried.wait(TRY_EVERY_S)
        return True

    def _has_given_up(self) -> bool:
        """Whether the database has refused for longer than it is to be waited for."""
        since = self._refusing_since
        return since is not None and (
            self._hurried.is_set() or time.monotonic() - since >= self.patience_s
        )

    def _wait_for_turn_s(self, seconds: float) -> float:
        """How long to wait for other writers: ``seconds``, but only a moment once given up.

        Answers still come then, one after another, and each would wait for as long.
        """
        return min(seconds, TRY_EVERY_S) if self._has_given_up() else seconds

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        """Run ``operation`` in a transaction; the future is done once it is durable.

        The future raises the operation's error, or StoreError.
        """
        future: Future[T] = Future()
        # Once submitted it will be done: a waiter that is cancelled must not undo a paid answer.
        future.set_running_or_notify_cancel()
        with self._submitting:
            if not self._closed:
                self._queue.put((operation, future))
                return future
        future.set_exception(StoreError(f"The call ledger {self.name} is closed; open it again."))
        return future

    def close(self) -> None:
        """Finish the submitted operations."""
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
        # Whatever happens here, every future is done afterwards: no caller waits for a dead thread.
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
        known = self._explained(error) if isinstance(error, Exception) else None
        sentence = known or StoreError(
            f"The call ledger {self.name} failed in an unforeseen way ({type(error).__name__}: "
            f"{error}); everything measured is kept, so run the same command to go on, and report "
            "this if it comes back."
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
            if known := self._explained(error):
                raise known from error
            raise


def run_each(db: Database, operations: Sequence[Operation], of_database: type[Exception]) -> Ended:
    """Run the operations inside the open transaction; one that fails undoes itself alone.

    Raises:
        of_database: the database failed, not an operation: nothing of the transaction counts.
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


class Backend(GroupCommit):
    """A ledger's database as one process has it open.

    ``owner`` is the right to claim calls, which others see ending when the process does.
    """

    owner: str
    disk_was_full = False
    """Whether room was made for answers already paid, and nothing new may begin."""

    def missing_reserve(self) -> int:
        """How many bytes cannot be kept back for answers already paid; 0 where all can."""
        return 0

    @abstractmethod
    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query. Raises StoreError where the ledger cannot be read."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Database]:
        """A connection whose queries all see one moment; nothing written there is kept."""

    @abstractmethod
    def is_alive(self, owner: str) -> bool:
        """Whether the process of ``owner`` still has its ledger open."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Bytes on the disk by table with its indexes; ``other`` belongs to no table."""

    @abstractmethod
    def integrity_errors(self) -> list[str]:
        """Run the database's own check of its files; a sentence for each thing that is wrong."""

    @abstractmethod
    def backup(self, file: Path) -> None:
        """Write all that is committed to ``file``, while others write. Raises StoreError."""

    @abstractmethod
    def compact(self) -> None:
        """Give deleted rows' space back to the disk, and leave nothing of them behind."""
