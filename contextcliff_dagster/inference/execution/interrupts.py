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

    A handler that raises may do so inside a destructor, where Python drops the exception: the run
    would go on after Ctrl-C. A second signal raises at once. Outside the main thread nothing is
    changed.
    """
    handlers: dict[int, Callable[[int, Any], Any]] = {}
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        noted.append(number)
        if len(noted) > 1:
            handlers[number](number, frame)

    def raise_noted() -> None:
        if noted:
            handlers[noted[0]](noted[0], None)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, note)
    try:
        yield raise_noted
    finally:
        for restored, handler in handlers.items():
            signal.signal(restored, handler)
    raise_noted()
