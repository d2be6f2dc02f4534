"""Owners of claimed calls, and the files of answers that the ledger refused.

Each owner is one open ledger of one process. It holds an exclusive `flock` on its own file. The
kernel frees the lock when the process ends, for whatever reason, and any other process can see by
trying the lock that the owner is gone. There is no heartbeat, timeout or stale lock.

Refused answers wait in ``<store>/_spool/<owner>.jsonl``, a line for each. The next process that
opens the ledger imports these lines; see `statements.take_in`.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal

from contextcliff_dagster.inference.ledger.schema import COLUMNS, checksum, from_row, to_row
from contextcliff_dagster.inference.requests.call_plan import Outcome
from contextcliff_dagster.inference.spending import Spend
from contextcliff_dagster.private_files import folder_lock, make_file, make_folder
from contextcliff_dagster.store import write_atomic

_OPEN: weakref.WeakSet[Owner] = weakref.WeakSet()


class Owner:
    """The right to claim calls, held until `close` or the end of the process.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.folder = folder
        self.id = uuid.uuid4().hex
        self._path = folder / f"{self.id}.lock"
        while True:
            make_file(self._path)
            try:
                fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:  # a cleaner took it for a dead owner's
                continue
            # Waits only while another process checks whether we are alive.
            fcntl.flock(fd, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                # Between create and lock a cleaner may have taken our file for a dead owner's.
                if self._path.stat().st_ino == os.fstat(fd).st_ino:
                    break
            os.close(fd)
        self._fd: int | None = fd
        _OPEN.add(self)

    def close(self) -> None:
        """Give up the right to claim calls; the owner then counts as gone."""
        if self._fd is not None:
            with suppress(OSError):
                self._path.unlink()
            self._drop()

    def _drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def is_alive(folder: Path, owner_id: str) -> bool:
    """Return whether the owner's process still lives and has its ledger open."""
    path = folder / f"{owner_id}.lock"
    try:
        # Network file systems lock only writable files.
        fd = os.open(path, (os.O_RDWR if os.access(path, os.W_OK) else 0) | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove_dead(folder: Path) -> None:
    """Delete the files of owners that are gone. A missing file is equivalent to a free lock."""
    with suppress(OSError):
        for path in folder.glob("*.lock"):
            if not is_alive(folder, path.stem):
                with suppress(OSError):
                    path.unlink()


def _close_in_child() -> None:
    # A forked child shares the lock; left open, it would keep a dead parent looking alive.
    for owner in list(_OPEN):
        owner._drop()


os.register_at_fork(after_in_child=_close_in_child)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome and charge of an attempt that the ledger has recorded."""

    attempt_id: int
    call_key: str
    outcome: Outcome
    charge: Spend

    def to_line(self) -> bytes:
        """Return a line of JSON with the checksum that the ledger's row will have."""
        row = to_row(self.outcome)
        line = {
            "attempt_id": self.attempt_id,
            "call_key": self.call_key,
            "charge": astuple(self.charge),
            "checksum": checksum(self.call_key, row),
            "result": row,
        }
        return json.dumps(line).encode() + b"\n"


def read_answer(line: bytes) -> Answer | None:
    """Return the answer in a line of `Answer.to_line`, or None if the line was altered."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        read = json.loads(line)
        row, call_key = read["result"], read["call_key"]
        if checksum(call_key, row) == read["checksum"]:
            outcome = from_row([row.get(name) for name in COLUMNS])
            return Answer(read["attempt_id"], call_key, outcome, Spend(*read["charge"]))
    return None


class Spool:
    """The folder of waiting answers, with one file for the open ledger ``owner``."""

    def __init__(self, folder: Path, owner: str) -> None:
        self.folder = folder
        self.own = self.file_of(owner)
        self._strange = 0

    def file_of(self, owner: str) -> Path:
        """Return the path of the file in which answers of ``owner`` would wait."""
        return self.folder / f"{owner}.jsonl"

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def add(self, answer: Answer) -> None:
        """Write ``answer`` to the disk. Raises OSError or StoreError if that fails."""
        make_folder(self.folder)
        with folder_lock(self.folder):
            before = self.own.read_bytes() if self.own.exists() else b""
            write_atomic(self.own, before + answer.to_line())

    def take_in(self, store: Callable[[str, Answer], Future[bool]]) -> None:
        """Offer every answer to ``store`` with its owner, and delete the accepted ones.

        The others stay because ``store`` does not know the attempt (False) or fails. If killed
        midway, this offers some answers again, so ``store`` has to recognise those that it has.
        """
        self._strange = 0
        for file in self.files():
            try:
                data = file.read_bytes()
            except FileNotFoundError:  # another process was faster
                continue
            lines = data.splitlines(keepends=True)
            answers = [(line, read_answer(line)) for line in lines]
            offered = [(line, store(file.stem, a) if a else None) for line, a in answers]
            ends = [(line, _end(future)) for line, future in offered]
            remaining = [line for line, end in ends if end != "taken"]
            self._strange += sum(end == "unknown" for _, end in ends)
            with folder_lock(self.folder):
                # Skipped if its owner has added to it, or another process has taken them in.
                if file.exists() and file.read_bytes() == data:
                    write_atomic(file, b"".join(remaining)) if remaining else file.unlink()

    def sentence(self, count: int = 0) -> str:
        """Return a sentence about ``count`` (or all) waiting answers; empty if none is waiting."""
        line_count = sum(file.read_bytes().count(b"\n") for file in self.files())
        foreign = min(self._strange, line_count)
        count = count or line_count - foreign
        sentences = []
        if count:
            wait, are = ("answer waits", "it is") if count == 1 else ("answers wait", "they are")
            sentences.append(
                f"{count} {wait} in {self.folder}; {are} taken in when the ledger takes writes."
            )
        if foreign:
            line, stay = ("line was", "it stays") if foreign == 1 else ("lines were", "they stay")
            sentences.append(
                f"{foreign} {line} altered in {self.folder}, or of another ledger; {stay} until "
                "that ledger is opened or the files are deleted."
            )
        return " ".join(sentences)


def _end(future: Future[bool] | None) -> Literal["taken", "refused", "unknown"]:
    if future is not None and future.exception():
        return "refused"
    return "taken" if future is not None and future.result() else "unknown"
