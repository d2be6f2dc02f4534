"""`profile` and `prepare`: measure a study or freeze its sample, after agreeing on the cost.

`profile` also measures in rounds, and runs the sentinel that watches a cap.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import click

from contextcliff_dagster.cli.ad_hoc_study import corpus_kind
from contextcliff_dagster.cli.commands.baseline import end_with
from contextcliff_dagster.cli.dagster_home import COMMAND_LINE, open_instance
from contextcliff_dagster.cli.display.output import ProgressBar, dagster_log, money, print_json
from contextcliff_dagster.cli.display.samples import (
    ShownPrompts,
    estimate_sentence,
    print_prepared,
    prompt_options,
)
from contextcliff_dagster.cli.errors import interruption_says, say
from contextcliff_dagster.cli.measuring.kv_policies import (
    kv_options,
    kv_pairs,
    measured_models,
    print_with_comparisons,
    require_engines,
)
from contextcliff_dagster.cli.measuring.options import (
    attention_option,
    controls_option,
    judging_options,
    synthetic_option,
    with_more,
)
from contextcliff_dagster.cli.options import (
    MOST_SAMPLES,
    GroupedCommand,
    StudyOptions,
    common_options,
    count_option,
    spending_options,
    study_options,
    together,
    ttft_limit_option,
    verbose_option,
    with_answers_option,
)
from contextcliff_dagster.cli.result_cache import find_finished, note_finished
from contextcliff_dagster.cli.study_selection import (
    agreed,
    as_asked,
    campaign_shared,
    choose_study,
    keep_definition,
)
from contextcliff_dagster.contracts import BatchesOpenError, BudgetError, EngineError, StudyError
from contextcliff_dagster.inference.spending import Budget, with_day_limit
from contextcliff_dagster.reporting.wording import count
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.allocation import Target
    from contextcliff_dagster.defs.resources import Watch
    from contextcliff_dagster.inference.execution.run_control import Batching
    from contextcliff_dagster.run.study import LocalRuns, Prepared, Profiled
    from contextcliff_dagster.sampling.draw_manifest import Control


def watch_cap(
    study: Study,
    options: StudyOptions,
    usd: float | None,
    deadline: float | None,
    *,
    as_json: bool,
) -> None:
    """Run a sentinel of ``study``, print its result, and send an alert if it fails.

    Args:
        usd: hard limit of this sentinel; None for the study's.
        deadline: seconds after which no more calls are sent; None for the study's.

    Raises:
        StudyError: see `run_sentinel`.
        click.exceptions.Exit: 3 if a model's score at its cap has declined.
    """
    from contextcliff_dagster.experiments.alert_channels import alert
    from contextcliff_dagster.experiments.length_profile.experiment import shrink_alarm
    from contextcliff_dagster.experiments.length_profile.sentinel import run_sentinel
    from contextcliff_dagster.inference.execution.run_control import RunControl, deadline_after

    store = Store.default()
    budget = Budget(usd=study.budget.usd if usd is None else usd)
    with ProgressBar() as bar:
        result = run_sentinel(
            study.with_models(options.models) if options.models else study,
            store,
            RunControl(budget, deadline_after(deadline), on_wait=say),
            per_bin=options.samples_per_bin,
            on_progress=bar,
        )
    alert(study, store, shrink_alarm(result), say)
    end_with(result, as_json=as_json)


_CANDIDATES = 20
"""Default maximum of examples per bin, as a multiple of the pilot."""


def _half_width(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse the percentage ``5%`` or ``5`` to a share."""
    if value is None:
        return None
    try:
        share = float(value.strip().removesuffix("%")) / 100.0
    except ValueError:
        problem = f"{value!r} is not a percentage; use e.g. 5%."
        raise click.BadParameter(problem, ctx, param) from None
    if not 0.01 <= share <= 0.25:
        raise click.BadParameter(f"{value} is not between 1% and 25%.", ctx, param)
    return share


targeted_options = together(
    count_option(
        "--pilot",
        1,
        MOST_SAMPLES,
        "Measure N examples per bin, then more only where they best locate the drop.",
    ),
    click.option(
        "--until",
        callback=_half_width,
        metavar="W%",
        help="Stop when the drop is located to ± W% of the lengths (default with --pilot: 5%).",
    ),
    count_option(
        "--round",
        1,
        MOST_SAMPLES,
        "Examples per round after the pilot (default: 20).",
        into="batch",
    ),
)


def rounds_of(
    study: Study, options: StudyOptions, pilot: int | None, until: float | None, batch: int | None
) -> tuple[Target, StudyOptions]:
    """Return the target of the rounds, and the options with the maximum of examples per bin.

    Options override the study, which overrides the defaults: 5, 5%, 20, and 20 times the pilot.
    """
    from contextcliff_dagster.analysis.design.allocation import Target

    defaults, size = study.target_of_rounds(), options.samples_per_bin
    target = Target(
        defaults.pilot if pilot is None else pilot,
        defaults.half_width if until is None else until,
        defaults.batch if batch is None else batch,
    )
    if size is None:
        size = study.sampling.samples_per_bin
        size = size if study.targeted is not None else max(size, _CANDIDATES * target.pilot)
    return target, replace(options, samples_per_bin=size)


def measure_in_rounds(runs: LocalRuns, target: Target, watch: Watch) -> Profiled:
    """Measure in rounds, printing the reason for each round and for an early end.

    Raises:
        BudgetError: the budget does not cover the pilot.
    """
    from contextcliff_dagster.run.adaptive import profile_targeted

    done = profile_targeted(runs, target, watch, on_round=say)
    if done.stopped:
        say(f"Note: ended early: {done.stopped}")
    return done.profiled


class _Profile(GroupedCommand):
    option_groups: ClassVar[Mapping[str, Sequence[str]]] = {
        "Questions": ("data", "questions", "columns", "dataset", "tasks", "prompt", "replicates"),
        "Sample": (
            *("samples_per_bin", "questions_per_document", "seed"),
            *("allow_synthetic_length", "trust_study"),
        ),
        "Models": ("models", "kv_policies", "kv_budgets"),
        "Cost": (
            *("budget", "deadline", "batched", "wait", "dry_run", "yes", "campaign"),
            "pay_again",
        ),
        "Rounds": ("pilot", "until", "batch", "sentinel"),
        "Judgement": ("tolerance", "score", "ttft_limit", "controls", "attention"),
    }


@click.command(cls=_Profile)
@study_options
@synthetic_option
@spending_options
@click.option(
    "--sentinel",
    is_flag=True,
    help="Measure only a few examples at the cap; exit code 3 if the score has declined.",
)
@targeted_options
@controls_option
@attention_option
@judging_options
@ttft_limit_option
@kv_options
@with_answers_option
@click.option(
    "--batch",
    "batched",
    is_flag=True,
    help="Ask through the provider's batch interface, at its discount: submit the calls and end, "
    "or take in their answers.",
)
@click.option("--wait", is_flag=True, help="With --batch: wait until all answers are there.")
@click.option(
    "--pay-again",
    is_flag=True,
    help="Measure even if the store has answers that the call ledger has lost.",
)
@common_options
def profile(
    options: StudyOptions,
    sentinel: bool,
    pilot: int | None,
    until: float | None,
    batch: int | None,
    controls: tuple[Control, ...] | None,
    attention: bool,
    budget: float | None,
    deadline: float | None,
    dry_run: bool,
    campaign: str | None,
    yes: bool,
    verbose: bool,
    kv_policies: tuple[str, ...],
    kv_budgets: tuple[float, ...],
    with_answers: bool,
    batched: bool,
    wait: bool,
    pay_again: bool,
    as_json: bool,
) -> None:
    """Measure what STUDY (default: reference) still lacks, and print its report.

    \b
    Examples:
      contextcliff profile quick
          Try two tiny trained models in seconds, to see a report.
      contextcliff profile --data questions.jsonl --model my-model --dry-run
          Estimate the cost of your questions on your model; makes no call.
      contextcliff profile my-study --budget 5 --tolerance 10%
          Finish your study for at most $5; a drop of 10% counts as safe.
      contextcliff profile --model m --kv_policy snapkv --kv_budget 0.2
          Compare a fifth of a model's KV cache with all of it.
    """
    if pay_again:
        os.environ["CONTEXTCLIFF_PAY_AGAIN"] = "1"
    with_day_limit(Budget())  # refuses an invalid amount before anything is drawn
    store = Store.default()
    option = "--data" if options.data is not None else f"--dataset {options.dataset}"
    over_named_data = options.data is not None or corpus_kind(options.dataset) is not None
    if over_named_data and options.study is None and not options.models:
        # The default study's reference models cannot answer questions on users' data.
        raise StudyError(
            f"{option} needs --model: name the model to measure (`contextcliff models`)."
        )
    chosen = choose_study(options)
    pairs = kv_pairs(options.models or chosen.models, kv_policies, kv_budgets)
    in_rounds = (pilot, until, batch) != (None, None, None)
    if pairs:
        options = replace(options, models=measured_models(pairs, whole=not (sentinel or in_rounds)))
    if sentinel:
        apart = dry_run or batched or campaign is not None
        _require_plain_sentinel(options, in_rounds, apart=apart)
        watch_cap(chosen, options, budget, deadline, as_json=as_json)
        return
    asked = with_more(chosen, controls, attention, in_rounds=in_rounds)
    target = None
    if in_rounds:
        target, options = rounds_of(chosen, options, pilot, until, batch)
    asked = _through_batches(asked, batched=batched, wait=wait)
    with dagster_log(verbose):
        asked = as_asked(asked, options)
        if (
            target is None
            and not dry_run
            and (kept := find_finished(store, asked, campaign, with_answers))
        ):
            print_with_comparisons(kept, pairs, store, as_json=as_json)
            return

        from contextcliff_dagster.experiments.common.preparation import find_frozen

        require_engines(asked)
        asked = agreed(asked, options, frozen=find_frozen(asked, store) is not None)
        if campaign is None:
            campaign = campaign_shared(chosen, options, store)
        instance = None if dry_run else open_instance(store)
        from contextcliff_dagster.defs.resources import Watch
        from contextcliff_dagster.run.study import LocalRuns, prepare_study, profile_study

        prepared = prepare_study(
            asked,
            campaign=campaign,
            keep=not dry_run,
            store=store,
            instance=instance,
            cause=COMMAND_LINE,
        )
        if not dry_run:
            # Only now: unreadable data leave no study behind.
            keep_definition(chosen.with_leave(asked.leave), store)
        say_notes(prepared)
        if dry_run:
            print_prepared(prepared, store, as_json=as_json)
            return
        limit = budget if budget is not None else chosen.budget.usd
        if target is not None and prepared.estimate.calls:
            most = prepared.study.sampling.samples_per_bin
            say(
                f"Note: at most {count(prepared.estimate.calls, 'call')}, {most:,} examples a bin; "
                "sampling ends as soon as the drop is located or excluded."
            )
        agree_on_cost(prepared, limit, yes=yes)
        with (
            _showing_what_is_measured(store, as_json=as_json),
            _ending_with_open_batches(asked, as_json=as_json),
            ProgressBar() as bar,
            interruption_says(store, chosen, campaign),
        ):
            if target is not None:
                runs = LocalRuns.of(
                    prepared.study, store, campaign, instance, COMMAND_LINE, with_answers
                )
                batching: Batching | None = "wait" if wait else None
                watch = Watch(bar, None, Budget(usd=limit), say, deadline, batching)
                done = measure_in_rounds(runs, target, watch)
            else:
                done = profile_study(
                    asked,
                    campaign=campaign,
                    budget=Budget(usd=limit),
                    deadline_s=deadline,
                    on_progress=bar,
                    on_wait=say,
                    wait_for_batches=wait,
                    store=store,
                    instance=instance,
                    cause=COMMAND_LINE,
                    with_answers=with_answers,
                )
                note_finished(store, asked, done.campaign, done.calls, with_answers)
    print_with_comparisons(done, pairs, store, as_json=as_json)


def _through_batches(study: Study, *, batched: bool, wait: bool) -> Study:
    """Return ``study`` with its calls asked in batches if ``batched``."""
    if wait and not (batched or study.calls.batch):
        raise click.UsageError("--wait waits for the answers of batches, so it needs --batch.")
    return study.changed(calls={**dict(study.calls), "batch": True}) if batched else study


def _require_plain_sentinel(options: StudyOptions, in_rounds: bool, *, apart: bool) -> None:
    """Refuse options that do not apply to a sentinel."""
    if in_rounds:
        raise StudyError(
            "--sentinel measures at the cap alone, so --pilot, --until and --round do not apply; "
            "leave them out."
        )
    if apart or (options.ttft_limit, options.tolerance, options.score) != (None, None, ()):
        raise StudyError(
            "--sentinel measures the study's score at its cap, at once and in a campaign of its "
            "own, so --dry-run, --batch, --campaign, --ttft-limit, --tolerance and --score do not "
            "apply; leave them out."
        )


@contextmanager
def _showing_what_is_measured(store: Store, *, as_json: bool) -> Iterator[None]:
    """Print the report of the answers so far if an engine fails, then raise its error."""
    try:
        yield
    except EngineError as error:
        if error.measured is not None:
            print_with_comparisons(error.measured, [], store, as_json=as_json)
        raise


@contextmanager
def _ending_with_open_batches(study: Study, *, as_json: bool) -> Iterator[None]:
    """Say that calls wait in batches, which is no error, and what goes on."""
    try:
        yield
    except BatchesOpenError as error:
        if as_json:
            print_json(error.to_dict())
            raise click.exceptions.Exit(0) from None
        if not study.calls.batch:
            error.command = f"contextcliff batches resume {study.name}"
        raise


@click.command()
@study_options
@synthetic_option
@click.option(
    "--model", "models", multiple=True, metavar="NAME", help="Estimate the cost for this model."
)
@prompt_options
@verbose_option
@common_options
def prepare(
    options: StudyOptions, prompts: ShownPrompts | None, verbose: bool, as_json: bool
) -> None:
    """Freeze the sample of STUDY (default: reference) and estimate the cost of measuring it."""
    store = Store.default()
    chosen = choose_study(options)
    with dagster_log(verbose):
        from contextcliff_dagster.run.study import prepare_study

        chosen = agreed(chosen, options)
        prepared = prepare_study(
            as_asked(chosen, options),
            # Users expect `prepare` to notice a changed file.
            reread=True,
            store=store,
            instance=open_instance(store),
            cause=COMMAND_LINE,
        )
    keep_definition(chosen, store)
    say_notes(prepared)
    print_prepared(prepared, store, prompts, as_json=as_json)


def say_notes(prepared: Prepared) -> None:
    """Print the advice of the distribution audit and notes on old prices, if any."""
    audit = prepared.audit
    if audit and audit.get("verdict") == "warn" and audit.get("advice"):
        say(f"Note: {audit['advice']}")
    for note in prepared.estimate.notes:
        say(f"Note: {note}")


def agree_on_cost(prepared: Prepared, limit: float | None, *, yes: bool) -> None:
    """Print the estimated cost on a terminal, and ask for consent if needed.

    It asks if the cost is above the study's threshold, or if a price is unknown.

    Raises:
        BudgetError: the user declined, or there is no terminal to ask on.
    """
    study = prepared.study
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
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        asks = f"above the {money(threshold)} where study {study.name!r} asks first"
        cost, way = f"This would cost about {money(usd)}, {asks}", "lower it with --budget"
        if unknown:
            cost = f"The cost of {unknown} is not known (price unknown)"
            way = "give `price` in models.yaml (zeros where it is free)"
        raise BudgetError(f"{cost}, and there is no terminal to confirm it: add --yes, or {way}.")
    why = f"The cost is above this study's limit of {money(threshold)}."
    if unknown:
        why = f"The cost of {unknown} is not known."
    if not click.confirm(f"{why} Go on?", err=True):
        raise BudgetError("Not confirmed, so nothing was sent; --samples-per-bin makes it cheaper.")
