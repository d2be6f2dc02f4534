"""Measure a study that a command created from its options, and print the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.cli.commands.profile import agree_on_cost, say_notes
from contextcliff_dagster.cli.dagster_home import COMMAND_LINE, open_instance
from contextcliff_dagster.cli.display.output import ProgressBar, dagster_log
from contextcliff_dagster.cli.display.samples import print_prepared
from contextcliff_dagster.cli.errors import interruption_says, say
from contextcliff_dagster.cli.study_selection import keep_definition
from contextcliff_dagster.inference.spending import Budget, with_day_limit
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.run.study import Prepared, Profiled


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Values of `spending_options`, and how to print the report."""

    budget: float | None
    deadline: float | None
    dry_run: bool
    campaign: str | None
    yes: bool
    verbose: bool
    with_answers: bool
    as_json: bool


def check_budget() -> None:
    """Raise BudgetError for an invalid amount in the environment, before any work is done."""
    with_day_limit(Budget())


def measure_made_study(
    study: Study,
    options: RunOptions,
    agree: Callable[[Prepared], None] | None = None,
    complete: Callable[[Study], Study] | None = None,
) -> None:
    """Make the missing calls of ``study`` and print its report; arguments as `run_made_study`."""
    from contextcliff_dagster.cli.commands.report import print_profiled

    done = run_made_study(study, options, agree, complete)
    if done is not None:
        print_profiled(done, as_json=options.as_json)


def run_made_study(
    study: Study,
    options: RunOptions,
    agree: Callable[[Prepared], None] | None = None,
    complete: Callable[[Study], Study] | None = None,
) -> Profiled | None:
    """Make the missing calls of ``study`` and return its results.

    With `dry_run`, print the estimate and return None.

    Args:
        agree: may refuse before the user is asked about the cost.
        complete: called once the cost is agreed on; does what takes long and returns the study to
            measure, which has as many calls.

    Raises:
        ContextCliffError: the study cannot be measured, or the user declined the cost.
    """
    from contextcliff_dagster.cli.result_cache import find_finished, note_finished
    from contextcliff_dagster.run.study import prepare_study, profile_study

    store, campaign, with_answers = Store.default(), options.campaign, options.with_answers
    with dagster_log(options.verbose):
        kept = None if options.dry_run else find_finished(store, study, campaign, with_answers)
        if kept:
            return kept
        # Do not generate documents for the estimate: millions of tokens take time.
        prepared = prepare_study(study, campaign=campaign, keep=False, store=store)
        say_notes(prepared)
        if options.dry_run:
            print_prepared(prepared, store, as_json=options.as_json)
            return None
        if agree is not None:
            agree(prepared)
        limit = options.budget if options.budget is not None else study.budget.usd
        agree_on_cost(prepared, limit, yes=options.yes)
        if complete is not None:
            study = complete(study)
        keep_definition(study, store)
        with ProgressBar() as bar, interruption_says(store, study, campaign):
            done = profile_study(
                study,
                campaign=campaign,
                budget=Budget(usd=limit),
                deadline_s=options.deadline,
                on_progress=bar,
                on_wait=say,
                store=store,
                instance=open_instance(store),
                cause=COMMAND_LINE,
                with_answers=with_answers,
            )
            note_finished(store, study, done.campaign, done.calls, with_answers)
    return done
