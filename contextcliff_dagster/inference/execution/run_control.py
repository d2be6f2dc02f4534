"""How one run of calls is limited and asked, and whom it tells of its progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from contextcliff_dagster.inference.requests.call_plan import Order
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import Progress

Batching = Literal["submit", "wait", "resume"]
"""How calls are asked in batches: all of them, ending once they are asked (submit) or answered
(wait); or, by resume, only those that an open batch was asked."""


@dataclass(frozen=True, slots=True)
class RunControl:
    """Limits and callbacks of one run of calls; callbacks run in the caller's thread.

    Parameters:
        budget: None for no limit.
        deadline_at: `time.monotonic()` time at which sending and waiting for devices stop.
        should_stop: checked before the first call and ten times a second; True stops sending.
        on_progress: called at most ten times a second.
        on_wait: gets a sentence if a device is awaited or the window is unknown.
        order: sending order: blocks with one document of every bin, or as planned.
        grace_s: seconds that calls in flight get to end after a stop.
        batching: None for streamed calls.
    """

    budget: Budget | None = None
    deadline_at: float | None = None
    should_stop: Callable[[], bool] | None = None
    on_progress: Callable[[Progress], None] | None = None
    on_wait: Callable[[str], None] | None = None
    order: Order = "blocks"
    grace_s: float = 10.0
    batching: Batching | None = None

    @property
    def stop_requested(self) -> bool:
        """Whether ``should_stop`` returns True now."""
        return self.should_stop is not None and self.should_stop()

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; None without a deadline."""
        return None if self.deadline_at is None else max(self.deadline_at - time.monotonic(), 0.0)

    def must_end(self) -> bool:
        """Return whether a stop was requested or the deadline has passed."""
        return self.stop_requested or self.seconds_left == 0.0


def deadline_after(deadline_s: float | None) -> float | None:
    """Return `RunControl.deadline_at` for a deadline ``deadline_s`` seconds from now."""
    return None if deadline_s is None else time.monotonic() + deadline_s
