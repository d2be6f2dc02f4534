"""Ctrl-C while calls run: noted first, and raised where nothing can swallow it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Note the first SIGINT or SIGTERM; the function that is yielded raises it, as leaving does.

    A handler of another signal may call that of SIGINT, and is deferred with it.

    A handler that raises may do so inside a destructor, where Python drops the exception: the run
    would go on after Ctrl-C. A second signal raises at once. Outside the main thread nothing is
    changed.
    """
    handlers: dict[int, Callable[[int, Any], Any]] = {}
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        noted.append(number)
        if len(noted) > 1:
            handle(number, frame)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def handle(number: int, frame: Any) -> None:
        restore()  # before: one handler may call another's
        (handlers.get(number) or handlers[signal.SIGINT])(number, frame)
        for deferred in handlers:
            signal.signal(deferred, note)

    def raise_noted() -> None:
        if noted:
            handle(noted[0], None)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
        for deferred in handlers:
            signal.signal(deferred, note)
    try:
        yield raise_noted
    finally:
        restore()
    if noted:
        (handlers.get(noted[0]) or handlers[signal.SIGINT])(noted[0], None)
