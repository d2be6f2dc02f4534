"""Make the calls of a plan that have no outcome yet, and report how it goes."""

from __future__ import annotations

import asyncio
import os
import queue
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from typing import Any

from contextcliff_dagster.contracts import (
    AnswersLostError,
    BudgetError,
    ContextCliffError,
    EngineError,
    StoreError,
)
from contextcliff_dagster.inference.engines.session import EngineSession
from contextcliff_dagster.inference.execution.call_sender import CallEvents, CallSender
from contextcliff_dagster.inference.execution.interrupts import RunControl, deferred_interrupts
from contextcliff_dagster.inference.execution.prediction_rows import limits_of
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.requests.call_plan import PlannedCall, in_blocks
from contextcliff_dagster.inference.requests.outcome import Outcome
from contextcliff_dagster.inference.requests.recipe import stable_hash
from contextcliff_dagster.inference.spending.budget import Budget
from contextcliff_dagster.inference.telemetry.progress import CallCounters, Progress, RunSummary
from contextcliff_dagster.inference.telemetry.tracing import Trace

TRACES = "CONTEXTCLIFF_OTEL"
_POLL_S = 0.1
_OTHERS_EVERY_S = 0.2


def run_calls(
    calls: Sequence[PlannedCall],
    session: EngineSession,
    ledger: Ledger,
    scope: Scope,
    control: RunControl,
    *,
    on_bin: Callable[[str], None] | None = None,
) -> RunSummary:
    """Make every call of ``calls`` that has no outcome yet.

    ``on_bin`` is called in the caller's thread with a bin whose calls have all ended.

    Raises:
        EngineError, BudgetError (of time, too), StoreError: after the calls in flight have ended.
        KeyboardInterrupt: after they have ended or, past ``control.grace_s``, been given up.
    """
    runner = CallRunner(calls, session, ledger, scope, control)
    if halted := control.stop_requested:
        runner.halt(True)
    future = session.submit(runner.run())

    def report() -> None:
        # Progress first: a callback for a finished bin knows how far the run is.
        if control.on_progress:
            control.on_progress(runner.progress())
        while on_bin and not runner.ended_bins.empty():
            on_bin(runner.ended_bins.get())

    try:
        with deferred_interrupts() as raise_interrupt:
            while not future.done():
                wait([future], timeout=_POLL_S)
                report()
                raise_interrupt()
                if not halted and not future.done() and control.stop_requested:
                    session.loop.call_soon_threadsafe(runner.halt, True)
                    halted = True
            report()
    except BaseException:
        # Ctrl-C (or an error of a callback): end cleanly first. A second Ctrl-C gives up the rest
        # at once.
        try:
            session.loop.call_soon_threadsafe(runner.halt, True)
            wait([future])
        except BaseException:
            session.loop.call_soon_threadsafe(runner.cut)
            wait([future], timeout=control.grace_s)
        if future.done() and isinstance(lost := future.exception(), AnswersLostError):
            raise lost from None
        raise
    return future.result()


class CallRunner:
    """One run of calls on one event loop: which call to send, what to wait for, when to stop.

    A call that another process is making is waited for.
    """

    def __init__(
        self,
        calls: Sequence[PlannedCall],
        session: EngineSession,
        ledger: Ledger,
        scope: Scope,
        control: RunControl,
    ) -> None:
        self._calls = {call.call_key: call for call in calls}
        self._entry, self._ledger, self._scope = session.entry, ledger, scope
        self._control = control
        self._todo: deque[PlannedCall] = deque()
        self._held: dict[str, PlannedCall] = {}
        self._halt, self._cut = asyncio.Event(), asyncio.Event()
        self._asked_to_stop = False
        self._fatal: BaseException | None = None
        self._left_in_bin = Counter(call.bin for call in self._calls.values())
        self.ended_bins: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._counters = CallCounters(list(self._calls.values()))
        self._trace = open_trace(scope, len(self._calls))
        events = CallEvents(self._counters, self._ended, self._hold, self._trace)
        self._sender = CallSender(session, ledger, scope, control.budget or Budget(), events)

    def halt(self, by_user: bool = False) -> None:
        """Send nothing more. ``by_user``: calls in flight get the grace time only, and answers
        that the ledger does not take at once go to the spool."""
        self._asked_to_stop = self._asked_to_stop or by_user
        if by_user:
            self._ledger.backend.hurry()
        self._halt.set()
        self._sender.halt()

    def cut(self) -> None:
        """Give up the calls in flight too."""
        self.halt(True)
        self._cut.set()

    def progress(self) -> Progress:
        """How far the run has come; may be asked from any thread."""
        return self._counters.progress(self._sender.limiter.limit.now)

    async def run(self) -> RunSummary:
        """Work through the calls; see `run_calls`."""
        summary = None
        try:
            summary = await self._run()
        except ContextCliffError as error:
            told = self._ledger.told(error)
            raise told from (None if told is error else error)
        finally:
            self._trace.end(summary)
        return summary

    async def _run(self) -> RunSummary:
        have = self._ledger.outcomes(self._calls)
        for key, outcome in have.items():
            self._sender.require_same(outcome)
            self._ended(self._calls[key], "cached", outcome)
        unanswered = [call for key, call in self._calls.items() if key not in have]
        scope = self._scope
        limits = limits_of(self._ledger, scope.study, scope.campaign, scope.model)
        refused = [self._calls[key] for key in limits.refused if key in self._calls]
        asked_later = {call.call_key for call in refused[1:]}
        unanswered = [call for call in unanswered if call.call_key not in asked_later]
        if self._control.order == "blocks":
            seed = int(stable_hash([scope.study, scope.campaign, scope.model]), 16)
            unanswered = in_blocks(unanswered, seed)
        self._todo.extend(unanswered)
        alarm = None
        if (left_s := self._control.seconds_left) is not None and self._todo:
            over = out_of_time(len(self._todo))
            if left_s > 0:
                late = asyncio.get_running_loop().call_later
                alarm = late(left_s, self._stop_for, over)
            else:  # a first call could be faster than an alarm
                self._stop_for(over)
        async with self._sender.lag.sampled():
            while (self._todo or self._held) and not self._halt.is_set():
                await self._work_through()
                if self._held and not self._todo and not self._halt.is_set():
                    await self._look_at_others()
                if refused and not self._todo and not self._held:
                    fits = bool(self._ledger.answered([refused[0].call_key]))
                    for call in [] if fits else refused[1:]:
                        self._ended(call, "failed", None)
                    self._todo.extend(refused[1:] if fits else [])
                    refused = []
        if alarm is not None:
            alarm.cancel()
        try:
            await asyncio.wrap_future(self._ledger.submit(lambda db: None))  # noted, not waited for
        except StoreError as error:
            self._stop_for(error)
        if self._fatal is not None:
            raise self._fatal
        orphans = self._ledger.orphans(scope.study, scope.campaign, scope.model)
        return replace(
            self._counters.total,
            orphans=len(orphans),
            orphans_usd=sum(orphan.reserved_usd for orphan in orphans),
            concurrency=self._sender.limiter.limit.now,
            seconds=self._counters.seconds,
            stopped=self._halt.is_set(),
        )

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
            patience = self._control.grace_s if self._asked_to_stop else self._entry.timeout_s
            await _first_of(workers, cut, timeout_s=patience)
            cut.cancel()
            workers.cancel()
        halted.cancel()
        with suppress(asyncio.CancelledError):
            await workers

    async def _worker(self) -> None:
        while self._todo and not self._halt.is_set():
            call = self._todo.popleft()
            self._counters.in_flight += 1
            self._trace.bin_begun(call.bin)
            try:
                await self._sender.take(call)
            except ContextCliffError as error:
                self._ledger.release(call.call_key)
                self._stop_for(error)
            except (Exception, SystemExit) as error:
                unforeseen = EngineError(
                    f"Model {self._scope.model!r} failed in an unforeseen way "
                    f"({type(error).__name__}: {error}); everything measured is kept, so run the "
                    "same command to go on, and report this if it comes back."
                )
                unforeseen.__cause__ = error
                self._stop_for(unforeseen)
            finally:
                self._counters.in_flight -= 1

    def _stop_for(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self.halt()

    async def _look_at_others(self) -> None:
        """Calls that others have claimed: take the outcome, or the call if they gave up or died."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._halt.wait(), _OTHERS_EVERY_S)
            return
        have = self._ledger.outcomes(self._held)
        claimed = self._ledger.claimed(self._held)
        dead = {owner: self._ledger.release_dead(owner) for owner in set(claimed.values())}
        for key, call in list(self._held.items()):
            if key in have:
                del self._held[key]
                self._ended(call, "by_others", have[key])
            elif key not in claimed or dead[claimed[key]]:
                del self._held[key]
                self._todo.append(call)
        self._counters.waiting = len(self._held)

    def _hold(self, call: PlannedCall) -> None:
        self._held[call.call_key] = call
        self._counters.waiting = len(self._held)

    def _ended(self, call: PlannedCall, how: str, outcome: Outcome | None) -> None:
        self._counters.ended(call, how, outcome)
        self._left_in_bin[call.bin] -= 1
        if self._left_in_bin[call.bin] == 0:
            self._trace.bin_ended(call.bin)
            self.ended_bins.put(call.bin)


def open_trace(scope: Scope, planned: int) -> Trace:
    """The trace of a run, begun; it does nothing where ``CONTEXTCLIFF_OTEL`` is not set (or is 0).

    Raises:
        ContextCliffError: it is set, but OpenTelemetry or the exporter asked for is not installed.
    """
    if os.environ.get(TRACES, "").strip() in ("", "0"):
        return Trace()
    try:
        from contextcliff_dagster.inference.telemetry.otel_spans import OtelTrace
    except ImportError as error:
        raise ContextCliffError(
            f"{TRACES} asks for traces, but OpenTelemetry is not installed: "
            f"`pip install 'contextcliff-dagster[otel]'`, or unset {TRACES}."
        ) from error
    return OtelTrace(scope, planned)


def out_of_time(open_calls: int) -> BudgetError:
    """The sentence for a run that its deadline ends."""
    return BudgetError(
        f"The deadline was reached with some of {open_calls:,} calls still open; everything "
        "measured is kept, so run it again to go on, or raise the deadline: --deadline on "
        "the command line, else deadline_s (of the run's config, or of the study's `calls`)."
    )


async def _first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
