"""Ordered extraction of texts by a few worker processes, which are replaced if they die."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.extraction.file_type import Extracted, Limits, Unusable
from contextcliff_dagster.corpora.extraction.ipc_messages import GarbledError, MessageReader

_START_SECONDS = 120.0
# Isolated (-I) and without `site` (-S): neither the current folder, which may be the one with the
# hostile files, nor the environment decides what is imported; and it starts in half the time.
_PROGRAM = (
    "import sys; lifeline, settings, *sys.path = sys.argv[1:]; del sys.argv[3:]; "
    "from contextcliff_dagster.corpora.extraction.worker import main; main()"
)
# macOS does not enforce limits of address space: there, memory is watched from outside.
LIMITS_ADDRESS_SPACE = sys.platform == "linux"


@dataclass
class Task:
    """A file to be read: its index among the results, and whether it has been tried before."""

    place: int
    path: Path
    retried: bool = False


Outcome = tuple[Task, Extracted | Unusable | None]
"""The outcome for a file; None if it should be tried again in another process, because earlier
files may have damaged this process."""


class WorkerProcess:
    """A process that reads one file at a time.

    Raises:
        CorpusError: the process cannot be started.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process, self._lifeline = _started(limits)
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._pipes = [pipe for pipe in pipes if pipe is not None]
        self._requests, self.answers = (pipe.fileno() for pipe in self._pipes[:2])
        os.set_blocking(self.answers, False)
        self._reader = MessageReader(self.answers, limits.text_mb * 1e6)
        self.ready = False
        self._served = 0
        self._task: Task | None = None
        self.deadline = time.monotonic() + _START_SECONDS
        self._too_much = f"needs more than the {limits.memory_mb:,g} MB of memory allowed"

    @property
    def idle(self) -> bool:
        return self._task is None

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._reader.ended

    def give(self, task: Task) -> None:
        """Send a file to be read; the process must be `idle`."""
        self._task = task
        if self.ready:
            self.deadline = time.monotonic() + self._limits.clock_seconds
        path = os.fsencode(Path.cwd() / task.path)
        with suppress(OSError):  # the process is gone, which `outcome` notices
            os.write(self._requests, path.hex().encode() + b"\n")

    def outcome(self) -> Outcome | None:
        """Return the outcome for the current file, or None while it is unknown.

        Raises:
            CorpusError: the process ended before it was ready, which is no file's fault.
        """
        try:
            message = self._reader.read()
            if message is not None and not self.ready:
                self.ready = True
                self.deadline = time.monotonic() + self._limits.clock_seconds
                message = self._reader.read()
            if message is not None and self._task is not None:
                return self._answered(self._task, *message)
        except (GarbledError, KeyError, TypeError, UnicodeDecodeError):
            return self._lost("wrecked its reader's memory", again=True)
        return self._died() if self._reader.ended else None

    def overdue(self, now: float) -> Outcome | None:
        """Return the outcome for a file over its time limit, or memory limit (if watched).

        Raises:
            CorpusError: the process is not ready after two minutes.
        """
        if not self.ready and now > self.deadline:
            self.end()
            raise CorpusError(
                f"A process for reading documents was not ready after {_START_SECONDS:g} seconds; "
                "this machine is too busy, or out of memory."
            )
        if self._task is None or not self.ready:
            return None
        if now > self.deadline:
            return self._lost(f"took longer than {self._limits.clock_seconds:,g} s by the clock")
        if not LIMITS_ADDRESS_SPACE and _resident_mb(self._process.pid) > self._limits.memory_mb:
            return self._lost(self._too_much, again=True)
        return None

    def end(self) -> None:
        """Kill the process and wait until it has ended."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for pipe in self._pipes:
            pipe.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
        self._requests = self._lifeline = self.answers = -1

    def _answered(self, task: Task, header: dict[str, Any], body: bytes) -> Outcome:
        if header.get("out_of_memory"):
            return self._lost(self._too_much, again=True)
        self._task = None
        self._served += 1
        if "reason" in header:
            return task, Unusable(task.path, str(header["reason"]))
        notes = tuple(map(str, header["notes"]))
        return task, Extracted(task.path, body.decode(), str(header["kind"]), notes)

    def _died(self) -> Outcome | None:
        complaint = b"" if self.ready else self._pipes[2].read()
        code = self._process.wait()
        self.end()
        if not self.ready and code >= 0:
            lines = complaint.decode("utf-8", "replace").strip().splitlines()
            last = lines or [_exit_reason(code)]
            raise CorpusError(
                f"A process for reading documents cannot be started: {last[-1]}; reinstall "
                "contextcliff-dagster, or free some memory."
            )
        if self._task is None:
            return None
        if code == -signal.SIGXCPU:
            return self._lost(f"takes more than the {self._limits.seconds:,g} s allowed")
        reason = _exit_reason(code)
        if code == -signal.SIGABRT:  # libraries such as PDFium abort when out of memory
            reason += f", most likely as it {self._too_much}"
        return self._lost(reason, again=True)

    def _lost(self, reason: str, *, again: bool = False) -> Outcome:
        """End the process; retry its file if ``again``, unless it was this process's first."""
        self.end()
        task = self._task
        assert task is not None
        self._task = None
        if again and (self._served or not self.ready) and not task.retried:
            task.retried = True
            return task, None
        return task, Unusable(task.path, reason)


def _started(limits: Limits) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process; return it and the parent's end of its lifeline."""
    child_end, parent_end = os.pipe()
    settings = {"limits": asdict(limits), "limit_address_space": LIMITS_ADDRESS_SPACE}
    # An editable install may need a hook that -S leaves out: pass its folder explicitly.
    package_root = str(Path(__file__).parents[3])
    folders = [package_root, *(path for path in sys.path if path and path != package_root)]
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
    try:
        process = subprocess.Popen(
            [*command, str(child_end), json.dumps(settings), *folders],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[child_end],
            cwd="/",  # blocks no unmount, and leaves no core dump in a user's folder
            start_new_session=True,  # the parent handles Ctrl-C
        )
    except OSError as error:
        os.close(parent_end)
        raise CorpusError(
            f"A process for reading documents cannot be started: {error.strerror or error}."
        ) from error
    finally:
        os.close(child_end)
    return process, parent_end


def _exit_reason(code: int) -> str:
    if code == -signal.SIGKILL:
        return "had its reader killed from outside, perhaps because memory ran out"
    with suppress(ValueError):
        return f"makes its reader crash ({signal.Signals(-code).name})"
    return f"makes its reader end (exit code {code})"


def _resident_mb(pid: int) -> float:
    """Return a process's memory use in MB; 0 if the process has ended."""
    listed = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return float(listed.stdout.strip() or 0) * 1024 / 1e6


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
