"""One call, from judging its length to its outcome, over as many attempts as it takes.

Faults of the transport are tried again, within bounds of count and time; answers, however bad, are
results and never asked for twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    PromptCount,
    RejectedError,
    TransportError,
)
from contextcliff_dagster.inference.engines.session import EngineSession
from contextcliff_dagster.inference.execution.rate_limiter import RateLimiter
from contextcliff_dagster.inference.execution.single_request import (
    Answer,
    ask,
    charge,
    judge,
    reserve_for_call,
    unanswered,
    was_truncated,
)
from contextcliff_dagster.inference.execution.window_check import overflows
from contextcliff_dagster.inference.ledger.ledger import Begun, Ledger, Scope
from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.outcome import Failure, Outcome
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending.budget import Budget, Spend
from contextcliff_dagster.inference.telemetry.call_counters import CallCounters
from contextcliff_dagster.inference.telemetry.event_loop_lag import LoopLag
from contextcliff_dagster.inference.telemetry.tracing import NO_TRACE, Trace
from contextcliff_dagster.retry import AttemptBudget, Backoff, Breaker

REASONED_OUT_AT_ONCE = 5
"""After so many first answers that are empty, because reasoning used up the output limit, no more
of them are bought."""


@dataclass(frozen=True, slots=True)
class _Sending:
    """A call that is being sent: its prompt, the model's ``own`` count of it, what is reserved."""

    call: PlannedCall
    prompt: Prompt
    own: PromptCount | None
    reserve: Spend
    attempts: AttemptBudget


@dataclass(frozen=True, slots=True)
class CallEvents:
    """Where a run counts and traces its calls, and what it does as they end.

    ``ended`` gets what became of a call (``new``, ``by_others``, ``failed`` without an outcome),
    ``held`` one that another process is making already.
    """

    counters: CallCounters
    ended: Callable[[PlannedCall, str, Outcome | None], None]
    held: Callable[[PlannedCall], None]
    trace: Trace = NO_TRACE


class CallSender:
    """Sends the calls of one run. A call that `halt` caught is left as it was."""

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
        self._halt = asyncio.Event()
        self._backoff = Backoff(attempts=entry.max_attempts, deadline_s=entry.longest_call_s)
        self._breaker = Breaker(max(entry.breaker_failures, 2 * entry.concurrency))
        self._random = random.Random()
        self.limiter = RateLimiter(entry)
        self.lag = LoopLag()

    def halt(self) -> None:
        """Send nothing more."""
        self._halt.set()
        self.limiter.close()

    async def take(self, call: PlannedCall) -> None:
        """Bring ``call`` to its end, unless somebody else is at it or the run is halted."""
        prompt = call.prompt()
        own = await self._engine.count_prompt_tokens(prompt)
        if overflow := overflows(call, prompt, own, self._engine.window_tokens):
            outcome = unanswered(own, overflow, attempts=0)
            await asyncio.wrap_future(self._ledger.keep_unsent(call, prompt, self._scope, outcome))
            self._ended(call, "new", outcome)
            return
        reserve = reserve_for_call(call, prompt, own, self._entry.price)
        sending = _Sending(call, prompt, own, reserve, AttemptBudget(self._backoff))
        while (wait_s := await self._once(sending)) is not None:
            self._counters.retries += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._halt.wait(), wait_s)
                await asyncio.wrap_future(self._ledger.release(call.call_key))
                return

    async def _once(self, sending: _Sending) -> float | None:
        """Make one attempt in its turn; return the seconds to wait, None when it was the last."""
        call = sending.call
        generation = await self.limiter.enter(sending.reserve.tokens)
        if generation is None:
            if sending.attempts.sent:
                await asyncio.wrap_future(self._ledger.release(call.call_key))
            return None
        try:
            begun = await self._begin(call, sending.prompt, sending.reserve)
            if begun.state == "finished":
                outcome = self._ledger.outcomes([call.call_key])[call.call_key]
                self._ended(call, "by_others", outcome)
                return None
            if begun.state == "held":
                self._held(call)
                return None
            sending.attempts.sent += 1
            return await self._send(sending, begun.attempt_id, generation)
        finally:
            self.limiter.leave()

    async def _begin(self, call: PlannedCall, prompt: Prompt, reserve: Spend) -> Begun:
        noted = self._ledger.begin(call, prompt, self._scope, reserve, self._budget)
        try:
            return await asyncio.wrap_future(noted)
        except asyncio.CancelledError:
            noted.add_done_callback(lambda done: self._never_sent(call, done))
            raise

    def _never_sent(self, call: PlannedCall, noted: Future[Begun]) -> None:
        """The attempt was noted while the run was being cut short: nothing was sent or spent."""
        if noted.exception() is None and noted.result().state == "send":
            failure = Failure("interrupted", "stopped before it was sent")
            attempt_id = noted.result().attempt_id
            self._ledger.fail(attempt_id, call.call_key, failure, Spend(), release=True)

    async def _send(self, sending: _Sending, attempt_id: int, generation: int) -> float | None:
        call, own, reserve = sending.call, sending.own, sending.reserve
        attempts = sending.attempts
        self._counters.sent += 1
        recipe = call.recipe
        decoding = Decoding(recipe.max_output_tokens, recipe.temperature, recipe.prefix_cache)
        span = self._trace.request(call, attempts.sent)
        started = time.perf_counter()
        try:
            answer = await self._ask_in_time(sending.prompt, decoding, attempts.left_s)
        except TransportError as error:
            if error.status == 429:
                self.limiter.limit.slow_down(generation)
            took_s = time.perf_counter() - started
            wait_s = attempts.wait_after(error, took_s, self._random)
            last = wait_s is None
            failure = Failure(error.kind, str(error), error.maybe_paid, error.status, final=last)
            cost = reserve if error.maybe_paid else Spend()
            span.failed(failure)
            await self._failed(call, attempt_id, failure, cost, release=last)
            return wait_s
        except RejectedError as error:
            if error.overflow:
                outcome = unanswered(own, str(error), attempts=attempts.sent)
                span.answered(outcome)
                await self._kept(call, attempt_id, outcome, Spend())
            else:
                failure = Failure("rejected", str(error), status=error.status, final=True)
                span.failed(failure)
                await self._failed(call, attempt_id, failure, Spend(), release=True)
            return None
        except BaseException as error:
            # Cancelled, refused for good, or a bug: not the call's fault, so no final failure.
            kind = "interrupted" if isinstance(error, asyncio.CancelledError) else "engine"
            sent = not isinstance(error, EngineError)
            failure = Failure(kind, str(error) or kind, maybe_paid=sent)
            span.failed(failure)
            cost = reserve if sent else Spend()
            if sent:
                self._counters.perhaps_paid(reserve.usd)
            self._ledger.fail(attempt_id, call.call_key, failure, cost, release=True)
            raise
        lag_ms = self.lag.worst_ms_since(started)
        outcome = judge(answer, own, self._entry.price, attempts.sent, lag_ms)
        span.answered(outcome)
        self._counters.unchecked += was_truncated(own, outcome.prompt_tokens) is None
        await self._kept(call, attempt_id, outcome, charge(outcome, reserve))
        if REASONED_OUT_AT_ONCE <= self._counters.reasoned_out == self._counters.answered:
            raise _never_answers(self._scope.model, call.recipe.max_output_tokens)
        return None

    async def _ask_in_time(self, prompt: Prompt, decoding: Decoding, left_s: float) -> Answer:
        """`ask`, ended by the call's deadline where that comes before the request's own."""
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
        self, call: PlannedCall, attempt_id: int, outcome: Outcome, cost: Spend
    ) -> None:
        await asyncio.wrap_future(self._ledger.finish(attempt_id, call.call_key, outcome, cost))
        self._breaker.success()
        self.limiter.answered()
        self._ended(call, "new", outcome)

    async def _failed(
        self, call: PlannedCall, attempt_id: int, failure: Failure, cost: Spend, *, release: bool
    ) -> None:
        if failure.maybe_paid:
            self._counters.perhaps_paid(cost.usd)
        try:
            if failure.status != 429 or failure.final:  # being asked to slow down is no breakdown
                self._breaker.failure(self._scope.model, failure.message)
        except EngineError:
            release = True
            raise
        finally:
            await asyncio.wrap_future(
                self._ledger.fail(attempt_id, call.call_key, failure, cost, release=release)
            )
            if failure.final:
                self._ended(call, "failed", None)


def _never_answers(model: str, max_output_tokens: int) -> EngineError:
    return EngineError(
        f"Model {model!r} used up its output limit of {max_output_tokens} tokens by reasoning and "
        f"answered nothing, in all of the first {REASONED_OUT_AT_ONCE} calls; raise `prompt: "
        "max_output_tokens` of the study, and run the same command again."
    )
