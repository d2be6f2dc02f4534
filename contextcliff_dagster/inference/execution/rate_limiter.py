"""How many requests are under way at once, and how many begin in a minute.

The number in flight follows additive increase, multiplicative decrease (D.-M. Chiu and R. Jain,
"Analysis of the increase and decrease algorithms for congestion avoidance in computer networks",
Computer Networks and ISDN Systems 17, 1989), with HTTP 429 as the sign of congestion. Errors of
other kinds say nothing about how much the server can take: they hold it where it is.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

from contextcliff_dagster.inference.models.models_file import ModelEntry

_BURST_S = 5.0
"""How far ahead a rate limit may be used: servers meter by the second, not by the minute."""


class AdaptiveLimit:
    """The number of requests that may be in flight: 1 to ``most``, beginning at ``most``.

    A full round of answers adds one; a 429 halves it. Requests that were under way when it was
    halved say nothing new: of each generation only the first 429 counts.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.generation = 1
        self._level = float(most)

    @property
    def now(self) -> int:
        """Requests that may be in flight."""
        return int(self._level)

    def answered(self, in_flight: int) -> None:
        """A request brought an answer. A limit that is not used is not known to hold: no growth."""
        if in_flight >= self.now:
            # 1/8192 of slack: four times 1/4 must be a whole one in floating point, too.
            self._level = min(float(self.most), self._level + (1 + 2**-13) / self.now)

    def slow_down(self, generation: int) -> None:
        """A request of ``generation`` was answered by 429."""
        if generation == self.generation:
            self.generation += 1
            self._level = max(1.0, math.floor(self._level / 2))


class Bucket:
    """A token bucket over seconds of a given clock: ``per_minute`` units flow in, spent as taken.

    It holds five seconds' worth (at least one unit). What is larger than that is let through when
    the bucket is full, and then owed: so any minute sees at most ``per_minute`` + the larger of the
    burst and one take, and a long run at most ``per_minute`` on average.
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self.rate = per_minute / 60
        self.size = max(1.0, self.rate * _BURST_S)
        self._level, self._at = self.size, now

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken; 0 where it may be at once."""
        self._fill(now)
        # A nanosecond of slack: a timer that fires exactly on time must not fire too early.
        missing = min(amount, self.size) - self._level
        return 0.0 if missing <= self.rate * 1e-9 else missing / self.rate

    def take(self, amount: float, now: float) -> None:
        """Spend ``amount``."""
        self._fill(now)
        self._level -= amount

    def _fill(self, now: float) -> None:
        self._level = min(self.size, self._level + max(0.0, now - self._at) * self.rate)
        self._at = max(self._at, now)


class RateLimiter:
    """The gate that every request of one run passes, first come, first served; one event loop."""

    def __init__(self, entry: ModelEntry, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = AdaptiveLimit(entry.concurrency)
        self.in_flight = 0
        self._clock = clock
        now = clock()
        self._requests = Bucket(rpm, now) if (rpm := entry.requests_per_minute) else None
        self._tokens = Bucket(tpm, now) if (tpm := entry.tokens_per_minute) else None
        self._waiting: deque[tuple[int, asyncio.Future[int | None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def enter(self, tokens: int) -> int | None:
        """Wait for the turn of a request of ``tokens``: its generation, or None once closed.

        Every generation that is returned wants a `leave`.
        """
        if self._closed:
            return None
        granted: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, granted))
        self._grant()
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.result():
                self.leave()
            granted.cancel()
            raise

    def leave(self) -> None:
        """The request has ended, however it did."""
        self.in_flight -= 1
        self._grant()

    def answered(self) -> None:
        """A request, still counted as in flight, brought an answer."""
        self.limit.answered(self.in_flight)

    def close(self) -> None:
        """Let no request in any more; those that wait get None."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            _, granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(None)

    def _grant(self) -> None:
        while self._waiting and self.in_flight < self.limit.now and not self._closed:
            tokens, granted = self._waiting[0]
            if granted.done():  # cancelled
                self._waiting.popleft()
                continue
            now = self._clock()
            buckets = ((self._requests, 1), (self._tokens, tokens))
            wait_s = max((b.wait_s(amount, now) for b, amount in buckets if b), default=0.0)
            if wait_s > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._grant)
                return
            for bucket, amount in buckets:
                if bucket:
                    bucket.take(amount, now)
            self._waiting.popleft()
            self.in_flight += 1
            granted.set_result(self.limit.generation)
