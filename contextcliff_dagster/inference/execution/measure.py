"""Measure one model on one manifest: the function that Dagster, the CLI and notebooks call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.call_runner import out_of_time
from contextcliff_dagster.inference.devices.file_leases import WaitStopped
from contextcliff_dagster.inference.devices.process_lease import leased
from contextcliff_dagster.inference.engines.base import Engine, Identity, declared_identity
from contextcliff_dagster.inference.engines.session import EngineSession
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.execution.run_calls import run_calls
from contextcliff_dagster.inference.execution.window_check import unknown_window
from contextcliff_dagster.inference.ledger.campaigns import (
    ensure_campaign,
    identity_changed,
    record_identity,
    recorded_identity,
)
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.models.registry import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import SampleSource, plan_calls
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.inference.spending.budget import Budget, with_day_limit
from contextcliff_dagster.inference.spending.prices import insist_on_price, priced
from contextcliff_dagster.inference.telemetry.progress import Progress, RunSummary


def measure(
    manifest: SampleSource,
    entry: ModelEntry,
    recipe: Recipe,
    ledger: Ledger,
    *,
    study: str,
    campaign: str,
    bins: Sequence[str],
    n: int,
    budget: Budget | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    on_bin: Callable[[str, list[dict[str, Any]]], None] | None = None,
    engine: Engine | None = None,
    say: Callable[[str], None] | None = None,
    until: float | None = None,
) -> RunSummary:
    """Make every call that has no outcome yet, with one start of the engine for all bins.

    Where the ledger has all outcomes the engine is not started and no call is made. ``progress``
    and ``on_bin`` (every call of a bin has ended; its prediction rows) are called in the caller's
    thread. ``engine`` stands in for the entry's own, not yet started. Where the entry wants
    devices, they are leased before it starts; ``say`` is told once if that has to wait, and why,
    and where nobody says how long the model's window is.
    Nothing more is sent, and no device waited for, after ``until`` (`time.monotonic()`).

    Raises:
        EngineError: the engine cannot start or be trusted further, or it is not the one that this
            campaign began with. What was measured is kept.
        BudgetError: the next call would exceed the budget of the campaign or of the day (the
            environment's ``CONTEXTCLIFF_BUDGET_USD_PER_DAY``), or would come after ``until``. What
            was measured is kept.
        StoreError: the ledger cannot be written.
        KeyboardInterrupt: after the calls in flight have ended or been given up.
    """

    def bin_ended(name: str) -> None:
        # Calls that another study has paid for are recorded without a call of this one.
        ensure_campaign(ledger, study, campaign)
        if on_bin:
            on_bin(
                name,
                prediction_rows(
                    manifest,
                    ledger,
                    study=study,
                    campaign=campaign,
                    model=entry,
                    recipe=recipe,
                    bins=[name],
                    n=n,
                ),
            )

    if done := finished(
        manifest, entry.name, recipe, ledger, study=study, campaign=campaign, bins=bins, n=n
    ):
        if engine is None:
            _insist_on_declared(done.identity, entry, study, campaign)
        for name in bins:
            bin_ended(name)
        lost = ledger.orphans(study, campaign, entry.name)
        return RunSummary(
            planned=done.calls,
            cached=done.calls,
            orphans=len(lost),
            orphans_usd=sum(orphan.reserved_usd for orphan in lost),
        )

    entry, budget = priced(entry), with_day_limit(budget or Budget())
    insist_on_price(entry, budget)
    purpose = f"Model {entry.name} of study {study}"

    def enough() -> bool:
        return (stop is not None and stop()) or (until is not None and time.monotonic() >= until)

    try:
        # Leased before the engine is made: CUDA reads what it may see when it is first loaded.
        with (
            leased(entry.gpus_wanted, purpose, say=say, stop=enough),
            EngineSession(entry, engine) as session,
        ):
            identity = session.identity
            record_identity(ledger, study, campaign, entry.name, identity)
            if say and session.engine.window_tokens is None:
                say(unknown_window(entry.name))
            return run_calls(
                plan_calls(manifest, identity.hash, recipe, campaign, bins, n),
                session=session,
                ledger=ledger,
                scope=Scope(study, campaign, entry.name, identity.hash),
                budget=budget,
                progress=progress,
                stop=stop,
                on_bin=bin_ended,
                until=until,
            )
    except WaitStopped:
        unsent = plan_calls(manifest, "", recipe, campaign, bins, n)
        if stop is None or not stop():
            raise out_of_time(len(unsent)) from None
        return RunSummary(planned=len(unsent), stopped=True)


class Finished(NamedTuple):
    """A measurement without a call left: by whom its ``calls`` were answered."""

    identity: Identity
    calls: int


def finished(
    manifest: SampleSource,
    model: str,
    recipe: Recipe,
    ledger: Ledger,
    *,
    study: str,
    campaign: str,
    bins: Sequence[str],
    n: int,
) -> Finished | None:
    """What `measure` would find done, without an engine or a device; None where a call is left.

    Raises:
        StoreError: the ledger cannot be read.
    """
    recorded = recorded_identity(ledger, study, campaign, model)
    if recorded is None:
        return None
    keys = {
        call.call_key for call in plan_calls(manifest, recorded.hash, recipe, campaign, bins, n)
    }
    return Finished(recorded, len(keys)) if len(ledger.outcomes(keys)) == len(keys) else None


def _insist_on_declared(recorded: Identity, entry: ModelEntry, study: str, campaign: str) -> None:
    """A finished measurement starts no engine, but a changed entry or weights are noticed."""
    try:
        declared = Identity(declared_identity(entry))
    except EngineError:  # weights gone, address not set: the records still stand
        return
    known = Identity(
        {name: value for name, value in recorded.fields.items() if not name.startswith("server_")}
    )
    if declared.hash != known.hash:
        raise identity_changed(study, campaign, entry.name, known.differences(declared))
