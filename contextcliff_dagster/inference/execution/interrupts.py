"""Ctrl-C while calls run: noted first, and raised where nothing can swallow it.

What bounds a run of calls, and what its caller is notified of.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.call_plan import Order
    from contextcliff_dagster.inference.spending.budget import Budget
    from contextcliff_dagster.inference.telemetry.progress import Progress


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


@dataclass(frozen=True, slots=True)
class RunControl:
    """Bounds and callbacks of one run of calls; callbacks run in the caller's thread.

    Parameters:
        budget: None for no limit.
        deadline_at: by `time.monotonic()`; after it nothing is sent and no device waited for.
        should_stop: asked before the first call and ten times a second; True: nothing more is sent.
        on_progress: ten times a second at most.
        on_wait: gets a sentence where a device must be waited for or the window is unknown.
        order: in which calls are sent: blocks of one document of every bin, or as planned.
        grace_s: how long calls in flight may take to end after a stop before they are given up.
    """

    budget: Budget | None = None
    deadline_at: float | None = None
    should_stop: Callable[[], bool] | None = None
    on_progress: Callable[[Progress], None] | None = None
    on_wait: Callable[[str], None] | None = None
    order: Order = "blocks"
    grace_s: float = 10.0

    @property
    def stop_requested(self) -> bool:
        """Whether ``should_stop`` returns True now."""
        return self.should_stop is not None and self.should_stop()

    @property
    def seconds_left(self) -> float | None:
        """Until the deadline, from 0; None without one."""
        return None if self.deadline_at is None else max(self.deadline_at - time.monotonic(), 0.0)

    def must_end(self) -> bool:
        """Whether a stop was requested or the deadline has passed."""
        return self.stop_requested or self.seconds_left == 0.0


def deadline_after(deadline_s: float | None) -> float | None:
    """Return `RunControl.deadline_at` for a deadline ``deadline_s`` seconds from now."""
    return None if deadline_s is None else time.monotonic() + deadline_s
