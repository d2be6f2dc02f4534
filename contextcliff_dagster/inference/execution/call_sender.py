"""Sending one call, from checking its length to its outcome, with retries and rate limits.

Two limits apply to requests: how many are in flight at once, and how many start per minute. The
number in flight follows additive increase, multiplicative decrease (D.-M. Chiu and R. Jain,
"Analysis of the increase and decrease algorithms for congestion avoidance in computer networks",
Computer Networks and ISDN Systems 17, 1989), with HTTP 429 as the sign of congestion. Other errors
tell nothing about the server's capacity, so they leave the limit unchanged.

Transport errors are retried within limits of count and time. Answers, however bad, are results and
are never requested twice.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import (
    REFUSED,
    WHO_ANSWERED,
    Decoding,
    EngineSession,
    PromptCount,
    RejectedError,
    TransportError,
)
from contextcliff_dagster.inference.execution.checks import (
    CallSize,
    charge,
    is_too_large,
    size_of,
    was_truncated,
)
from contextcliff_dagster.inference.execution.cost_estimate import overflows
from contextcliff_dagster.inference.execution.single_request import Answer, ask, judge, unanswered
from contextcliff_dagster.inference.ledger.ledger import Begun, Ledger, Scope
from contextcliff_dagster.inference.ledger.queries import LEAST_TOLD
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import (
    Failure,
    Order,
    Outcome,
    PlannedCall,
    in_blocks,
)
from contextcliff_dagster.inference.requests.recipe import Prompt, stable_hash
from contextcliff_dagster.inference.spending import Budget, Spend
from contextcliff_dagster.inference.telemetry import CallCounters, LoopLag, RequestSpan, Trace
from contextcliff_dagster.retry import AttemptBudget, Backoff, Breaker

_BURST_S = 5.0
"""Seconds of a rate limit that may be used at once, because servers meter by the second."""


class AdaptiveLimit:
    """Limit on the requests in flight: 1 to ``most``, starting at ``most``.

    A full round of answers adds one; a 429 halves it. Requests that were in flight at that time
    give no new information, so only the first 429 of each generation counts.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.generation = 1
        self._level = float(most)

    @property
    def now(self) -> int:
        """The number of requests that may be in flight."""
        return int(self._level)

    def answered(self, in_flight: int) -> None:
        """Record an answered request. The limit grows only if it was fully used."""
        if in_flight >= self.now:
            # 1/8192 of slack: four times 1/4 must be a whole one in floating point, too.
            self._level = min(float(self.most), self._level + (1 + 2**-13) / self.now)

    def slow_down(self, generation: int) -> None:
        """Record that a request of ``generation`` got a 429."""
        if generation == self.generation:
            self.generation += 1
            self._level = max(1.0, math.floor(self._level / 2))


class Bucket:
    """A token bucket on a clock in seconds, into which ``per_minute`` units flow per minute.

    It holds five seconds' worth (at least one unit). A larger request passes when the bucket is
    full and leaves a debt, so any minute sees at most ``per_minute`` + the larger of the burst and
    one request, and a long run at most ``per_minute`` on average.
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self.rate = per_minute / 60
        self.size = max(1.0, self.rate * _BURST_S)
        self._level, self._at = self.size, now

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until ``amount`` may be taken, or 0 if it may be taken now."""
        self._fill(now)
        # A nanosecond of slack: a timer that fires exactly on time must not fire too early.
        missing = min(amount, self.size) - self._level
        return 0.0 if missing <= self.rate * 1e-9 else missing / self.rate

    def take(self, amount: float, now: float) -> None:
        """Spend ``amount`` units."""
        self._fill(now)
        self._level -= amount

    def _fill(self, now: float) -> None:
        self._level = min(self.size, self._level + max(0.0, now - self._at) * self.rate)
        self._at = max(self._at, now)


class RateLimiter:
    """A first-come, first-served gate for every request of one run, on one event loop."""

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
        """Wait for a request's turn; return its generation, or None once the gate is closed.

        Call `leave` for every generation that is returned.
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
        """Record that a request has ended, in whatever way."""
        self.in_flight -= 1
        self._grant()

    def answered(self) -> None:
        """Record that a request, which still counts as in flight, was answered."""
        self.limit.answered(self.in_flight)

    def close(self) -> None:
        """Admit no more requests; waiting ones get None."""
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


REASONED_OUT = (5, 8)
"""(n, m): stop the calls if reasoning used up the output limit in n of the first m answers."""


def decoding_of(call: PlannedCall) -> Decoding:
    """Return how the answer to ``call`` is decoded."""
    recipe = call.recipe
    drawn = recipe.sampling
    if drawn is not None:
        drawn = replace(drawn, seed=drawn.seed_of(call.replicate), rounds=1)
    limit, temperature = recipe.max_output_tokens, recipe.temperature
    schema = recipe.output_schema if recipe.constrained else None
    return Decoding(limit, temperature, recipe.prefix_cache, drawn, schema, recipe.attention)


def in_sending_order(
    calls: Sequence[PlannedCall], scope: Scope, order: Order
) -> Sequence[PlannedCall]:
    """Return the calls of a model in ``order``; blocks are drawn once per campaign."""
    if order == "by_length":
        return calls
    seed = int(stable_hash([scope.study, scope.campaign, scope.model]), 16)
    return in_blocks(calls, seed)


class Pin:
    """Checks that one server gives all answers, if the entry asks for that."""

    def __init__(self, entry: ModelEntry, study: str) -> None:
        self._entry, self._study = entry, study
        self._pinned: dict[str, Any] = {}

    def require_same(self, outcome: Outcome) -> None:
        """Raise EngineError if another server answered than first."""
        reply_fields = outcome.extra or {}
        who = {name: reply_fields[name] for name in WHO_ANSWERED if name in reply_fields}
        if not self._entry.pin or not who:
            return
        self._pinned = self._pinned or who
        if who != self._pinned:
            raise EngineError(
                f"Model {self._entry.name!r} is pinned to {self._pinned}, but {who} answered; "
                "route it to a single server, or start a new campaign with `contextcliff campaign "
                f"new {self._study}`."
            )


@dataclass(frozen=True, slots=True)
class _Sending:
    """A call that is being sent, its reservation, and the model's ``own`` count of its prompt."""

    call: PlannedCall
    prompt: Prompt
    own: PromptCount | None
    size: CallSize
    reserve: Spend
    attempts: AttemptBudget


@dataclass(frozen=True, slots=True)
class CallEvents:
    """Counters, trace and callbacks of a run's calls.

    ``ended`` gets a call's outcome (``new``, ``by_others``, or ``failed`` with no outcome);
    ``held`` gets a call that another process is already making.
    """

    counters: CallCounters
    ended: Callable[[PlannedCall, str, Outcome | None], None]
    held: Callable[[PlannedCall], None]
    trace: Trace


class CallSender:
    """Sender of one run's calls. A call that `halt` interrupts is left unchanged."""

    def __init__(
        self,
        session: EngineSession,
        ledger: Ledger,
        scope: Scope,
        budget: Budget,
        events: CallEvents,
    ) -> None:
        entry = session.entry
        self._engine, self._entry, self._ledger = session.engine, entry, ledger
        self._scope, self._budget = scope, budget
        self._counters, self._trace = events.counters, events.trace
        self._ended, self._held = events.ended, events.held
        self.pin = Pin(entry, scope.study)
        self._most_of_estimate = ledger.most_of_estimate(scope.study, scope.campaign, scope.model)
        self._halt = asyncio.Event()
        self._backoff = Backoff(attempts=entry.max_attempts, deadline_s=entry.longest_call_s)
        self._breaker = Breaker(max(entry.breaker_failures, 2 * entry.concurrency))
        self._random = random.Random()
        self.limiter = RateLimiter(entry)
        self.lag = LoopLag()

    def halt(self) -> None:
        self._halt.set()
        self.limiter.close()

    async def take(self, call: PlannedCall) -> None:
        """Complete ``call``, unless another process is making it or the run is halted."""
        prompt = call.prompt()
        own = await self._engine.count_prompt_tokens(prompt)
        if overflow := overflows(call, prompt, own, self._engine.window_tokens):
            outcome = unanswered(own, overflow, attempts=0)
            await asyncio.wrap_future(self._ledger.keep_unsent(call, prompt, self._scope, outcome))
            self._ended(call, "new", outcome)
            return
        size = size_of(
            call,
            prompt,
            own,
            window_tokens=self._engine.window_tokens,
            most_of_estimate=self._most_of_estimate,
        )
        reserve = size.reserve(self._entry.price)
        sending = _Sending(call, prompt, own, size, reserve, AttemptBudget(self._backoff))
        while (wait_s := await self._once(sending)) is not None:
            self._counters.total.retries += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._halt.wait(), wait_s)

    async def _once(self, sending: _Sending) -> float | None:
        """Make one attempt; return the seconds until the next, or None if it was the last."""
        call = sending.call
        generation = await self.limiter.enter(sending.reserve.tokens)
        if generation is None:
            if sending.attempts.sent:
                await asyncio.wrap_future(self._ledger.release(call.call_key))
            return None
        try:
            attempt = self._ledger.begin(
                call,
                sending.prompt,
                self._scope,
                sending.reserve,
                self._budget,
                sending.size.estimated_tokens,
            )
            try:
                started = await asyncio.wrap_future(attempt)
            except asyncio.CancelledError:
                attempt.add_done_callback(lambda done: self._never_sent(call, done))
                raise
            if started.state == "finished":
                outcome = self._ledger.outcomes([call.call_key])[call.call_key]
                self._ended(call, "by_others", outcome)
                return None
            if started.state == "held":
                self._held(call)
                return None
            sending.attempts.sent += 1
            return await self._send(sending, started.attempt_id, generation)
        finally:
            self.limiter.leave()

    def _never_sent(self, call: PlannedCall, attempt: Future[Begun]) -> None:
        """Record that an attempt was begun but never sent, because the run was stopped."""
        if attempt.exception() is None and attempt.result().state == "send":
            failure = Failure("interrupted", "stopped before it was sent")
            attempt_id = attempt.result().attempt_id
            self._ledger.fail(attempt_id, call.call_key, failure, Spend(), release=True)

    async def _send(self, sending: _Sending, attempt_id: int, generation: int) -> float | None:
        call, own, attempts = sending.call, sending.own, sending.attempts
        size, price = sending.size, self._entry.price
        total, recipe, decoding = self._counters.total, call.recipe, decoding_of(call)
        total.sent += 1
        span = self._trace.request(call, attempts.sent)
        wait_s = None
        started = time.perf_counter()
        try:
            answer = await self._ask_in_time(sending.prompt, decoding, attempts.left_s)
        except TransportError as error:
            if error.status == 429:
                self.limiter.limit.slow_down(generation)
            wait_s = attempts.wait_after(error, time.perf_counter() - started, self._random)
            final = wait_s is None
            if error.status == 429 and wait_s is not None:
                self._counters.asked_to_wait = f"{attempts.told}, {wait_s:.0f} s now"
            failure = Failure(error.kind, str(error), error.maybe_paid, error.status, final)
        except RejectedError as error:
            if error.why in ("context_overflow", "content_filter"):
                outcome = unanswered(own, str(error), error.why, attempts=attempts.sent)
                await self._kept(call, attempt_id, span, outcome, Spend())
                return None
            failure = Failure(error.why, str(error), status=error.status, final=True)
        except BaseException as error:
            # Cancelled, refused for good, or a bug: the call did not fail for good.
            kind = "interrupted" if isinstance(error, asyncio.CancelledError) else "engine"
            sent = not isinstance(error, EngineError)
            failure = Failure(kind, str(error) or kind, maybe_paid=sent)
            span.failed(failure)
            self._note_failure(sending, attempt_id, failure, release=True)
            raise
        else:
            lag_ms = self.lag.worst_ms_since(started)
            outcome = judge(answer, own, size, price, attempts.sent, lag_ms)
            if size.estimated_tokens >= LEAST_TOLD and outcome.prompt_tokens:
                told = outcome.prompt_tokens / size.estimated_tokens
                self._most_of_estimate = max(self._most_of_estimate, told)
            total.unchecked_truncation += was_truncated(own, outcome.prompt_tokens) is None
            total.usage_too_large += answer.usage is not None and is_too_large(answer.usage, size)
            total.overlong += answer.overlong
            await self._kept(call, attempt_id, span, outcome, charge(outcome, size, price))
            if total.reasoned_out >= REASONED_OUT[0] and total.answered <= REASONED_OUT[1]:
                raise EngineError(
                    f"Model {self._scope.model!r} used up its output limit of "
                    f"{recipe.max_output_tokens} tokens by reasoning and answered nothing, in "
                    f"{total.reasoned_out} of the first {total.answered} calls; raise `prompt: "
                    "max_output_tokens` of the study (such as to 4096), and run the same command "
                    "again."
                )
            self.pin.require_same(outcome)
            return None
        span.failed(failure)
        await self._failed(sending, attempt_id, failure)
        return wait_s

    async def _ask_in_time(self, prompt: Prompt, decoding: Decoding, left_s: float) -> Answer:
        """Return the answer; stop at the call's deadline if it comes before the timeout."""
        if left_s >= self._entry.timeout_s:
            return await ask(self._engine, prompt, decoding)
        try:
            async with asyncio.timeout(left_s):
                return await ask(self._engine, prompt, decoding)
        except TimeoutError:
            raise TransportError(
                "deadline",
                f"no complete answer within the call's deadline of {self._backoff.deadline_s:g} s",
                maybe_paid=True,
            ) from None

    async def _kept(
        self, call: PlannedCall, attempt_id: int, span: RequestSpan, outcome: Outcome, cost: Spend
    ) -> None:
        span.answered(outcome)
        await asyncio.wrap_future(self._ledger.finish(attempt_id, call.call_key, outcome, cost))
        self._breaker.success()
        self.limiter.answered()
        self._ended(call, "new", outcome)
        self._counters.asked_to_wait = ""

    async def _failed(self, sending: _Sending, attempt_id: int, failure: Failure) -> None:
        release = failure.final
        try:
            # A request to wait is not a breakdown, and neither are prompts that do not fit.
            total = self._counters.total
            refused = failure.kind in (REFUSED, "quota") and total.answered + total.cached
            asked_to_wait = failure.status in (429, 503, 529)
            if not refused and (not asked_to_wait or failure.final):
                self._breaker.failure(self._scope.model, failure.message)
        except EngineError:
            release = True
            raise
        finally:
            recorded = self._note_failure(sending, attempt_id, failure, release=release)
            await asyncio.wrap_future(recorded)
            if failure.final:
                self._counters.total.words = failure.message
                self._ended(sending.call, "failed", None)

    def _note_failure(
        self, sending: _Sending, attempt_id: int, failure: Failure, *, release: bool
    ) -> Future[None]:
        cost = Spend()
        if failure.maybe_paid:
            cost = sending.reserve
            self._counters.total.maybe_paid += 1
            self._counters.total.maybe_paid_usd += cost.usd
        key = sending.call.call_key
        return self._ledger.fail(attempt_id, key, failure, cost, release=release)
