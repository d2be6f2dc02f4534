"""SIGTERM and a closed terminal (SIGHUP) end a command as Ctrl-C does, with an exit code that says
which of them it was."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[Callable[[], int]]:
    """Within, SIGTERM and SIGHUP do what SIGINT does; yields a function that gives the first of
    the three that came (SIGINT where none did).

    A signal that was ignored from the start stays ignored: `nohup` lets a run outlive its terminal
    that way, and shells keep Ctrl-C from what they run in the background.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: signal.SIGINT
        return
    # Dagster replaces handlers while it executes, and does not say which signal came: every signal
    # that has a handler is written here as well, whose ever it is.
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
            came = os.read(reader, 4096)
        except BlockingIOError:
            came = b""
        return next((number for number in came if number in _ENDING), signal.SIGINT)

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
