"""Measuring one model on one sample by making the calls of a plan that have no outcome yet.

The first Ctrl-C during calls is deferred, and raised where nothing can swallow it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol

from contextcliff_dagster.contracts import (
    ASKED_BY,
    AnswersLostError,
    ContextCliffError,
    EngineError,
    StoreError,
    install_command,
)
from contextcliff_dagster.inference.devices.discovery import Gpus
from contextcliff_dagster.inference.devices.leases import WaitStopped, leased
from contextcliff_dagster.inference.engines.base import Engine, EngineSession, declared_identity
from contextcliff_dagster.inference.execution.call_sender import (
    CallEvents,
    CallSender,
    in_sending_order,
)
from contextcliff_dagster.inference.execution.checks import SERVER_PREFIX
from contextcliff_dagster.inference.execution.cost_estimate import (
    require_independent,
    unknown_window,
)
from contextcliff_dagster.inference.execution.prediction_rows import limits_of
from contextcliff_dagster.inference.execution.run_control import Batching, RunControl
from contextcliff_dagster.inference.ledger.backend import BATCH
from contextcliff_dagster.inference.ledger.batches import batches_of, open_calls
from contextcliff_dagster.inference.ledger.campaigns import (
    ensure_campaign,
    identity_changed,
    record_identity,
    recorded_identity,
)
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.models.engine_table import engine_spec
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import CallPlan, Outcome, PlannedCall
from contextcliff_dagster.inference.spending import (
    Budget,
    in_batches,
    out_of_time,
    priced,
    require_price,
    with_day_limit,
)
from contextcliff_dagster.inference.telemetry import CallCounters, Progress, RunSummary, Trace


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Defer the first SIGINT or SIGTERM; raise it from the yielded function or on exit.

    SIGTERM too, because its handler may call that of SIGINT. A handler that raises inside a
    destructor would lose its exception, and the run would go on after Ctrl-C. A second signal
    raises at once. Outside the main thread this changes nothing.
    """
    handlers: dict[int, Callable[[int, Any], Any]] = {}
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        noted.append(number)
        if len(noted) > 1:
            handle(number, frame)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def handle(number: int, frame: Any) -> None:
        restore()  # before: one handler may call another's
        (handlers.get(number) or handlers[signal.SIGINT])(number, frame)
        for deferred in handlers:
            signal.signal(deferred, note)

    def raise_noted() -> None:
        if noted:
            handle(noted[0], None)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
        for deferred in handlers:
            signal.signal(deferred, note)
    try:
        yield raise_noted
    finally:
        restore()
    if noted:
        (handlers.get(noted[0]) or handlers[signal.SIGINT])(noted[0], None)


class _ReusableEngine:
    """The last started engine and its devices; empty after `end`."""

    def __init__(self) -> None:
        self._session: EngineSession | None = None
        self._gpus: Gpus = 0
        self._held = ExitStack()

    def hand_over(self, entry: ModelEntry) -> EngineSession | None:
        """Return the session switched to ``entry``, or end it and return None."""
        session = self._session
        if session is None or entry.gpus_wanted != self._gpus:
            self.end()
            return None
        switch: Callable[[ModelEntry], bool] | None = getattr(session.engine, "switch_to", None)
        if switch is None or not switch(entry):
            self.end()
            return None
        session.entry = entry
        return session

    def keep(self, session: EngineSession, held: ExitStack) -> None:
        self._session, self._gpus, self._held = session, session.entry.gpus_wanted, held

    def end(self) -> None:
        """Stop the engine, then release its devices."""
        self._session = None
        self._held.close()


_kept: ContextVar[_ReusableEngine | None] = ContextVar("kept_engine", default=None)


@contextmanager
def engines_kept() -> Iterator[None]:
    """Within the block, keep this thread's engines for later models that load the same weights.

    Engines opt in with a method ``switch_to(entry) -> bool``; all others are restarted. An engine
    and its devices are kept until a model needs another engine, an error occurs, or the block ends.
    """
    reusable = _ReusableEngine()
    token = _kept.set(reusable)
    try:
        yield
    finally:
        _kept.reset(token)
        reusable.end()


@contextmanager
def started_engine(
    entry: ModelEntry, purpose: str, control: RunControl, engine: Engine | None = None
) -> Iterator[EngineSession]:
    """Start the engine of ``entry`` (or ``engine``) on its devices, and stop it on exit.

    Raises:
        EngineError: the engine cannot start, or the machine lacks the devices.
        WaitStopped: the run ended while it waited for devices.
    """
    reusable = _kept.get() if engine is None else None
    session = reusable.hand_over(entry) if reusable is not None else None
    if session is not None:
        try:
            yield session
        except BaseException:
            assert reusable is not None
            reusable.end()
            raise
        return
    with ExitStack() as resources:
        # Leased before the engine is made: CUDA reads its visible devices when it is loaded.
        resources.enter_context(
            leased(
                entry.gpus_wanted,
                purpose,
                on_wait=control.on_wait,
                should_stop=control.must_end,
            )
        )
        session = resources.enter_context(EngineSession(entry, engine))
        yield session
        if reusable is not None and hasattr(session.engine, "switch_to"):
            reusable.keep(session, resources.pop_all())


TRACES = "CONTEXTCLIFF_OTEL"
_POLL_S = 0.1
_OTHERS_EVERY_S = 0.2


class _Runner(Protocol):
    """What `run_calls` needs of a run of calls; all but ``run`` may be called from any thread."""

    ended_bins: queue.SimpleQueue[str]
    said: queue.SimpleQueue[str]

    async def run(self) -> RunSummary: ...
    def halt(self, by_user: bool = False) -> None: ...
    def cut(self) -> None: ...
    def progress(self) -> Progress: ...


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

    ``on_bin`` is called in the caller's thread for each bin whose calls have all ended.

    Raises:
        EngineError, BudgetError (of time, too), StoreError: after the calls in flight have ended.
        KeyboardInterrupt: after they have ended or, after ``control.grace_s``, been dropped.
    """
    runner: _Runner
    if control.batching is None:
        runner = CallRunner(calls, session, ledger, scope, control)
    else:
        from contextcliff_dagster.inference.execution.batches import BatchRun

        runner = BatchRun(calls, session, ledger, scope, control)
    if halted := control.stop_requested:
        runner.halt(True)
    future = session.submit(runner.run())

    def report() -> None:
        # Progress first, so that a callback for a finished bin has current progress.
        if control.on_progress:
            control.on_progress(runner.progress())
        while control.on_wait and not runner.said.empty():
            control.on_wait(runner.said.get())
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
    """One run of calls on one event loop, which picks calls, waits for them, and stops.

    If another process is making a call, the runner waits for it.
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
        self.said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._counters = CallCounters(list(self._calls.values()))
        self._trace = open_trace(scope, len(self._calls))
        events = CallEvents(self._counters, self._ended, self._hold, self._trace)
        self._sender = CallSender(session, ledger, scope, control.budget or Budget(), events)

    def halt(self, by_user: bool = False) -> None:
        """Stop sending. ``by_user``: calls in flight get only the grace time, and answers that the
        ledger does not take at once go to the spool."""
        self._asked_to_stop = self._asked_to_stop or by_user
        if by_user:
            self._ledger.backend.hurry()
        self._halt.set()
        self._sender.halt()

    def cut(self) -> None:
        """Stop sending, and drop the calls in flight too."""
        self.halt(True)
        self._cut.set()

    def progress(self) -> Progress:
        """Return the run's progress; may be called from any thread."""
        return self._counters.progress(self._sender.limiter.limit.now)

    async def run(self) -> RunSummary:
        """Work through the calls; see `run_calls`."""
        summary = None
        try:
            summary = await self._run()
        except ContextCliffError as error:
            described = self._ledger.told(error)
            raise described from (None if described is error else error)
        finally:
            self._trace.end(summary)
        return summary

    async def _run(self) -> RunSummary:
        outcomes = self._ledger.outcomes(self._calls)
        for key, outcome in outcomes.items():
            self._sender.pin.require_same(outcome)
            self._ended(self._calls[key], "cached", outcome)
        unanswered = [call for key, call in self._calls.items() if key not in outcomes]
        scope = self._scope
        limits = limits_of(self._ledger, scope.study, scope.campaign, scope.model)
        refused = [self._calls[key] for key in limits.refused if key in self._calls]
        asked_later = {call.call_key for call in refused[1:]}
        unanswered = [call for call in unanswered if call.call_key not in asked_later]
        self._todo.extend(in_sending_order(unanswered, scope, self._control.order))
        alarm = None
        if (left_s := self._control.seconds_left) is not None and self._todo:
            timeout_error = out_of_time(len(self._todo))
            if left_s > 0:
                call_later = asyncio.get_running_loop().call_later
                alarm = call_later(left_s, self._stop_for, timeout_error)
            else:  # the first call could start before an alarm fires
                self._stop_for(timeout_error)
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
            # Answers in flight are paid for: they get the time limit of a call, or the grace time
            # after Ctrl-C.
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
                    f"Model {self._scope.model!r} failed unexpectedly "
                    f"({type(error).__name__}: {error}). Finished answers are kept: run the "
                    "same command again, and report this if it fails again."
                )
                unforeseen.__cause__ = error
                self._stop_for(unforeseen)
            finally:
                self._counters.in_flight -= 1

    def _stop_for(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self.halt()

    async def _look_at_others(self) -> None:
        """Take the outcomes of calls that others claimed, or the calls if their owners are gone."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._halt.wait(), _OTHERS_EVERY_S)
            return
        outcomes = self._ledger.outcomes(self._held)
        claimed = self._ledger.claimed(self._held)
        dead = {owner: self._ledger.release_dead(owner) for owner in set(claimed.values())}
        for key, call in list(self._held.items()):
            if key in outcomes:
                del self._held[key]
                self._ended(call, "by_others", outcomes[key])
            elif key not in claimed or dead[claimed[key]]:
                del self._held[key]
                self._todo.append(call)
            elif claimed[key].startswith(BATCH):
                del self._held[key]  # the provider has a day for it
                self._counters.total.in_batches += 1
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
    """Start and return a run's trace, which does nothing if ``CONTEXTCLIFF_OTEL`` is unset or 0.

    Raises:
        ContextCliffError: OpenTelemetry or the requested exporter is not installed.
    """
    if os.environ.get(TRACES, "").strip() in ("", "0"):
        return Trace()
    try:
        from contextcliff_dagster.inference.otel_spans import OtelTrace
    except ImportError as error:
        raise ContextCliffError(
            f"{TRACES} asks for traces, but OpenTelemetry is not installed: "
            f"{install_command('otel')}, or unset {TRACES}."
        ) from error
    return OtelTrace(scope, planned)


async def _first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


def measure(
    plan: CallPlan,
    entry: ModelEntry,
    ledger: Ledger,
    control: RunControl | None = None,
    *,
    on_bin: Callable[[str], None] | None = None,
    engine: Engine | None = None,
) -> RunSummary:
    """Make every call of ``plan`` that has no outcome yet, starting the engine at most once.

    If the ledger has all outcomes, the engine is not started and no call is made. ``on_bin`` is
    called in the caller's thread for each bin whose calls have all ended; ``engine``, not yet
    started, is used instead of the entry's own.

    Raises:
        EngineError: the engine cannot start or be trusted further, or it is not the one that this
            campaign began with. What was measured is kept, here and below.
        BudgetError: the next call would exceed the budget of the campaign or of the day, or would
            come after the deadline.
        StoreError: the ledger cannot be written. Answers that it did not take wait in the spool.
        AnswersLostError: the spool cannot be written either.
        KeyboardInterrupt: after the calls in flight have ended or been given up.
    """
    study, campaign = plan.study, plan.campaign
    control = control or RunControl()

    def bin_ended(name: str) -> None:
        # Calls that another study has paid for are recorded without a call of this one.
        ensure_campaign(ledger, study, campaign)
        if on_bin:
            on_bin(name)

    if recorded_run := finished(plan, entry.name, ledger):
        identity, calls = recorded_run
        if engine is None:
            _require_declared(identity, entry, study, campaign, control)
        for name in plan.bins:
            bin_ended(name)
        lost = ledger.orphans(study, campaign, entry.name)
        return RunSummary(
            planned=calls,
            cached=calls,
            orphans=len(lost),
            orphans_usd=sum(orphan.reserved_usd for orphan in lost),
        )

    _require_decoding(plan, entry)
    entry, budget = priced(entry), with_day_limit(control.budget or Budget())
    if control.batching is not None:
        require_independent(plan)
        entry = in_batches(entry)
    ledger.make_ready()
    require_price(entry, budget)
    control = replace(control, budget=budget)
    try:
        purpose = f"Model {entry.name} of study {study}"
        with started_engine(entry, purpose, control, engine) as session:
            identity = _with_way(session.identity, ledger, plan, entry, control.batching)
            record_identity(ledger, study, campaign, entry.name, identity)
            if control.on_wait and session.engine.window_tokens is None:
                control.on_wait(unknown_window(entry.name))
            scope = Scope(study, campaign, entry.name, identity.hash)
            _pass_on_notes(session.engine, control)
            try:
                return _run_steps(plan, session, ledger, scope, control, bin_ended)
            finally:
                _pass_on_notes(session.engine, control)
    except WaitStopped:
        unsent = len(plan.calls(""))
        if not control.stop_requested:
            raise out_of_time(unsent) from None
        return RunSummary(planned=unsent, stopped=True)


def take_in_unplanned(
    run: tuple[str, str],
    entry: ModelEntry,
    ledger: Ledger,
    control: RunControl,
    planned: Callable[[str], Container[str]],
) -> None:
    """Take in the answers of open batches none of whose calls is planned any more.

    Args:
        run: study and campaign.
        planned: returns the keys of all planned calls with a serving identity's hash; called only
            if a batch is open.

    Raises:
        EngineError: the provider cannot be asked.
    """
    recorded = recorded_identity(ledger, *run, entry.name)
    of = dict(zip(("study", "campaign"), run, strict=True), model=entry.name)
    opened = batches_of(ledger, is_open=True, **of)
    if not opened or recorded is None:
        return
    keys = planned(recorded.hash)
    lost = [b.owner for b in opened if not any(key in keys for key in open_calls(ledger, b))]
    if not lost:
        return
    from contextcliff_dagster.inference.execution.batches import BatchRun

    with started_engine(in_batches(priced(entry)), "Batches", control) as session:
        scope = Scope(*run, entry.name, recorded.hash)
        left = BatchRun([], session, ledger, scope, RunControl(batching="resume"), lost)
        session.submit(left.run()).result()


def _require_decoding(plan: CallPlan, entry: ModelEntry) -> None:
    spec = engine_spec(entry.engine)
    if plan.recipe.sampling is not None and not spec.samples:
        raise EngineError(
            f"Model {entry.name!r}: engine {entry.engine!r} only gives the likeliest tokens and "
            "cannot sample; choose a model of another engine, or one behind an endpoint."
        )
    if plan.recipe.constrained and not spec.constrains:
        raise EngineError(
            f"Model {entry.name!r}: engine {entry.engine!r} cannot enforce a JSON Schema; "
            "choose free replies, a model on another engine, or one behind an endpoint."
        )


def _with_way(
    identity: Identity,
    ledger: Ledger,
    plan: CallPlan,
    entry: ModelEntry,
    batching: Batching | None,
) -> Identity:
    """Return ``identity`` with the way of asking, which the campaign keeps if its entry pools."""
    field = f"{SERVER_PREFIX}{ASKED_BY}"
    way = None if batching is None else "batch"
    if entry.batch is not None and entry.batch.pool_batch:
        recorded = recorded_identity(ledger, plan.study, plan.campaign, entry.name)
        way = recorded.fields.get(field) if recorded else None
    return identity if way is None else Identity({**identity.fields, field: way})


def _pass_on_notes(engine: Engine, control: RunControl) -> None:
    """Report the sentences from an engine's ``notes()``, if it has that method."""
    notes: Callable[[], list[str]] | None = getattr(engine, "notes", None)
    for sentence in notes() if notes and control.on_wait else ():
        control.on_wait(sentence)  # type: ignore[misc]


def _run_steps(
    plan: CallPlan,
    session: EngineSession,
    ledger: Ledger,
    scope: Scope,
    control: RunControl,
    bin_ended: Callable[[str], None],
) -> RunSummary:
    """Make the calls of ``plan``, then those that follow from their answers, until none is left."""
    if plan.follow_up is None:
        calls = plan.calls(scope.identity_hash)
        return run_calls(calls, session, ledger, scope, control, on_bin=bin_ended)
    total = RunSummary(planned=0)
    done_keys: set[str] = set()
    while True:
        planned = plan.calls(scope.identity_hash, ledger.outcomes)
        calls = [call for call in planned if call.call_key not in done_keys]
        if not calls:
            break
        total = total.plus(run_calls(calls, session, ledger, scope, control))
        if total.stopped or control.stop_requested:
            return replace(total, stopped=True)
        done_keys |= {call.call_key for call in calls}
    for name in plan.bins:
        bin_ended(name)
    return total


def finished(plan: CallPlan, model: str, ledger: Ledger) -> tuple[Identity, int] | None:
    """Return the model's identity and the plan's number of calls; None if one has no outcome yet.

    Raises:
        StoreError: the ledger cannot be read.
    """
    recorded = recorded_identity(ledger, plan.study, plan.campaign, model)
    if recorded is None:
        return None
    keys = {call.call_key for call in plan.calls(recorded.hash, ledger.outcomes)}
    return (recorded, len(keys)) if len(ledger.answered(keys)) == len(keys) else None


def _require_declared(
    recorded: Identity, entry: ModelEntry, study: str, campaign: str, control: RunControl
) -> None:
    """Check without an engine that a finished measurement's entry and weights are unchanged."""
    try:
        declared = Identity(declared_identity(entry))
    except EngineError as error:  # weights gone, address not set: the records are still valid
        if (engine := recorded.fields.get("engine")) not in (None, entry.engine):
            differs = [f"engine: {engine} -> {entry.engine}"]
            raise identity_changed(study, campaign, entry.name, differs) from error
        if control.on_wait:
            control.on_wait(
                f"Model {entry.name!r}: could not check that its entry in models.yaml still "
                f"describes the measured model: {error}"
            )
        return
    before = Identity(
        {name: value for name, value in recorded.fields.items() if not name.startswith("server_")}
    )
    if declared.hash != before.hash:
        raise identity_changed(study, campaign, entry.name, before.differences(declared))
