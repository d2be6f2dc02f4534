"""What stderr shows of a command that takes long, from its first second on.

On a terminal a line that moves while the command itself writes nothing; elsewhere a line a minute,
from the first minute on. A thread writes them: the imports of a command alone take seconds on
a busy machine.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from contextcliff_dagster.step_progress import listened

_FIRST_S, _TICK_S, _EVERY_S = 1.0, 0.5, 60.0
"""After the start of the process, on a terminal; between two looks at it; between two lines
elsewhere."""
_SERVERS = {"serve", "ui"}
"""Commands that are not on their way to an end: what they say first is their sign of life."""
_WIPE = b"\r\x1b[K"
_BAR, _COLUMNS = 24, 80

_current: _SignOfLife | None = None


@contextmanager
def sign_of_life(args: Sequence[str]) -> Iterator[None]:
    """While open, stderr shows that the command line ``args`` is being worked on.

    `CONTEXTCLIFF_PROGRESS` is ``off``, or the seconds between two lines where there is no terminal.
    """
    global _current
    wanted = os.environ.get("CONTEXTCLIFF_PROGRESS", "")
    if wanted == "off" or {"-h", "--help", "--version", "--verbose"} & set(args):
        yield
        return
    try:
        stderr = os.dup(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or no file
        yield
        return
    command = next((word for word in args if not word.startswith("-")), "")
    once = command in _SERVERS
    every_s = threading.TIMEOUT_MAX if once else _seconds(wanted)
    sign = _current = _SignOfLife(stderr, every_s, once=once)
    streams = sys.stdout, sys.stderr
    if sign.terminal or once:
        sys.stdout, sys.stderr = (cast("TextIO", _Wiping(stream, sign)) for stream in streams)
    try:
        with listened(sign.step):
            yield
    finally:
        _current = None
        sign.end()
        sys.stdout, sys.stderr = streams


def note_state(text: str) -> None:
    """Remember how far the command is, for the next line."""
    if _current is not None:
        _current.state = text


def pause(paused: bool) -> None:
    """Leave the terminal to another display of progress, or take it back."""
    if _current is not None:
        _current.wipe(paused=paused)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < threading.TIMEOUT_MAX:
            return seconds
    return _EVERY_S


def _age_s() -> float:
    """Seconds since this process was started, where the system tells; else of an idle start."""
    with suppress(OSError, ValueError, AttributeError, IndexError):
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 (pathlib takes as long as all this)
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        if age >= 0:
            return age
    return 0.2


class _SignOfLife:
    def __init__(self, stderr: int, every_s: float, *, once: bool) -> None:
        # A step of Dagster turns descriptor 2 into a log file: this copy stays what it is.
        self._stderr = stderr
        self.terminal = os.isatty(stderr)
        self.state = "working"
        self._every_s, self._once = every_s, once
        self._began, self._written = time.monotonic() - _age_s(), 0.0
        self._paused = self._shown = False
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="sign of life", daemon=True)
        self._thread.start()

    def step(self, name: str, done: int, total: int | None) -> None:
        """Remember how far a step has come; one that is done is no longer what takes the time."""
        if total is None:
            self.state = f"{name}: {done:,}"
        elif done >= total:
            self.state = "working"
        else:
            full = _BAR * done // total if self.terminal else 0
            bar = f"[{'#' * full}{'.' * (_BAR - full)}] " if self.terminal else ""
            self.state = f"{name}: {bar}{done:,} of {total:,}"

    def wipe(self, *, paused: bool) -> None:
        """Clear the line for what is about to be written, and show none while ``paused``."""
        with self._lock:
            self._paused, self._written = paused or self._once, time.monotonic()
            if self._shown and self.terminal:
                self._write(_WIPE)
                self._shown = False

    def end(self) -> None:
        self.wipe(paused=True)
        self._ended.set()
        self._thread.join()
        os.close(self._stderr)

    def _run(self) -> None:
        wait_s = max((_FIRST_S if self.terminal else self._every_s) - _age_s(), 0.0)
        while not self._ended.wait(wait_s):
            wait_s = _TICK_S if self.terminal else self._every_s
            with self._lock:
                now = time.monotonic()
                if self._once and self._paused:
                    return
                if self.terminal and (self._paused or now - self._written < wait_s):
                    continue
                seconds = int(now - self._began)
                text = f"{seconds // 60}:{seconds % 60:02d} min, {self.state}"
                if self.terminal:
                    self._write(_WIPE + text[: self._columns() - 1].encode())
                else:
                    self._write(f"Progress: {text}\n".encode())
                self._shown = True

    def _columns(self) -> int:
        with suppress(OSError):
            return os.get_terminal_size(self._stderr).columns or _COLUMNS
        return _COLUMNS

    def _write(self, line: bytes) -> None:
        with suppress(OSError):  # nobody reads it any more
            os.write(self._stderr, line)


class _Wiping:
    """A stream that takes the moving line away before it writes."""

    def __init__(self, stream: TextIO, sign: _SignOfLife) -> None:
        self._stream, self._sign = stream, sign

    def write(self, text: str) -> int:
        # A line that is not finished is a question, and the answer is being typed.
        self._sign.wipe(paused=not text.endswith("\n"))
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            self._sign.wipe(paused=True)
        return getattr(self._stream, name)
