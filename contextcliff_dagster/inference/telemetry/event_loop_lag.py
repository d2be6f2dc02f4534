"""How late our own event loop runs, so that our own queue is never taken for the model's
latency."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress

_EVERY_S = 0.02
_KEPT = 100_000


class LoopLag:
    """Samples the lateness of a short sleep for as long as it is entered (``async with``)."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LoopLag:
        self._task = asyncio.create_task(self._sample())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

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
