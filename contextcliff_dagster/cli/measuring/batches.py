"""`batches`: list the batches of calls at providers, cancel one, or take in their answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from contextcliff_dagster.cli.commands.report import print_profiled, profiled_json
from contextcliff_dagster.cli.dagster_home import COMMAND_LINE, open_instance
from contextcliff_dagster.cli.display.output import print_either, print_json, print_table
from contextcliff_dagster.cli.errors import USER_ERROR, say
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.contracts import BatchesOpenError, ContextCliffError, StudyError
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.inference.ledger.batches import CallBatch, batches_of, open_calls
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.store import Store


@click.group()
def batches() -> None:
    """List the batches of calls at providers, cancel one, or take in their answers."""


@batches.command("list")
@click.argument("study", required=False)
@common_options
def batches_list(study: str | None, as_json: bool) -> None:
    """List the batches of STUDY, or of all studies, oldest first, as they were when last seen."""
    rows = [
        {**asdict(batch), "name": batch.name, "waiting": waiting} for batch, waiting in _all(study)
    ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        of = f" of study {study!r}" if study else ""
        click.echo(f"No batch{of}; `contextcliff profile STUDY --batch` submits one.")
        return
    names = ("name", "study", "campaign", "model", "requests", "waiting", "remote_status")
    columns = ("BATCH", "STUDY", "CAMPAIGN", "MODEL", "CALLS", "WAITING", "LAST SEEN", "ENDED")
    print_table(
        columns,
        [
            (*(row[name] or "-" for name in names), "yes" if row["ended_at"] else "no")
            for row in rows
        ],
    )


@batches.command("cancel", short_help="Ask the provider to end a batch.")
@click.argument("batch")
@common_options
def batches_cancel(batch: str, as_json: bool) -> None:
    """Ask the provider to end BATCH; answers that it has given by then are kept."""
    from contextcliff_dagster.inference.execution.batches import cancel

    found = [one for one, _ in _all() if batch in (one.owner, one.remote_id)]
    if not found or found[0].ended_at:
        state = "has ended already" if found else "is not known"
        raise StudyError(f"Batch {batch} {state}; `contextcliff batches list` shows the batches.")
    chosen = found[0]
    with open_ledger(Store.default()) as ledger:
        status = cancel(get_model(chosen.model), ledger, chosen)
    resume = f"`contextcliff batches resume {chosen.study}` takes in the answers that it has"
    then = "its provider does not have it, and its calls are free" if status == "gone" else resume
    text = f"Batch {chosen.name} is {status}: {then}."
    print_either({"batch": chosen.name, "status": status}, text, as_json=as_json)


@batches.command("resume", short_help="Take in the answers of open batches.")
@click.argument("study", required=False)
@common_options
def batches_resume(study: str | None, as_json: bool) -> None:
    """Take in the answers of open batches of STUDY, or of all studies, and ask again what those
    that have ended did not answer."""
    from contextcliff_dagster.run.study import resume_batches
    from contextcliff_dagster.studies import find_study

    store = Store.default()
    waiting: dict[tuple[str, str], set[str]] = {}
    for batch, _ in _all(study):
        if batch.ended_at is None:
            waiting.setdefault((batch.study, batch.campaign), set()).add(batch.model)
    if not waiting:
        say(f"No batch{f' of study {study!r}' if study else ''} is open.")
    refused, reported = False, []
    for (name, campaign), models in waiting.items():
        try:
            done = resume_batches(
                find_study(name).with_models(sorted(models)),
                campaign,
                store=store,
                instance=open_instance(store),
                on_wait=say,
                cause=COMMAND_LINE,
            )
        except BatchesOpenError as error:
            say(f"{error}.")
            reported.append(error.to_dict())
        except ContextCliffError as error:
            say(f"contextcliff: {error}")  # the others go on
            refused = True
        else:
            reported.append(profiled_json(done))
            if not as_json:
                print_profiled(done, as_json=False)
    if as_json:
        print_json(reported)
    if refused:
        raise click.exceptions.Exit(USER_ERROR)


def _all(study: str | None = None) -> Iterator[tuple[CallBatch, int]]:
    """Yield each batch, oldest first, with the number of its calls that have no answer yet."""
    store = Store.default()
    if store.has_ledger:
        with open_ledger(store) as ledger:
            for batch in batches_of(ledger, study=study):
                yield batch, len(open_calls(ledger, batch))
