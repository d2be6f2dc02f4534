"""The loop between plan and ledger: send what has no outcome yet, keep what comes back.

Faults of the transport are tried again; answers, however bad, are results and never asked for
twice. A call that another process is at is waited for.
"""

from __future__ import annotations

import asyncio
import queue
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress

from contextcliff_dagster.contracts import ContextCliffError, EngineError
from contextcliff_dagster.inference.attempt import ask, charge, judge, was_truncated
from contextcliff_dagster.inference.budget import (
    Budget,
    Spend,
    careful_prompt_tokens,
    most_a_call_takes,
)
from contextcliff_dagster.inference.calls import PlannedCall
from contextcliff_dagster.inference.engine import (
    Decoding,
    Engine,
    PromptCount,
    RejectedError,
    TransportError,
)
from contextcliff_dagster.inference.ledger import Ledger, Scope
from contextcliff_dagster.inference.loop_lag import LoopLag
from contextcliff_dagster.inference.models import ModelEntry
from contextcliff_dagster.inference.outcome import Failure, Outcome, utc_now
from contextcliff_dagster.inference.overflow import overflows
from contextcliff_dagster.inference.progress import Progress, RunSummary
from contextcliff_dagster.inference.recipe import Prompt
from contextcliff_dagster.inference.retry import Backoff, Breaker
from contextcliff_dagster.inference.session import EngineSession
from contextcliff_dagster.inference.tally import Tally

GRACE_S = 10.0
"""How long calls in flight may take to end after Ctrl-C before they are given up."""
_OTHERS_EVERY_S = 0.2
_POLL_S = 0.1


def run_calls(
    calls: Sequence[PlannedCall],
    *,
    session: EngineSession,
    ledger: Ledger,
    scope: Scope,
    budget: Budget | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    on_bin: Callable[[str], None] | None = None,
    grace_s: float = GRACE_S,
) -> RunSummary:
    """Make every call of ``calls`` that has no outcome yet.

    ``progress`` (ten times a second at most) and ``on_bin`` (every call of a bin has ended) are
    called in the caller's thread; so is ``stop``, and once it says yes no further call is sent.

    Raises:
        EngineError, BudgetError, StoreError: after the calls in flight have ended; all is kept.
        KeyboardInterrupt: after the calls in flight have ended or, past ``grace_s``, been given up.
    """
    runner = CallRunner(
        calls, session.engine, session.entry, ledger, scope, budget or Budget(), grace_s
    )
    future = session.submit(runner.run())

    def report() -> None:
        while on_bin and not runner.ended_bins.empty():
            on_bin(runner.ended_bins.get())
        if progress:
            progress(runner.tally.progress())

    try:
        while not future.done():
            wait([future], timeout=_POLL_S)
            report()
            if stop and not future.done() and stop():
                session.loop.call_soon_threadsafe(runner.halt, True)
                stop = None
        report()
    except BaseException:
        # Ctrl-C (or a fault of a callback): end cleanly first. A second Ctrl-C gives up the rest at once.
        try:
            session.loop.call_soon_threadsafe(runner.halt, True)
            wait([future])
        except BaseException:
            session.loop.call_soon_threadsafe(runner.cut)
            wait([future], timeout=grace_s)
        raise
    return future.result()


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
        """Send nothing more. ``asked``: by the user, so that calls in flight get only the grace time."""
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
        if self._fatal is not None:
            raise self._fatal
        orphans = len(self._ledger.orphans(self._scope.study, self._scope.campaign))
        return self.tally.summary(orphans, stopped=self._halt.is_set())

    async def _work_through(self) -> None:
        workers = asyncio.gather(
            *(self._worker() for _ in range(min(self._entry.concurrency, len(self._todo))))
        )
        halted = asyncio.ensure_future(self._halt.wait())
        await asyncio.wait({workers, halted}, return_when=asyncio.FIRST_COMPLETED)
        if not workers.done():
            # Answers under way are paid for: they get the time that a call may take, or after Ctrl-C the grace.
            cut = asyncio.ensure_future(self._cut.wait())
            patience = self._grace_s if self._asked_to_stop else self._entry.timeout_s
            await asyncio.wait(
                {workers, cut}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
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
                self._stop_for(fault)
            except Exception as fault:
                error = EngineError(
                    f"Model {self._scope.model!r} failed in an unforeseen way ({type(fault).__name__}: {fault}); everything "
                    "measured is kept, so run the same command to go on, and report this if it comes back."
                )
                error.__cause__ = fault
                self._stop_for(error)
            finally:
                self.tally.in_flight -= 1

    def _stop_for(self, fault: BaseException) -> None:
        self._fatal = self._fatal or fault
        self.halt()

    async def _look_at_others(self) -> None:
        """Calls that another process has claimed: take its outcome, or the call if it gave up or died."""
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
        """One call from judgement of its length to its outcome, over as many attempts as it takes."""
        prompt = call.prompt()
        own = await self._engine.count_prompt_tokens(prompt)
        if said := overflows(call, prompt, own, self._engine.window_tokens):
            outcome = Outcome(
                no_answer="context_overflow",
                own_prompt_tokens=own.tokens if own else None,
                error=said,
                finished_at=utc_now(),
            )
            await asyncio.wrap_future(self._ledger.keep_unsent(call, prompt, self._scope, outcome))
            self._ended(call, "new", outcome)
            return
        chars = sum(map(len, prompt.contents()))
        tokens = (
            own.tokens
            if own
            else careful_prompt_tokens(call.length_tokens, len(call.document), chars)
        )
        reserve = most_a_call_takes(tokens, call.recipe.max_output_tokens, self._entry.price)
        for attempt in range(1, self._backoff.attempts + 1):
            begun = await asyncio.wrap_future(
                self._ledger.begin(
                    call, prompt, self._scope, reserve, self._budget, repeat=attempt > 1
                )
            )
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

    async def _send(
        self,
        call: PlannedCall,
        prompt: Prompt,
        own: PromptCount | None,
        reserve: Spend,
        attempt_id: int,
        attempt: int,
    ) -> float | None:
        """One attempt. None when the call has ended; otherwise the seconds to wait before the next."""
        self.tally.sent += 1
        decoding = Decoding(call.recipe.max_output_tokens, call.recipe.temperature)
        started = time.perf_counter()
        try:
            answer = await ask(self._engine, prompt, decoding)
        except TransportError as fault:
            last = attempt == self._backoff.attempts
            failure = Failure(fault.kind, str(fault), fault.maybe_paid, fault.status, final=last)
            await self._failed(
                call, attempt_id, failure, reserve if fault.maybe_paid else Spend(), release=last
            )
            return (
                None if last else self._backoff.wait_s(attempt, fault.retry_after_s, self._random)
            )
        except RejectedError as fault:
            if fault.overflow:
                outcome = Outcome(no_answer="context_overflow", own_prompt_tokens=own.tokens if own else None,
                                  attempts=attempt, error=str(fault), finished_at=utc_now())  # fmt: skip
                await asyncio.wrap_future(
                    self._ledger.finish(attempt_id, call.call_key, outcome, Spend())
                )
                self._breaker.success()
                self._ended(call, "new", outcome)
            else:
                failure = Failure("rejected", str(fault), status=fault.status, final=True)
                await self._failed(call, attempt_id, failure, Spend(), release=True)
            return None
        except BaseException as fault:
            # Cancelled (Ctrl-C), refused for good, or a bug: not this call's fault, so no final failure.
            kind = "interrupted" if isinstance(fault, asyncio.CancelledError) else "engine"
            sent = not isinstance(fault, EngineError)
            failure = Failure(kind, str(fault) or kind, maybe_paid=sent)
            self._ledger.fail(
                attempt_id, call.call_key, failure, reserve if sent else Spend(), release=True
            )
            raise
        outcome = judge(answer, own, self._entry.price, attempt, self._lag.worst_ms_since(started))
        await asyncio.wrap_future(
            self._ledger.finish(attempt_id, call.call_key, outcome, charge(outcome, reserve))
        )
        self._breaker.success()
        self.tally.unchecked += was_truncated(own, outcome.prompt_tokens) is None
        self._ended(call, "new", outcome)
        return None

    async def _failed(
        self, call: PlannedCall, attempt_id: int, failure: Failure, cost: Spend, *, release: bool
    ) -> None:
        try:
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
