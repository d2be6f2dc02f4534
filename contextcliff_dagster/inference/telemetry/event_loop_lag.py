"""How late our own event loop runs, so that our own queue is never taken for the model's
latency."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_EVERY_S = 0.02
_KEPT = 100_000


class LoopLag:
    """The lateness of a short sleep, sampled again and again."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    @asynccontextmanager
    async def sampled(self) -> AsyncIterator[None]:
        """Take samples for as long as this is entered."""
        task = asyncio.create_task(self._sample())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _sample(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_EVERY_S)
            now = time.perf_counter()
            self._samples.append((now, max(0.0, now - before - _EVERY_S)))

    def worst_ms_since(self, since: float) -> float:
        """Largest lag in ms of the samples taken after ``since`` (`time.perf_counter()`)."""
        worst = 0.0
        for at, lag in reversed(self._samples):
            if at < since:
                break
            worst = max(worst, lag)
        return worst * 1000
