"""Make the calls of a plan that have no outcome yet, and tell the caller how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait

from contextcliff_dagster.inference.call_runner import GRACE_S, CallRunner
from contextcliff_dagster.inference.engines.session import EngineSession
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.spending.budget import Budget
from contextcliff_dagster.inference.telemetry.progress import Progress, RunSummary

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
    until: float | None = None,
) -> RunSummary:
    """Make every call of ``calls`` that has no outcome yet.

    ``progress`` (ten times a second at most) and ``on_bin`` (every call of a bin has ended) are
    called in the caller's thread; so is ``stop``, and once it says yes no further call is sent.
    ``until`` (`time.monotonic()`) is when the sending ends at the latest.

    Raises:
        EngineError, BudgetError (of time, too), StoreError: after the calls in flight have ended;
            all is kept.
        KeyboardInterrupt: after the calls in flight have ended or, past ``grace_s``, been given up.
    """
    left_s = None if until is None else until - time.monotonic()
    runner = CallRunner(
        calls, session.engine, session.entry, ledger, scope, budget or Budget(), grace_s, left_s
    )
    future = session.submit(runner.run())

    def report() -> None:
        # Progress first: who hears of a finished bin knows how far the run is.
        if progress:
            progress(runner.progress())
        while on_bin and not runner.ended_bins.empty():
            on_bin(runner.ended_bins.get())

    try:
        while not future.done():
            wait([future], timeout=_POLL_S)
            report()
            if stop and not future.done() and stop():
                session.loop.call_soon_threadsafe(runner.halt, True)
                stop = None
        report()
    except BaseException:
        # Ctrl-C (or a fault of a callback): end cleanly first. A second Ctrl-C gives up the rest
        # at once.
        try:
            session.loop.call_soon_threadsafe(runner.halt, True)
            wait([future])
        except BaseException:
            session.loop.call_soon_threadsafe(runner.cut)
            wait([future], timeout=grace_s)
        raise
    return future.result()
