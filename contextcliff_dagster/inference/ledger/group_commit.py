"""One thread that writes to the ledger, and commits what has gathered meanwhile in one go.

A durable commit costs a flush of the disk, whatever its size; while one is under way the next
operations queue up and share the next. A future is done only after its commit.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from contextcliff_dagster.inference.ledger.backend import Database

T = TypeVar("T")
Operation = Callable[[Database], Any]
Ended = list[tuple[Any, Exception | None]]
"""What each operation gave, or its own fault."""

_BATCH = 256


class GroupCommit(ABC):
    """Runs operations, each as a whole or not at all, in the order of `submit`."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Operation, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="ledger-writer", daemon=True)
        self._thread.start()

    @abstractmethod
    def _transact(self, operations: Sequence[Operation]) -> Ended:
        """Run the operations in one transaction and commit it, or raise and leave no trace."""

    @abstractmethod
    def _explained(self, fault: Exception) -> Exception:
        """``fault`` in words for people."""

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        """Run ``operation`` in a transaction; the future is done once it is durable.

        The future raises what the operation raised, or StoreError.
        """
        future: Future[T] = Future()
        # Once submitted it will be done: a waiter that is cancelled must not undo a paid answer.
        future.set_running_or_notify_cancel()
        self._queue.put((operation, future))
        return future

    def close(self) -> None:
        """Finish what was submitted."""
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
        try:
            outcomes = self._transact([operation for operation, _ in jobs])
        except Exception as fault:
            error = self._explained(fault)
            for _, future in jobs:
                future.set_exception(error)
            return
        for (_, future), (value, fault_) in zip(jobs, outcomes, strict=True):
            if fault_ is not None:
                future.set_exception(fault_)
            else:
                future.set_result(value)


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
        except Exception as fault:
            db.execute("ROLLBACK TO SAVEPOINT job")
            ended.append((None, fault))
        db.execute("RELEASE SAVEPOINT job")
    return ended
