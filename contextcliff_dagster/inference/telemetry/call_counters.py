"""Counting while calls run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.outcome import Orphan, Outcome
from contextcliff_dagster.inference.telemetry.progress import Progress, RunSummary


class CallCounters:
    """The running counts of one run; numbers of kept calls are of this run's own answers."""

    def __init__(self, calls: Sequence[PlannedCall]) -> None:
        self._started = time.perf_counter()
        self.planned = len(calls)
        self._tokens_left = sum(call.length_tokens for call in calls)
        self._tokens_done = 0
        self.cached = self.by_others = self.answered = self.overflow = self.truncated = (
            self.failed
        ) = 0
        self.in_flight = self.waiting = self.retries = self.sent = self.unchecked = 0
        self.maybe_paid = self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.reasoning_tokens = self.reasoned_out = 0
        self.cost_usd = self.maybe_paid_usd = 0.0

    def perhaps_paid(self, usd: float) -> None:
        """A request died after it was sent; ``usd`` is what it was charged with."""
        self.maybe_paid += 1
        self.maybe_paid_usd += usd

    def ended(self, call: PlannedCall, how: str, outcome: Outcome | None) -> None:
        """A call has ended: ``cached``, ``by_others``, ``new`` or ``failed`` (without outcome)."""
        self._tokens_left -= call.length_tokens
        if how == "cached":
            self.cached += 1
            return
        self._tokens_done += call.length_tokens
        if how == "by_others":
            self.by_others += 1
        elif outcome is None:
            self.failed += 1
        else:
            self.answered += outcome.no_answer is None
            self.overflow += outcome.no_answer == "context_overflow"
            self.truncated += outcome.no_answer == "invalid_truncated"
            self.prompt_tokens += outcome.prompt_tokens or 0
            self.cached_tokens += outcome.cached_tokens or 0
            self.completion_tokens += outcome.completion_tokens or 0
            self.reasoning_tokens += outcome.reasoning_tokens or 0
            self.reasoned_out += outcome.reasoned_out
            self.cost_usd += outcome.cost_usd or 0.0

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._started

    def progress(self, concurrency: int) -> Progress:
        """A snapshot; time left by document tokens, which is what calls take their time for."""
        left = None
        if self._tokens_done:
            left = self._tokens_left * self.seconds / self._tokens_done
        done = (
            self.cached
            + self.by_others
            + self.answered
            + self.overflow
            + self.truncated
            + self.failed
        )
        return Progress(
            planned=self.planned,
            done=done,
            cached=self.cached,
            in_flight=self.in_flight,
            waiting=self.waiting,
            retries=self.retries,
            failed=self.failed,
            concurrency=concurrency,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            cost_usd=self.cost_usd,
            elapsed_s=self.seconds,
            seconds_left=left,
        )

    def summary(self, orphans: Sequence[Orphan], *, stopped: bool, concurrency: int) -> RunSummary:
        """What the run came to."""
        return RunSummary(
            planned=self.planned,
            cached=self.cached,
            by_others=self.by_others,
            sent=self.sent,
            answered=self.answered,
            context_overflow=self.overflow,
            invalid_truncated=self.truncated,
            transport_errors=self.failed,
            retries=self.retries,
            orphans=len(orphans),
            orphans_usd=sum(orphan.reserved_usd for orphan in orphans),
            maybe_paid=self.maybe_paid,
            maybe_paid_usd=self.maybe_paid_usd,
            unchecked_truncation=self.unchecked,
            concurrency=concurrency,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=self.reasoning_tokens,
            reasoned_out=self.reasoned_out,
            cost_usd=self.cost_usd,
            seconds=self.seconds,
            stopped=stopped,
        )
