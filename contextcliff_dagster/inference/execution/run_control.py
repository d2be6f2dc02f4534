"""What bounds a run of calls, and what its caller is notified of."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.measuring_order import Order
    from contextcliff_dagster.inference.spending.budget import Budget
    from contextcliff_dagster.inference.telemetry.progress import Progress


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
