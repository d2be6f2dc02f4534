"""Retries: full-jitter back-off for transient errors, and a breaker for too many in a row."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from contextcliff_dagster.contracts import EngineError

T = TypeVar("T")


class TransientError(Exception):
    """An error that another attempt may avoid.

    ``status`` is the HTTP status, if any; ``retry_after_s`` is the wait in seconds that the server
    asks for. If ``again`` is False, the error would recur, so no other attempt is made. ``loading``
    is True if the server reports that it is still loading its model.
    """

    loading = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        again: bool = True,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after_s, self.again = status, retry_after_s, again


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: a wait drawn uniformly from 0 to ``base_s`` x 2^(attempt - 1), at most ``cap_s``
    (M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015), on top of the
    server's Retry-After, of which at most ``longest_wait_s`` is honoured.

    A call is given up after ``attempts`` errors, after more than ``slow_downs`` 429 responses (not
    counted as errors: fewer concurrent requests resolve them), or when requests and waits have
    taken ``deadline_s``. A loading model gets `LOADING_SECONDS` in addition.
    """

    attempts: int = 5
    slow_downs: int = 20
    deadline_s: float = math.inf
    base_s: float = 0.5
    cap_s: float = 30.0
    longest_wait_s: float = 120.0

    def wait_s(self, attempt: int, retry_after_s: float | None, rng: random.Random) -> float:
        """Return the seconds to wait after the failed ``attempt`` (1, 2, ...)."""
        jitter = rng.uniform(0.0, min(self.cap_s, self.base_s * 2 ** (attempt - 1)))
        requested_s = min(max(retry_after_s or 0.0, 0.0), self.longest_wait_s)
        return requested_s + jitter


LOADING_SECONDS, LOADING_WAIT_S = 900.0, 2.0
"""Longest wait for a loading model, and the interval between attempts; weights load for minutes."""
QUESTIONS = Backoff(attempts=3, slow_downs=2, longest_wait_s=5.0)
"""Back-off for small requests to a server before or between calls."""


class AttemptBudget:
    """Attempts left for one call under ``backoff``; the caller counts started ones in ``sent``."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.sent = self._errors = self._slow_downs = 0
        self._taken_s = self._loading_s = 0.0

    @property
    def left_s(self) -> float:
        """Return the seconds left until the call's deadline."""
        return max(0.0, self._backoff.deadline_s - self._taken_s)

    @property
    def told(self) -> str:
        """Return a phrase stating how often the server asked the call to wait."""
        return f"asked to wait {self._slow_downs} of at most {self._backoff.slow_downs} times"

    def wait_after(self, error: TransientError, took_s: float, rng: random.Random) -> float | None:
        """Return the seconds to wait after a request that failed in ``took_s``; None to give up."""
        if error.loading and self._loading_s < LOADING_SECONDS:
            self._loading_s += took_s + LOADING_WAIT_S
            return LOADING_WAIT_S
        slow_down = error.status == 429
        self._slow_downs += slow_down
        self._errors += not slow_down
        self._taken_s += took_s
        backoff = self._backoff
        given_up = self._errors >= backoff.attempts or self._slow_downs > backoff.slow_downs
        if given_up or not error.again:
            return None
        wait_s = backoff.wait_s(self.sent, error.retry_after_s, rng)
        self._taken_s += wait_s
        return wait_s if self._taken_s < backoff.deadline_s else None


async def retry(attempt: Callable[[], Awaitable[T]], backoff: Backoff) -> T:
    """Return the result of ``attempt``, repeated after each transient error.

    Raises:
        TransientError: the last error, once ``backoff`` gives up.
        Exception: any other error that ``attempt`` raises, at once.
    """
    budget, rng = AttemptBudget(backoff), random.Random()
    while True:
        budget.sent += 1
        started = time.perf_counter()
        try:
            return await attempt()
        except TransientError as error:
            wait_s = budget.wait_after(error, time.perf_counter() - started, rng)
            if wait_s is None:
                raise
        await asyncio.sleep(wait_s)


def retry_blocking(attempt: Callable[[], T], backoff: Backoff) -> T:
    """Retry synchronously, like `retry`, waiting in the calling thread."""
    budget, rng = AttemptBudget(backoff), random.Random()
    while True:
        budget.sent += 1
        started = time.perf_counter()
        try:
            return attempt()
        except TransientError as error:
            wait_s = budget.wait_after(error, time.perf_counter() - started, rng)
            if wait_s is None:
                raise
        time.sleep(wait_s)


def retry_after_s(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the wait in seconds that ``retry-after-ms`` or ``retry-after`` asks for (RFC 9110,
    10.2.3), or None."""
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(milliseconds) / 1000)
        if (text := headers.get("retry-after")) is None:
            return None
        try:
            return max(0.0, float(text))
        except ValueError:
            then = parsedate_to_datetime(text).timestamp()
            return max(0.0, then - (time.time() if now is None else now))
    except (ValueError, TypeError, OverflowError):
        return None


class Breaker:
    """A circuit breaker that opens after ``limit`` consecutive failures over all calls of a run."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_a_row = 0

    def success(self) -> None:
        """Record a successful request."""
        self.in_a_row = 0

    def failure(self, model: str, last: str) -> None:
        """Record a failed request; raise EngineError at the limit."""
        self.in_a_row += 1
        if self.in_a_row >= self.limit:
            raise EngineError(
                f"Model {model!r} failed {self.in_a_row} requests in a row (the last: {last}); "
                "everything measured is kept, so fix the server and run the same command to go on."
            )
