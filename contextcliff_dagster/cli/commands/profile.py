"""`profile` and `prepare`: from options to a materialized study, with the cost agreed on before."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.commands.adaptive import (
    candidates,
    measure_in_rounds,
    say_most,
    target_of,
)
from contextcliff_dagster.cli.dagster_home import COMMAND_LINE, open_instance
from contextcliff_dagster.cli.dagster_log import dagster_log
from contextcliff_dagster.cli.errors import Interrupted, is_interruption, say
from contextcliff_dagster.cli.options import (
    StudyOptions,
    check_compression,
    common_options,
    compression_options,
    controls_option,
    spending_options,
    study_options,
    synthetic_option,
    targeted_options,
)
from contextcliff_dagster.cli.print_sample import estimate_sentence, print_prepared
from contextcliff_dagster.cli.progress import ProgressBar, money
from contextcliff_dagster.cli.study_selection import as_asked, choose_study, keep_definition
from contextcliff_dagster.contracts import BudgetError, StudyError
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.defs.run import Prepared
    from contextcliff_dagster.sampling.controls import Control
    from contextcliff_dagster.studies import Study


@click.command()
@study_options
@synthetic_option
@spending_options
@click.option(
    "--sentinel",
    is_flag=True,
    help="Measure only a few examples at the cap; exit code 3 where the score has declined.",
)
@targeted_options
@controls_option
@compression_options
@common_options
def profile(
    options: StudyOptions,
    sentinel: bool,
    pilot: int | None,
    until: float | None,
    batch: int | None,
    controls: tuple[Control, ...] | None,
    budget: float | None,
    deadline: float | None,
    dry_run: bool,
    campaign: str | None,
    yes: bool,
    verbose: bool,
    kv_policy: str,
    kv_budget: float | None,
    as_json: bool,
) -> None:
    """Measure what is still missing of STUDY (default: reference) and print its report."""
    check_compression(kv_policy, kv_budget)
    store = Store.default()
    if options.data is not None and options.study is None and not options.models:
        # The default study's models are the reference ones: on anybody's own data they are lost.
        raise StudyError("--data needs --model: name the model to measure (`contextcliff models`).")
    chosen = choose_study(options)
    in_rounds = (pilot, until, batch) != (None, None, None)
    if sentinel and in_rounds:
        raise StudyError(
            "--sentinel measures at the cap alone, so --pilot, --until and --round do not apply; "
            "leave them out."
        )
    if sentinel:
        from contextcliff_dagster.cli.commands.sentinel import watch_cap

        odd = dry_run or campaign is not None
        watch_cap(chosen, options, budget, deadline, odd, as_json=as_json)
        return
    target = None
    if in_rounds and controls:
        raise StudyError(
            "--controls goes with a whole measurement, not with its rounds; leave out "
            "--pilot, --until and --round, or run the controls afterwards."
        )
    if in_rounds:
        target = target_of(chosen, pilot, until, batch)
        options = replace(options, samples_per_bin=candidates(chosen, options, target))
    with dagster_log(verbose):
        from contextcliff_dagster.cli.commands.report import print_profiled
        from contextcliff_dagster.cli.result_cache import find_standing, note_standing

        # As the study says, unless asked: its kept definition does not change.
        of_study = chosen
        chosen = chosen if controls is None else chosen.changed(controls=controls)
        asked = as_asked(chosen, options)
        if target is None and not dry_run and (standing := find_standing(store, asked, campaign)):
            print_profiled(standing, as_json=as_json)
            return

        from contextcliff_dagster.defs.in_process import LocalRuns
        from contextcliff_dagster.defs.resources import Watch
        from contextcliff_dagster.defs.run import prepare_study, profile_study
        from contextcliff_dagster.inference.spending.budget import Budget

        instance = None if dry_run else open_instance(store)
        prepared = prepare_study(
            chosen,
            models=options.models or None,
            samples_per_bin=options.samples_per_bin,
            campaign=campaign,
            keep=not dry_run,
            store=store,
            instance=instance,
            cause=COMMAND_LINE,
        )
        if not dry_run:
            keep_definition(of_study, store)  # not before: unreadable data leave no study behind
        say_audit(prepared.audit)
        say_prices(prepared)
        if dry_run:
            print_prepared(prepared, store, as_json=as_json)
            return
        limit = budget if budget is not None else chosen.budget.usd
        if target is not None:
            say_most(prepared)
        agree_on_cost(prepared, chosen, limit, yes=yes)
        with ProgressBar() as bar, interruption_says(store, chosen, campaign):
            bounds = Budget(usd=limit)
            if target is not None:
                runs = LocalRuns.of(prepared.study, store, campaign, instance, COMMAND_LINE)
                watch = Watch(bar, None, bounds, say, deadline_s=deadline)
                done = measure_in_rounds(runs, target, watch)
            else:
                done = profile_study(
                    chosen,
                    models=options.models or None,
                    samples_per_bin=options.samples_per_bin,
                    campaign=campaign,
                    budget=bounds,
                    deadline_s=deadline,
                    on_progress=bar,
                    on_wait=say,
                    store=store,
                    instance=instance,
                    cause=COMMAND_LINE,
                )
        if target is None:
            note_standing(store, asked, done.campaign, done.calls)
    print_profiled(done, as_json=as_json)


@click.command()
@study_options
@synthetic_option
@click.option("--model", "models", multiple=True, metavar="NAME", help="Estimate the cost for it.")
@click.option("--verbose", is_flag=True, help="Show Dagster's own log.")
@common_options
def prepare(
    options: StudyOptions,
    verbose: bool,
    as_json: bool,
) -> None:
    """Freeze the sample of STUDY (default: reference) and estimate the cost of measuring it."""
    store = Store.default()
    chosen = choose_study(options)
    with dagster_log(verbose):
        from contextcliff_dagster.defs.run import prepare_study

        prepared = prepare_study(
            chosen,
            models=options.models or None,
            samples_per_bin=options.samples_per_bin,
            # Preparing is where a person expects a changed file to be noticed.
            reread=True,
            store=store,
            instance=open_instance(store),
            cause=COMMAND_LINE,
        )
    keep_definition(chosen, store)
    say_audit(prepared.audit)
    say_prices(prepared)
    print_prepared(prepared, store, as_json=as_json)


def say_audit(audit: Mapping[str, Any] | None) -> None:
    """The advice of the distribution audit on stderr, where it has any."""
    if audit and audit.get("verdict") == "warn" and audit.get("advice"):
        say(f"Note: {audit['advice']}")


def say_prices(prepared: Prepared) -> None:
    """Notes on old prices on stderr."""
    for note in prepared.estimate.notes:
        say(f"Note: {note}")


def agree_on_cost(prepared: Prepared, study: Study, limit: float | None, *, yes: bool) -> None:
    """Say what measuring will take, where a person watches, and ask before it gets expensive.

    Asked is above the study's threshold, and where nobody knows the price; where nobody can answer
    it is refused.

    Raises:
        BudgetError: not confirmed, or nobody to confirm it.
    """
    if sys.stderr.isatty() and prepared.estimate.calls:
        say(estimate_sentence(prepared))
    usd, threshold = prepared.estimate.usd or 0.0, study.budget.confirm_above_usd
    if limit is not None and usd > limit:
        say(
            f"Note: the estimate ({money(usd)}) is above the budget ({money(limit)}): "
            "measuring will stop there."
        )
        usd = limit
    # With a limit in USD, a model without a price is refused before its first call anyway.
    unknown = ", ".join(prepared.estimate.price_unknown) if limit is None else ""
    if yes or (usd <= threshold and not unknown):
        return
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if unknown and not terminal:
        raise BudgetError(
            f"The cost of {unknown} is not known (price unknown), and there is no terminal to "
            "confirm it: add --yes, or give `price` in models.yaml (zeros where it is free)."
        )
    if not terminal:
        raise BudgetError(
            f"This would cost about {money(usd)}, above the {money(threshold)} where study "
            f"{study.name!r} asks first, and there is no terminal to confirm it: add --yes, or "
            "lower it with --budget."
        )
    why = (
        f"The cost of {unknown} is not known."
        if unknown
        else f"The cost is above this study's limit of {money(threshold)}."
    )
    if not click.confirm(f"{why} Go on?", err=True):
        raise BudgetError("Not confirmed, so nothing was sent; --samples-per-bin makes it cheaper.")


@contextmanager
def interruption_says(store: Store, study: Study, campaign: str | None) -> Iterator[None]:
    """Turn Ctrl-C into a word about how much is kept."""
    try:
        yield
    except BaseException as fault:
        if is_interruption(fault):
            raise Interrupted(_kept(store, study, campaign)) from fault
        raise


def _kept(store: Store, study: Study, campaign: str | None) -> str:
    from contextcliff_dagster.inference.ledger.campaigns import current_campaign
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    with Ledger.open(store.ledger) as ledger:
        name = campaign or current_campaign(ledger, study.name)
        done = ledger.read(
            "SELECT count(*) FROM results JOIN calls USING (call_key)"
            " WHERE study = ? AND campaign = ?",
            (study.name, name),
        )[0][0]
    return f"{done:,} calls of campaign {name} are measured and kept"
