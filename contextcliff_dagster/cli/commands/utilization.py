"""`utilization`: the same records as JSON lines and as prose, from short to long."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.commands.profile import agree_on_cost, say_notes
from contextcliff_dagster.cli.dagster_home import COMMAND_LINE, open_instance
from contextcliff_dagster.cli.display.dagster_log import dagster_log
from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.display.print_sample import estimate_sentence, print_prepared
from contextcliff_dagster.cli.display.progress import ProgressBar, money
from contextcliff_dagster.cli.errors import interruption_says, say
from contextcliff_dagster.cli.options import common_options, spending_options, with_answers_option
from contextcliff_dagster.cli.study_selection import keep_definition
from contextcliff_dagster.cli.utilization_study import made_study, utilization_options
from contextcliff_dagster.contracts import BudgetError, StudyError
from contextcliff_dagster.inference.spending.budget import Budget, with_day_limit
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.defs.run import Prepared


@click.group(invoke_without_command=True)
@utilization_options
@spending_options
@with_answers_option
@common_options
@click.pass_context
def utilization(ctx: click.Context, /, **given: Any) -> None:
    """Does structure let a model use more of its context? Measure and print the report.

    Documents are made here to a number of tokens, verified, and written in several formats. An
    option with several values, as --order chronological,shuffled, measures the first with
    everything else, and each further one on its own against it.

    \b
    Examples:
      contextcliff utilization --benchmark ledger --scale 8k --formats jsonl,prose --model my-model
      contextcliff utilization --scale 1k-64k --seeds 20 --model my-model --dry-run
          All benchmarks at seven lengths: what it would cost, no call.
      contextcliff utilization --scale 1k,4k export made
          The documents, questions and answers of these options into the folder `made`.
    """
    if ctx.invoked_subcommand is None:
        _measure(**given)
    ctx.obj = given


@utilization.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--study", metavar="STUDY", help="Of this study, not of the options before `export`.")
@common_options
@click.pass_obj
def export(given: Mapping[str, Any], folder: Path, study: str | None, as_json: bool) -> None:
    """Write documents, questions, answers and the verifier's verdicts as JSON lines into DIR.

    An inspect_ai task next to them asks any model: `inspect eval DIR/inspect_task.py`. The options
    before `export` choose the documents; no model is needed, and none is called.
    """
    from contextcliff_dagster.experiments.utilization.documents.kept import whole_documents
    from contextcliff_dagster.experiments.utilization.exporting.export import export as write
    from contextcliff_dagster.studies import find_study

    store = Store.default()
    chosen = find_study(study) if study else made_study(given["keys"], given["models"] or _NO_MODEL)
    section = chosen.sections.get("utilization")
    if section is None:
        raise StudyError(f"Study {chosen.name!r} has no key `utilization`; name one that has.")
    with dagster_log(given["verbose"]):
        done = write(
            whole_documents(chosen, store),
            folder,
            thought=section.thought[0],
            question_place=section.question_place[0],
        )
    text = (
        f"{done.documents:,} documents with {done.questions:,} questions: {folder}\n"
        f"Ask a model: inspect eval {folder / 'inspect_task.py'} --model NAME"
    )
    counts = {"documents": done.documents, "questions": done.questions}
    print_either({"folder": str(folder), **counts}, text, as_json=as_json)


_NO_MODEL = ("reader-perfect",)
"""Its tokenizer counts where no model is named."""


def _measure(
    keys: Mapping[str, Any],
    models: tuple[str, ...],
    budget: float | None,
    deadline: float | None,
    dry_run: bool,
    campaign: str | None,
    yes: bool,
    verbose: bool,
    with_answers: bool,
    as_json: bool,
) -> None:
    with_day_limit(Budget())  # an amount that is none is noticed before anything is made
    study, store = made_study(keys, models), Store.default()
    with dagster_log(verbose):
        from contextcliff_dagster.cli.commands.report import print_profiled
        from contextcliff_dagster.cli.result_cache import find_finished, note_finished
        from contextcliff_dagster.defs.run import prepare_study, profile_study

        if not dry_run and (kept := find_finished(store, study, campaign, with_answers)):
            print_profiled(kept, as_json=as_json)
            return
        # Of documents that are not made yet, from short ones: making millions of tokens takes time.
        prepared = prepare_study(study, campaign=campaign, keep=False, store=store)
        say_notes(prepared)
        if dry_run:
            print_prepared(prepared, store, as_json=as_json)
            return
        if keys.get("factorial") and not yes:
            _agree_on_factorial(prepared, store)
        limit = budget if budget is not None else study.budget.usd
        agree_on_cost(prepared, limit, yes=yes)
        keep_definition(study, store)
        with ProgressBar() as bar, interruption_says(store, study, campaign):
            done = profile_study(
                study,
                campaign=campaign,
                budget=Budget(usd=limit),
                deadline_s=deadline,
                on_progress=bar,
                on_wait=say,
                store=store,
                instance=open_instance(store),
                cause=COMMAND_LINE,
                with_answers=with_answers,
            )
            note_finished(store, study, done.campaign, done.calls, with_answers)
    print_profiled(done, as_json=as_json)


def _agree_on_factorial(prepared: Prepared, store: Store) -> None:
    """Say what every combination takes, before a document is made, and ask.

    Raises:
        BudgetError: not confirmed, or there is no terminal to confirm it.
    """
    from contextcliff_dagster.defs.run import prepare_study
    from contextcliff_dagster.experiments.utilization.cells import arms_of

    section = prepared.study.sections["utilization"]
    alone = prepare_study(
        prepared.study.changed(utilization=section.model_copy(update={"factorial": False})),
        keep=False,
        store=store,
    ).estimate
    saved = f"One change at a time: {alone.calls:,} calls, about {alone.tokens:,} tokens"
    saved += f", about {money(alone.usd)}." if alone.usd else "."
    what = (
        f"--factorial asks for all {len(arms_of(section)):,} combinations. "
        f"{estimate_sentence(prepared)} {saved}"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BudgetError(f"{what} Add --yes for that, or leave --factorial out.")
    if not click.confirm(f"{what} Measure every combination?", err=True):
        raise BudgetError("Not confirmed, so nothing was sent; leave --factorial out.")
