"""`export` and `import`: a study as one file, to be reproduced elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import common_options, kept_campaign_option
from contextcliff_dagster.cli.study_selection import keep_definition
from contextcliff_dagster.reporting.wording import count
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study, kept_in, known_study, measures
from contextcliff_dagster.studies.study import Leave


@click.command()
@click.argument("study")
@click.argument("file", type=click.Path(path_type=Path))
@kept_campaign_option
@common_options
def export(study: str, file: Path, campaign: str | None, as_json: bool) -> None:
    """Write STUDY with its sample and its own recorded calls to FILE."""
    from contextcliff_dagster.archive.study import export_study
    from contextcliff_dagster.experiments.lookup import asked_keys
    from contextcliff_dagster.experiments.restore import kept_lists

    store, chosen = Store.default(), find_study(study)
    keys = partial(asked_keys, chosen, store)
    lists = kept_lists(chosen, store)
    summary = export_study(store, chosen, file, campaign=campaign, asked=keys, documents=lists)
    documents = sum(len(listed.rows) for listed in lists.values())
    size = count(documents, "document") if documents else count(summary.examples, "example")
    text = (
        f"{file} holds study {summary.study}: {size}, "
        f"{count(summary.answers, 'answer')} of {count(len(summary.campaigns), 'campaign')}, "
        f"{summary.bytes / 1e6:.1f} MB, sha256 {summary.sha256}"
    )
    print_either(asdict(summary), text, as_json=as_json)


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="Call the study NAME here.")
@click.option("--adopt", is_flag=True, help="Let measurements reuse the imported answers.")
@common_options
def import_(file: Path, name: str | None, adopt: bool, as_json: bool) -> None:
    """Import the study of FILE into this store; `report` then rebuilds its results.

    Measurements reuse the answers of FILE only with --adopt.
    """
    from contextcliff_dagster.archive.study import import_study
    from contextcliff_dagster.experiments.restore import restore

    store = Store.default()
    study, summary = import_study(store, file, name, restore, adopt=adopt)
    before = known_study(study.name)
    keep_definition(study.with_leave(Leave(kept_in(store.root))), store)
    if before is not None and measures(before) != measures(study):
        say(
            f"Note: study {study.name!r} differs from the imported one; in this store the "
            "imported one replaces it."
        )
    text = (
        f"Study {summary.study} is in {store.root}: {count(summary.answers, 'answer')} of "
        f"{count(len(summary.campaigns), 'campaign')} for ${summary.usd:,.4f}, "
        f"{summary.new_answers:,} of them new. "
        + (
            "Measurements reuse them, and reports name the file. "
            if adopt
            else "Only the study's reports read them; with --adopt, measurements reuse them too. "
        )
        + f"See it with `contextcliff report {summary.study}"
        f"{_other_models(study, summary.campaigns, store)}`."
    )
    print_either(asdict(summary), text, as_json=as_json)


def _other_models(study: Study, campaigns: Sequence[str], store: Store) -> str:
    """Return the options by which `report` finds the newest campaign's models if none of them is
    in the study; otherwise ""."""
    from contextcliff_dagster.experiments.common.study_run import open_ledger

    if not campaigns:
        return ""
    with open_ledger(store) as ledger:
        rows = ledger.read(
            "SELECT DISTINCT model FROM campaign_models WHERE study = ? AND campaign = ?",
            (study.name, campaigns[-1]),
        )
    measured = sorted(str(model) for (model,) in rows)
    if not measured or not set(measured).isdisjoint(study.models):
        return ""
    return "".join(f" --model {name}" for name in measured)
