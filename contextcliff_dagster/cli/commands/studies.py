"""`studies`: list, retire and rename studies."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.display.output import print_either, print_json, print_table, some
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.reporting.wording import count
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.archive.rename import RenamePlan

_MOST_NAMED = 4
"""Maximum number of models listed per study."""


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def studies(ctx: click.Context, as_json: bool) -> None:
    """List the studies that can be profiled; retire or rename one."""
    if ctx.invoked_subcommand is None:
        _list_studies(as_json)


def _list_studies(as_json: bool) -> None:
    from contextcliff_dagster.studies import read_studies
    from contextcliff_dagster.studies.files import retired_studies

    known, broken = read_studies()
    retired = retired_studies(Store.default())
    known = {name: study for name, study in known.items() if name not in retired}
    for broken_study in broken:
        say(f"Warning: study {broken_study.name!r} cannot be loaded. {broken_study.error}")
    if as_json:
        print_json([study.model_dump(mode="json", exclude_none=True) for study in known.values()])
        return
    rows = []
    for name, study in known.items():
        sizes = f"{study.bins.count} x {study.sampling.samples_per_bin}"
        corpus, models = study.corpus.kind, some(study.models, _MOST_NAMED)
        if not study.has_corpus:
            sections = ", ".join(study.sections)
            rows.append((name, "generated", sections, "-", models, study.description))
            continue
        options = study.corpus.options
        several = ", ".join(options.get("tasks") or options.get("kinds") or ())
        rows.append(
            (name, corpus, study.task or several or "any", sizes, models, study.description)
        )
    print_table(("STUDY", "CORPUS", "TASK", "BINS x SAMPLES", "MODELS", "DESCRIPTION"), rows)
    if retired:
        click.echo(f"\nRetired: {', '.join(retired)} (`contextcliff studies retire --undo STUDY`).")


@studies.command("retire", short_help="Hide a study; its results are kept.")
@click.argument("study")
@click.option("--undo", is_flag=True, help="Show it again.")
@common_options
def studies_retire(study: str, undo: bool, as_json: bool) -> None:
    """Hide STUDY, even if its file is gone, from this list, the Dagster UI and the database.

    Its calls, results and file are kept, and `--undo` shows it again.
    """
    from contextcliff_dagster.studies.files import bring_back, retire

    (bring_back if undo else retire)(Store.default(), study)
    text = f"Study {study} is {'shown again' if undo else 'retired'}."
    print_either({"study": study, "retired": not undo}, text, as_json=as_json)


@studies.command("rename", short_help="Give a study another name; nothing is measured again.")
@click.argument("old")
@click.argument("new")
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@common_options
def studies_rename(old: str, new: str, dry_run: bool, as_json: bool) -> None:
    """Rename study OLD to NEW: its file, its folder in the store, its rows in the call ledger.

    Its answers are kept, so nothing is measured again. To finish an interrupted rename, repeat it.
    """
    from contextcliff_dagster.archive.rename import plan_rename, rename_study
    from contextcliff_dagster.experiments.lookup import experiment_tables

    store = Store.default()
    plan = plan_rename(store, old, new)
    _refuse_during_runs(store, old)
    if dry_run:
        text = f"Nothing is changed. The rename would cover: {_changes(plan)}"
    else:
        plan = rename_study(store, old, new, tables=experiment_tables())
        text = (
            f"Study {old} is now {new}: {_changes(plan)}\nNo call is made again: `contextcliff "
            f"report {new}` writes its report under the new name. Dagster keeps the history of "
            f"{old}/... under those keys; once the code location is reloaded the assets of "
            f"{new}/... start with no history, and their schedules and sensors are off. "
            "Materialize `database` to update its tables."
        )
    print_either({**asdict(plan), "dry_run": dry_run}, text, as_json=as_json)


def _refuse_during_runs(store: Store, study: str) -> None:
    """Refuse to rename a study during a Dagster run, which may hold no lock between steps."""
    from contextcliff_dagster.cli.dagster_home import COMMAND_LINE, dagster_home, open_instance

    if not dagster_home(store).is_dir():
        return
    import dagster as dg

    from contextcliff_dagster.defs.dagster_internals import NOT_FINISHED_STATUSES

    of_study = dg.RunsFilter(
        tags={"contextcliff/study": study}, statuses=list(NOT_FINISHED_STATUSES)
    )
    with open_instance(store) as instance:
        for run in instance.get_runs(of_study):
            if run.tags.get("contextcliff/cause") != COMMAND_LINE:
                raise StoreError(
                    f"Run {run.run_id[:8]} of study {study!r} is still active in Dagster; wait "
                    "for it, or end it there (Runs), then rename the study."
                )


def _changes(plan: RenamePlan) -> str:
    parts = [
        *([", ".join(plan.files)] if plan.files else []),
        *(["its folder in the store"] if plan.folder else []),
        f"{count(plan.campaigns, 'campaign')} with {count(plan.calls, 'call')} in the ledger",
    ]
    begun = " (begun before, finished now)" if plan.resumed else ""
    return f"{', '.join(parts)}{begun}."
