"""Telemetry of a running measurement: progress, counters, and spans of runs, bins and requests.

`Trace` and `RequestSpan` do nothing; those of `otel_spans` send spans. Spans carry only names,
numbers and hashes: no text, no address and no server message.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from contextcliff_dagster.inference.requests.call_plan import Failure, Outcome, PlannedCall

_EVERY_S = 0.02
_KEPT = 100_000


class LoopLag:
    """The event loop's lag, sampled repeatedly as the lateness of a short sleep."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    @asynccontextmanager
    async def sampled(self) -> AsyncIterator[None]:
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
        """Return the largest lag in ms since ``since`` (`time.perf_counter()`)."""
        worst = 0.0
        for taken_at, lag in reversed(self._samples):
            if taken_at < since:
                break
            worst = max(worst, lag)
        return worst * 1000


class RequestSpan:
    """The span of one request, from sending to its end."""

    def answered(self, outcome: Outcome) -> None:
        """Record that an outcome was stored: an answer, or that the prompt is too long."""

    def failed(self, failure: Failure) -> None:
        """Record that the request brought no answer."""


class Trace:
    """The trace of one run that sends calls to one model."""

    def bin_begun(self, bin: str) -> None:
        """Record that a call in ``bin`` begins; called for every call."""

    def request(self, call: PlannedCall, number: int) -> RequestSpan:
        """Return the span of the ``number``-th request of ``call``, before it is sent."""
        return RequestSpan()

    def bin_ended(self, bin: str) -> None:
        """Record that every call in ``bin`` has ended, even if this run made none of them."""

    def end(self, summary: RunSummary | None) -> None:
        """End the trace; ``summary`` is None if an error ended the run."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot while calls run; ``done`` counts planned calls with an outcome, old or new.

    ``concurrency``: how many requests may be in flight now. ``asked_to_wait``: if the server's rate
    limit delays calls, how often one of them waited and its current wait.
    """

    planned: int
    done: int
    cached: int
    in_flight: int
    waiting: int
    retries: int
    failed: int
    concurrency: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: float
    elapsed_s: float
    seconds_left: float | None
    asked_to_wait: str = ""

    @property
    def tokens_per_s(self) -> float | None:
        """Prompt and output tokens of this run's answers per second; None before the first."""
        return _pace(self.prompt_tokens + self.completion_tokens, self.elapsed_s)


@dataclass(slots=True)
class RunSummary:
    """Result of one run of calls. ``sent`` counts requests, including retries.

    ``cached``: outcomes that the ledger had before; ``by_others``: outcomes that another process
    delivered meanwhile. ``orphans``: calls sent by processes that died before an answer was kept
    (charged to the budget, sent again). ``maybe_paid``: requests of this run that died after they
    were sent, perhaps paid (charged, too); ``_usd``: what either was charged with.
    ``unchecked_truncation``: answers without two counts of the prompt's tokens to compare.
    ``usage_too_large``: answers whose reported usage cannot be true; it is not used. ``overlong``:
    answers that were cut, because the server does not keep to the output limit.
    ``reasoning_tokens`` are part of ``completion_tokens``; ``reasoned_out``: answers that are
    empty, because reasoning used up the output limit. ``concurrency``: how many requests the server
    took at once in the end (0: none was sent). ``batched``: calls were asked in batches;
    ``in_batches``: those that still wait there.
    ``stopped``: ended on request. ``words``: of the
    last call that got no answer, why.
    """

    planned: int
    cached: int = 0
    by_others: int = 0
    sent: int = 0
    answered: int = 0
    context_overflow: int = 0
    invalid_truncated: int = 0
    content_filter: int = 0
    transport_errors: int = 0
    retries: int = 0
    orphans: int = 0
    orphans_usd: float = 0.0
    maybe_paid: int = 0
    maybe_paid_usd: float = 0.0
    unchecked_truncation: int = 0
    usage_too_large: int = 0
    overlong: int = 0
    concurrency: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    reasoned_out: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    batched: bool = False
    in_batches: int = 0
    stopped: bool = False
    words: str = ""

    @property
    def tokens_per_s(self) -> float | None:
        """Prompt and output tokens of this run's answers per second; None if there are none."""
        return _pace(self.prompt_tokens + self.completion_tokens, self.seconds)

    def plus(self, other: RunSummary) -> RunSummary:
        """Combine two runs of one model: sums, and the later concurrency if it sent any."""
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return RunSummary(
            **{
                **sums,
                # Each run sees everything that an earlier one left behind.
                "orphans": max(self.orphans, other.orphans),
                "orphans_usd": max(self.orphans_usd, other.orphans_usd),
                "concurrency": other.concurrency or self.concurrency,
                "batched": self.batched or other.batched,
                "stopped": self.stopped or other.stopped,
                "words": other.words or self.words,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _pace(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens and seconds > 0 else None


class CallCounters:
    """Running counts for one run; ``total`` becomes the run's final result."""

    def __init__(self, calls: Sequence[PlannedCall]) -> None:
        self.total = RunSummary(planned=len(calls))
        self.in_flight = self.waiting = 0
        self.asked_to_wait = ""
        self._started = time.perf_counter()
        self._tokens_left = sum(call.length_tokens for call in calls)
        self._tokens_done = 0

    def ended(self, call: PlannedCall, how: str, outcome: Outcome | None) -> None:
        """Count an ended call: ``cached``, ``by_others``, ``new`` or ``failed`` (no outcome)."""
        total = self.total
        self._tokens_left -= call.length_tokens
        if how == "cached":
            total.cached += 1
            return
        self._tokens_done += call.length_tokens
        if how == "by_others":
            total.by_others += 1
        elif outcome is None:
            total.transport_errors += 1
        else:
            total.answered += outcome.no_answer is None
            total.context_overflow += outcome.no_answer == "context_overflow"
            total.invalid_truncated += outcome.no_answer == "invalid_truncated"
            total.content_filter += outcome.no_answer == "content_filter"
            total.prompt_tokens += outcome.prompt_tokens or 0
            total.cached_tokens += outcome.cached_tokens or 0
            total.completion_tokens += outcome.completion_tokens or 0
            total.reasoning_tokens += outcome.reasoning_tokens or 0
            total.reasoned_out += outcome.reasoned_out
            total.cost_usd += outcome.cost_usd or 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._started

    def progress(self, concurrency: int) -> Progress:
        """Return a snapshot; the time left is based on document tokens, which dominate it."""
        total, done = self.total, self._tokens_done
        unsuccessful = total.context_overflow + total.invalid_truncated + total.content_filter
        return Progress(
            planned=total.planned,
            done=total.cached
            + total.by_others
            + total.answered
            + unsuccessful
            + total.transport_errors,
            cached=total.cached,
            in_flight=self.in_flight,
            waiting=self.waiting,
            retries=total.retries,
            failed=total.transport_errors,
            concurrency=concurrency,
            prompt_tokens=total.prompt_tokens,
            cached_tokens=total.cached_tokens,
            completion_tokens=total.completion_tokens,
            cost_usd=total.cost_usd,
            elapsed_s=self.seconds,
            seconds_left=self._tokens_left * self.seconds / done if done else None,
            asked_to_wait=self.asked_to_wait,
        )
