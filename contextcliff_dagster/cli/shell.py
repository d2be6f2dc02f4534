"""Process-level behaviour of the command line: signals, progress on stderr, completion.

SIGTERM and a closed terminal (SIGHUP) end a command like Ctrl-C, with an exit code that identifies
the signal.

A long command shows its state on stderr: on a terminal, an updating line while the command itself
writes nothing, and each step at its beginning; elsewhere, one line per minute from the first minute
on. A thread writes them, because a command's imports alone take seconds on a busy machine.

Completion works in bash, zsh and fish, which run the command with `_CONTEXTCLIFF_COMPLETE` set
(click's protocol). Values that cannot be read are not offered, and never cause an error while the
user is typing.
"""

from __future__ import annotations

import atexit
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO, cast

import click
from click.shell_completion import CompletionItem

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.contracts.extensions import load_address
from contextcliff_dagster.freed_memory import collect_garbage_rarely, lean_allocator
from contextcliff_dagster.step_progress import listened, report_step

_LEAST = 2_500_000_000


def require_address_space() -> None:
    """Refuse an address space so small that native libraries would exit or hang.

    Raises:
        StoreError: ``ulimit -v`` is below 2.5 GB.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST:
        raise StoreError(
            f"This process may use {limit / 1e9:.1f} GB of address space, and a run reserves up to "
            f"{_LEAST / 1e9:.1f} GB; raise the limit (ulimit -v)."
        )


def set_up_process() -> None:
    """Tune this process, which imports many modules and runs one command."""
    collect_garbage_rarely()
    lean_allocator()


def end_process(code: int) -> NoReturn:
    """Exit with ``code`` after the registered exit handlers, without tearing modules down.

    Python would free every object one by one before the system frees them all at once, which takes
    0.7 CPU seconds after a run. A debugger or a profiler still gets a normal exit.
    """
    try:
        at_end = threading._shutdown, atexit._run_exitfuncs  # type: ignore[attr-defined]
    except AttributeError:
        sys.exit(code)
    if sys.gettrace() or sys.getprofile() or sys.flags.interactive:
        sys.exit(code)
    for step in at_end:
        step()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        sys.exit(code)  # as Python says it
    os._exit(code)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[Callable[[], int]]:
    """Make SIGTERM and SIGHUP act like SIGINT within the block; yield a function that returns the
    first of the three received (SIGINT if none was).

    A signal that was ignored from the start stays ignored: this lets `nohup` runs outlive their
    terminal, and shells protect background jobs from Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: signal.SIGINT
        return
    # Dagster replaces handlers while it executes, and hides which signal came: every signal
    # that has a handler is written here as well, whoever set it.
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    replaced = {
        number: signal.signal(number, _as_ctrl_c)
        for number in _ENDING[1:]
        if signal.getsignal(number) is signal.SIG_DFL
    }
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def first() -> int:
        try:
            received = os.read(reader, 4096)
        except BlockingIOError:
            received = b""
        return next((number for number in received if number in _ENDING), signal.SIGINT)

    try:
        yield first
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in replaced.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _as_ctrl_c(number: int, frame: Any) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(number, frame)


_FIRST_S, _TICK_S, _EVERY_S = 1.0, 0.5, 60.0
"""Before the first line and between updates on a terminal; between lines elsewhere."""
_SERVERS = {"serve", "ui"}
"""Commands that run until stopped; they show progress only until their first output."""
_READERS = {"profile", "prepare", "report", "answers"}
"""Commands that show, before anything else is imported, that they read a study."""
_WIPE = b"\r\x1b[K"
_BAR, _COLUMNS = 24, 80

_current: _SignOfLife | None = None


@contextmanager
def sign_of_life(args: Sequence[str]) -> Iterator[None]:
    """Show the progress of the command line ``args`` on stderr within the block.

    `CONTEXTCLIFF_PROGRESS` is ``off``, or the seconds between two lines if there is no terminal.
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
            if command in _READERS or (args and args[0].startswith("-")):  # `profile`'s options
                report_step("reading the study")
            sign.thread.start()
            yield
    finally:
        _current = None
        sign.end()
        sys.stdout, sys.stderr = streams


def note_state(text: str) -> None:
    """Set the progress text for the next line."""
    if _current is not None:
        _current.state = text


def pause(paused: bool) -> None:
    """Yield the terminal to another progress display, or take it back."""
    if _current is not None:
        _current.gives_way = paused
        _current.wipe(paused=paused)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < threading.TIMEOUT_MAX:
            return seconds
    return _EVERY_S


def _age_s() -> float:
    """Return the seconds since this process started; 0.2 if the system does not report it."""
    with suppress(OSError, ValueError, AttributeError, IndexError):
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 (pathlib takes as long as all this)
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        if age >= 0:
            return age
    return 0.2


class _SignOfLife:
    def __init__(self, stderr: int, every_s: float, *, once: bool) -> None:
        # A Dagster step turns descriptor 2 into a log file: this copy stays the terminal.
        self._stderr = stderr
        self.terminal = os.isatty(stderr)
        self.state = self._step = "working"
        self._every_s, self._once = every_s, once
        self._began, self._written = time.monotonic() - _age_s(), 0.0
        self.gives_way = self._paused = self._shown = False
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, name="sign of life", daemon=True)

    def step(self, name: str, done: int, total: int | None) -> None:
        """Set the state to a step's progress, or the step around it; show a beginning at once."""
        if total is None and not done:
            self.state = self._step = name
            if self.terminal:
                with self._lock:
                    self._show()
        elif total is None:
            self.state = f"{name}: {done:,}"
        elif done >= total:
            self.state = self._step
        else:
            full = _BAR * done // total if self.terminal else 0
            bar = f"[{'#' * full}{'.' * (_BAR - full)}] " if self.terminal else ""
            self.state = f"{name}: {bar}{done:,} of {total:,}"

    def wipe(self, *, paused: bool) -> None:
        """Clear the progress line before other output, and show none while ``paused``."""
        with self._lock:
            self._paused, self._written = paused or self._once, time.monotonic()
            if self._shown and self.terminal:
                self._write(_WIPE)
                self._shown = False

    def end(self) -> None:
        self.wipe(paused=True)
        self._ended.set()
        self.thread.join()
        os.close(self._stderr)

    def _run(self) -> None:
        wait_s = max((_FIRST_S if self.terminal else self._every_s) - _age_s(), 0.0)
        while not self._ended.wait(wait_s):
            wait_s = _TICK_S if self.terminal else self._every_s
            with self._lock:
                if self._once and self._paused:
                    return
                if not self.terminal or time.monotonic() - self._written >= wait_s:
                    self._show()

    def _show(self) -> None:
        if self._paused or self.gives_way:
            return
        seconds = int(time.monotonic() - self._began)
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
    """A stream that clears the progress line before each write."""

    def __init__(self, stream: TextIO, sign: _SignOfLife) -> None:
        self._stream, self._sign = stream, sign

    def write(self, text: str) -> int:
        # An unfinished line is a question, and the answer is being typed.
        self._sign.wipe(paused=not text.endswith("\n"))
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            self._sign.wipe(paused=True)
        return getattr(self._stream, name)


class _OneOf(click.ParamType[str]):
    """A text parameter, completed from ``names`` and, with ``files``, from file names.

    An address (``module:attribute``) among ``names`` is that of names, or of what returns them.
    """

    name = "text"

    def __init__(self, *names: str, files: bool = False) -> None:
        self._names = names
        self._files = files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        items = [CompletionItem(incomplete, type="file")] if self._files else []
        with suppress(Exception):
            known = (name for names in map(_named, self._names) for name in names)
            names = sorted(name for name in known if name.startswith(incomplete))
            items += [CompletionItem(name) for name in names]
        return items


def _named(name: str) -> Iterable[str]:
    if ":" not in name:
        return (name,)
    names = load_address(f"contextcliff_dagster.{name}")
    return list(names() if callable(names) else names)


def add_completion(command: click.Command) -> None:
    """Add value completion to the parameters of ``command`` and its subcommands."""
    for parameter in command.params:
        if parameter.type is click.STRING and parameter.name in _VALUES:
            parameter.type = _VALUES[parameter.name]
    for inner in getattr(command, "commands", {}).values():
        add_completion(inner)


_VALUES = {
    "study": _OneOf("studies:load_studies", files=True),
    **dict.fromkeys(
        ("model", "models", "a", "b"), _OneOf("inference.models.models_file:load_models")
    ),
    "preset": _OneOf("inference.models.models_file:PRESETS"),
    "dataset": _OneOf("corpora.benchmarks.benchmark_table:PUBLISHED", "python-source"),
    "tasks": _OneOf("lookup", "two_hop"),
    "score": _OneOf("cli.measuring.options:PRIMARY_SCORES", "scoring.scorers:scorer_names"),
    "controls": _OneOf("no_context", "oracle", "no_context,oracle"),
    "questions": _OneOf("recall", files=True),
    "data": _OneOf(files=True),
}
"""Parameter name -> completion type, for all commands."""
