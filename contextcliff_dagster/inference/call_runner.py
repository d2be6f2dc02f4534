"""One run of calls on one event loop: what to send, what to try again, what to wait for.

Faults of the transport are tried again; answers, however bad, are results and never asked for
twice. A call that another process is at is waited for.
"""

from __future__ import annotations

import asyncio
import queue
import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from contextcliff_dagster.contracts import ContextCliffError, EngineError
from contextcliff_dagster.inference.attempt import (
    ask,
    charge,
    judge,
    most_a_call_takes,
    unanswered,
    was_truncated,
)
from contextcliff_dagster.inference.budget import Budget, Spend
from contextcliff_dagster.inference.calls import PlannedCall
from contextcliff_dagster.inference.engine import (
    Decoding,
    Engine,
    PromptCount,
    RejectedError,
    TransportError,
)
from contextcliff_dagster.inference.ledger import Begun, Ledger, Scope
from contextcliff_dagster.inference.loop_lag import LoopLag
from contextcliff_dagster.inference.models import ModelEntry
from contextcliff_dagster.inference.outcome import Failure, Outcome
from contextcliff_dagster.inference.overflow import overflows
from contextcliff_dagster.inference.progress import RunSummary
from contextcliff_dagster.inference.recipe import Prompt
from contextcliff_dagster.inference.retry import Backoff, Breaker
from contextcliff_dagster.inference.tally import Tally

GRACE_S = 10.0
"""How long calls in flight may take to end after Ctrl-C before they are given up."""
_OTHERS_EVERY_S = 0.2


class CallRunner:
    """One run of calls on one event loop; `run_calls` drives it."""

    def __init__(
        self,
        calls: Sequence[PlannedCall],
        engine: Engine,
        entry: ModelEntry,
        ledger: Ledger,
        scope: Scope,
        budget: Budget,
        grace_s: float = GRACE_S,
    ) -> None:
        self._calls = {call.call_key: call for call in calls}
        self._engine, self._entry, self._ledger, self._scope, self._budget = (
            engine,
            entry,
            ledger,
            scope,
            budget,
        )
        self._grace_s = grace_s
        self._todo: deque[PlannedCall] = deque()
        self._held: dict[str, tuple[PlannedCall, str]] = {}
        self._halt, self._cut = asyncio.Event(), asyncio.Event()
        self._asked_to_stop = False
        self._fatal: BaseException | None = None
        self._backoff = Backoff(attempts=entry.max_attempts)
        self._breaker = Breaker(max(entry.breaker_failures, 2 * entry.concurrency))
        self._random = random.Random()
        self._lag = LoopLag()
        self._left_in_bin = Counter(call.bin for call in self._calls.values())
        self.ended_bins: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.tally = Tally(list(self._calls.values()))

    def halt(self, asked: bool = False) -> None:
        """Send nothing more. ``asked`` by the user: calls in flight get the grace time only."""
        self._asked_to_stop = self._asked_to_stop or asked
        self._halt.set()

    def cut(self) -> None:
        """Give up the calls in flight too."""
        self.halt(True)
        self._cut.set()

    async def run(self) -> RunSummary:
        """Work through the calls; see `run_calls`."""
        have = self._ledger.outcomes(self._calls)
        for key, call in self._calls.items():
            if key in have:
                self._ended(call, "cached", have[key])
            else:
                self._todo.append(call)
        async with self._lag:
            while (self._todo or self._held) and not self._halt.is_set():
                await self._work_through()
                if self._held and not self._todo and not self._halt.is_set():
                    await self._look_at_others()
        await asyncio.wrap_future(self._ledger.submit(lambda db: None))  # what was noted unwaited
        if self._fatal is not None:
            raise self._fatal
        orphans = len(self._ledger.orphans(self._scope.study, self._scope.campaign))
        return self.tally.summary(orphans, stopped=self._halt.is_set())

    async def _work_through(self) -> None:
        workers = asyncio.gather(
            *(self._worker() for _ in range(min(self._entry.concurrency, len(self._todo))))
        )
        halted = asyncio.ensure_future(self._halt.wait())
        await _first_of(workers, halted)
        if not workers.done():
            # Answers under way are paid for: they get the time that a call may take, or after
            # Ctrl-C the grace.
            cut = asyncio.ensure_future(self._cut.wait())
            patience = self._grace_s if self._asked_to_stop else self._entry.timeout_s
            await _first_of(workers, cut, timeout_s=patience)
            cut.cancel()
            workers.cancel()
        halted.cancel()
        with suppress(asyncio.CancelledError):
            await workers

    async def _worker(self) -> None:
        while self._todo and not self._halt.is_set():
            call = self._todo.popleft()
            self.tally.in_flight += 1
            try:
                await self._take(call)
            except asyncio.CancelledError:
                raise
            except ContextCliffError as fault:
                self._ledger.release(call.call_key)
                self._stop_for(fault)
            except Exception as fault:
                error = EngineError(
                    f"Model {self._scope.model!r} failed in an unforeseen way "
                    f"({type(fault).__name__}: {fault}); everything "
                    "measured is kept, so run the same command to go on, and report this if it "
                    "comes back."
                )
                error.__cause__ = fault
                self._stop_for(error)
            finally:
                self.tally.in_flight -= 1

    def _stop_for(self, fault: BaseException) -> None:
        self._fatal = self._fatal or fault
        self.halt()

    async def _look_at_others(self) -> None:
        """Calls that others have claimed: take the outcome, or the call if they gave up or died."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._halt.wait(), _OTHERS_EVERY_S)
            return
        have = self._ledger.outcomes(self._held)
        claimed = self._ledger.claimed(self._held)
        dead = {owner: self._ledger.release_dead(owner) for owner in set(claimed.values())}
        for key, (call, _) in list(self._held.items()):
            if key in have:
                del self._held[key]
                self._ended(call, "by_others", have[key])
            elif key not in claimed or dead[claimed[key]]:
                del self._held[key]
                self._todo.append(call)
        self.tally.waiting = len(self._held)

    async def _take(self, call: PlannedCall) -> None:
        """One call, from judging its length to its outcome, over as many attempts as it takes."""
        prompt = call.prompt()
        own = await self._engine.count_prompt_tokens(prompt)
        if said := overflows(call, prompt, own, self._engine.window_tokens):
            outcome = unanswered(own, said, attempts=0)
            await asyncio.wrap_future(self._ledger.keep_unsent(call, prompt, self._scope, outcome))
            self._ended(call, "new", outcome)
            return
        reserve = most_a_call_takes(call, prompt, own, self._entry.price)
        for attempt in range(1, self._backoff.attempts + 1):
            begun = await self._begin(call, prompt, reserve, repeat=attempt > 1)
            if begun.state == "finished":
                self._ended(
                    call, "by_others", self._ledger.outcomes([call.call_key])[call.call_key]
                )
                return
            if begun.state == "held":
                self._held[call.call_key] = (call, begun.owner)
                self.tally.waiting = len(self._held)
                return
            wait_s = await self._send(call, prompt, own, reserve, begun.attempt_id, attempt)
            if wait_s is None:
                return
            self.tally.retries += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._halt.wait(), wait_s)
                await asyncio.wrap_future(self._ledger.release(call.call_key))
                return

    async def _begin(
        self, call: PlannedCall, prompt: Prompt, reserve: Spend, *, repeat: bool
    ) -> Begun:
        noted = self._ledger.begin(call, prompt, self._scope, reserve, self._budget, repeat=repeat)
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

    async def _send(
        self,
        call: PlannedCall,
        prompt: Prompt,
        own: PromptCount | None,
        reserve: Spend,
        attempt_id: int,
        attempt: int,
    ) -> float | None:
        """One attempt: None when the call has ended, else the seconds to wait before the next."""
        self.tally.sent += 1
        decoding = Decoding(call.recipe.max_output_tokens, call.recipe.temperature)
        started = time.perf_counter()
        try:
            answer = await ask(self._engine, prompt, decoding)
        except TransportError as fault:
            last = attempt == self._backoff.attempts
            failure = Failure(fault.kind, str(fault), fault.maybe_paid, fault.status, final=last)
            cost = reserve if fault.maybe_paid else Spend()
            await self._failed(call, attempt_id, failure, cost, release=last)
            if last:
                return None
            return self._backoff.wait_s(attempt, fault.retry_after_s, self._random)
        except RejectedError as fault:
            if fault.overflow:
                outcome = unanswered(own, str(fault), attempts=attempt)
                await self._kept(call, attempt_id, outcome, Spend())
            else:
                failure = Failure("rejected", str(fault), status=fault.status, final=True)
                await self._failed(call, attempt_id, failure, Spend(), release=True)
            return None
        except BaseException as fault:
            # Cancelled, refused for good, or a bug: not the call's fault, so no final failure.
            kind = "interrupted" if isinstance(fault, asyncio.CancelledError) else "engine"
            sent = not isinstance(fault, EngineError)
            failure = Failure(kind, str(fault) or kind, maybe_paid=sent)
            cost = reserve if sent else Spend()
            self._ledger.fail(attempt_id, call.call_key, failure, cost, release=True)
            raise
        outcome = judge(answer, own, self._entry.price, attempt, self._lag.worst_ms_since(started))
        self.tally.unchecked += was_truncated(own, outcome.prompt_tokens) is None
        await self._kept(call, attempt_id, outcome, charge(outcome, reserve))
        return None

    async def _kept(
        self, call: PlannedCall, attempt_id: int, outcome: Outcome, cost: Spend
    ) -> None:
        await asyncio.wrap_future(self._ledger.finish(attempt_id, call.call_key, outcome, cost))
        self._breaker.success()
        self._ended(call, "new", outcome)

    async def _failed(
        self, call: PlannedCall, attempt_id: int, failure: Failure, cost: Spend, *, release: bool
    ) -> None:
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

    def _ended(self, call: PlannedCall, how: str, outcome: Outcome | None) -> None:
        self.tally.ended(call, how, outcome)
        self._left_in_bin[call.bin] -= 1
        if self._left_in_bin[call.bin] == 0:
            self.ended_bins.put(call.bin)


async def _first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
