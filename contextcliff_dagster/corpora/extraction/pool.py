"""Ordered extraction of texts by a few worker processes, which are replaced if they die."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from contextcliff_dagster.corpora.extraction.file_type import Extracted, Limits, Unusable
from contextcliff_dagster.corpora.extraction.worker_process import Outcome, Task, WorkerProcess

_WORKERS_MOST = 4
_AHEAD = 64  # most files read or being read beyond the next result
_WAITING_CHARACTERS = 32_000_000  # most characters of texts waiting for an earlier one
_LOOK_EVERY_S = 0.2


def extract_all(
    paths: Iterable[Path], limits: Limits | None = None
) -> Iterator[Extracted | Unusable]:
    """Yield each file's text, or why it has none, in the order of `paths`.

    A file's content never raises an error. `paths` is consumed as needed, a bounded number ahead,
    and at most that many results wait in memory. Symbolic links are followed. The worker processes
    end when the iterator is closed or this process dies. Time that the caller takes between two
    results does not count against any file.

    Raises:
        CorpusError: worker processes cannot be started at all.
    """
    pool = _Pool(paths, limits or Limits())
    try:
        while (result := pool.next()) is not None:
            left_at = time.monotonic()
            yield result
            away = time.monotonic() - left_at
            for worker in pool.workers:
                worker.deadline += away
    finally:
        for worker in pool.workers:
            worker.end()


class _Pool:
    def __init__(self, paths: Iterable[Path], limits: Limits) -> None:
        self._paths = enumerate(paths)
        self._limits = limits
        self._most = limits.workers or min(os.cpu_count() or 1, _WORKERS_MOST)
        self.workers: list[WorkerProcess] = []
        self._again: deque[Task] = deque()
        self._results: dict[int, Extracted | Unusable] = {}
        self._waiting = 0  # characters in results
        self._given = 0  # results handed out: the index of the next
        self._taken = 0  # paths taken from the iterator
        self._exhausted = False

    def next(self) -> Extracted | Unusable | None:
        """Return the next result in order, or None after the last."""
        self._collect(0)
        while self._given not in self._results:
            if self._exhausted and self._given == self._taken:
                return None
            self._collect(_LOOK_EVERY_S)
        result = self._results.pop(self._given)
        self._given += 1
        if isinstance(result, Extracted):
            self._waiting -= len(result.text)
        return result

    def _collect(self, wait_s: float) -> None:
        """Assign files to workers, wait for an event, and collect the results."""
        self._give_out()
        if self.workers:
            by_answers = {worker.answers: worker for worker in self.workers}
            poll = select.poll()
            for descriptor in by_answers:
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll(wait_s * 1000):
                self._settle(by_answers[descriptor].outcome())
            now = time.monotonic()
            for worker in self.workers:
                if worker.alive:
                    self._settle(worker.overdue(now))
        self.workers = [worker for worker in self.workers if worker.alive]
        self._give_out()

    def _settle(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        task, result = outcome
        if result is None:
            self._again.append(task)
            return
        self._results[task.place] = result
        if isinstance(result, Extracted):
            self._waiting += len(result.text)

    def _give_out(self) -> None:
        for worker in self.workers:
            if worker.idle and worker.alive:
                if (task := self._task()) is None:
                    return
                worker.give(task)
        # One start at a time: a few small files are read before a second process is ready.
        if len(self.workers) < self._most and all(worker.ready for worker in self.workers):
            if (task := self._task()) is None:
                return
            worker = WorkerProcess(self._limits)
            self.workers.append(worker)
            worker.give(task)

    def _task(self) -> Task | None:
        """Return the next file to read; None if there is none, or if enough results are waiting."""
        if self._again:
            return self._again.popleft()
        ahead = self._taken - self._given
        if self._exhausted or ahead >= _AHEAD or (ahead and self._waiting > _WAITING_CHARACTERS):
            return None
        for place, path in self._paths:
            self._taken += 1
            return Task(place, Path(path))
        self._exhausted = True
        return None
