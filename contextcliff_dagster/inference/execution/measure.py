"""Measure one model on one sample: the function that Dagster, the CLI and notebooks call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices.file_leases import WaitStopped
from contextcliff_dagster.inference.engines.base import Engine
from contextcliff_dagster.inference.engines.open_engine import declared_identity
from contextcliff_dagster.inference.engines.session import EngineSession
from contextcliff_dagster.inference.execution.cost_estimate import unknown_window
from contextcliff_dagster.inference.execution.interrupts import RunControl
from contextcliff_dagster.inference.execution.run_calls import out_of_time, run_calls
from contextcliff_dagster.inference.execution.started_engine import started_engine
from contextcliff_dagster.inference.ledger.campaigns import (
    ensure_campaign,
    identity_changed,
    record_identity,
    recorded_identity,
)
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.models.engine_table import engine_spec
from contextcliff_dagster.inference.models.identity import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import CallPlan
from contextcliff_dagster.inference.spending.budget import Budget, with_day_limit
from contextcliff_dagster.inference.spending.prices import priced, require_price
from contextcliff_dagster.inference.telemetry.progress import RunSummary


def measure(
    plan: CallPlan,
    entry: ModelEntry,
    ledger: Ledger,
    control: RunControl | None = None,
    *,
    on_bin: Callable[[str], None] | None = None,
    engine: Engine | None = None,
) -> RunSummary:
    """Make every call of ``plan`` that has no outcome yet, with one start of the engine at most.

    Where the ledger has all outcomes the engine is not started and no call is made. Where the
    entry wants devices, they are leased before it starts.

    Parameters:
        control: budget, deadline and callbacks; none of them when None.
        on_bin: called in the caller's thread with a bin whose calls have all ended.
        engine: used instead of the entry's own; not yet started.

    Raises:
        EngineError: the engine cannot start or be trusted further, or it is not the one that this
            campaign began with. What was measured is kept, here and below.
        BudgetError: the next call would exceed the budget of the campaign or of the day (the
            environment's ``CONTEXTCLIFF_BUDGET_USD_PER_DAY``), or would come after the deadline.
        StoreError: the ledger cannot be written. Answers that it did not take wait in the spool.
        AnswersLostError: nor can the spool.
        KeyboardInterrupt: after the calls in flight have ended or been given up.
    """
    study, campaign = plan.study, plan.campaign
    control = control or RunControl()

    def bin_ended(name: str) -> None:
        # Calls that another study has paid for are recorded without a call of this one.
        ensure_campaign(ledger, study, campaign)
        if on_bin:
            on_bin(name)

    if done := finished(plan, entry.name, ledger):
        identity, calls = done
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
    ledger.make_ready()
    entry, budget = priced(entry), with_day_limit(control.budget or Budget())
    require_price(entry, budget)
    control = replace(control, budget=budget)
    try:
        purpose = f"Model {entry.name} of study {study}"
        with started_engine(entry, purpose, control, engine) as session:
            identity = session.identity
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


def _require_decoding(plan: CallPlan, entry: ModelEntry) -> None:
    spec = engine_spec(entry.engine)
    if plan.recipe.sampling is not None and not spec.samples:
        raise EngineError(
            f"Model {entry.name!r}: the engine {entry.engine!r} gives the likeliest tokens alone "
            "and draws none at random; take a model of another engine, or one behind an endpoint."
        )
    if plan.recipe.constrained and not spec.constrains:
        raise EngineError(
            f"Model {entry.name!r}: the engine {entry.engine!r} cannot be held to a JSON Schema; "
            "take free replies, a model of another engine, or one behind an endpoint."
        )


def _pass_on_notes(engine: Engine, control: RunControl) -> None:
    """What an engine that has ``notes()`` has to say."""
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
    """Make the calls of ``plan``, then those that follow on their answers, until none does."""
    if plan.follow_up is None:
        calls = plan.calls(scope.identity_hash)
        return run_calls(calls, session, ledger, scope, control, on_bin=bin_ended)
    total = RunSummary(planned=0)
    made: set[str] = set()
    while True:
        planned = plan.calls(scope.identity_hash, ledger.outcomes)
        calls = [call for call in planned if call.call_key not in made]
        if not calls:
            break
        total = total.plus(run_calls(calls, session, ledger, scope, control))
        if total.stopped or control.stop_requested:
            return replace(total, stopped=True)
        made |= {call.call_key for call in calls}
    for name in plan.bins:
        bin_ended(name)
    return total


def finished(plan: CallPlan, model: str, ledger: Ledger) -> tuple[Identity, int] | None:
    """Return the identity and number of a plan's calls; None where one has no outcome yet.

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
    """A finished measurement starts no engine, but a changed entry or weights are noticed."""
    try:
        declared = Identity(declared_identity(entry))
    except EngineError as error:  # weights gone, address not set: the records are still valid
        if (engine := recorded.fields.get("engine")) not in (None, entry.engine):
            differs = [f"engine: {engine} -> {entry.engine}"]
            raise identity_changed(study, campaign, entry.name, differs) from error
        if control.on_wait:
            control.on_wait(
                f"Model {entry.name!r}: not checked whether its entry in models.yaml still "
                f"describes what was measured: {error}"
            )
        return
    known = Identity(
        {name: value for name, value in recorded.fields.items() if not name.startswith("server_")}
    )
    if declared.hash != known.hash:
        raise identity_changed(study, campaign, entry.name, known.differences(declared))
