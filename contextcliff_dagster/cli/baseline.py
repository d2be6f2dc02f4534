"""`baseline`: which campaign later ones are held against, and whether the newest holds."""

from __future__ import annotations

import click

from contextcliff_dagster.cli.faults import DIFFERENT
from contextcliff_dagster.cli.measured import profiled_campaign
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.cli.output import print_json
from contextcliff_dagster.store import Store


@click.group()
def baseline() -> None:
    """Pin a campaign that later ones are held against, and hold the newest against it."""


@baseline.command("set")
@click.argument("study")
@click.option("--campaign", metavar="NAME", help="This campaign (default: the newest profiled).")
@common_options
def baseline_set(study: str, campaign: str | None, as_json: bool) -> None:
    """Pin a campaign of STUDY as its baseline."""
    from contextcliff_dagster.defs.steps.regression import pin_baseline
    from contextcliff_dagster.studies import find_study

    store, chosen = Store.default(), find_study(study)
    pinned = pin_baseline(chosen, store, profiled_campaign(store, chosen.name, campaign))
    if as_json:
        print_json(pinned.to_dict())
    else:
        click.echo(
            f"Baseline of study {pinned.study}: campaign {pinned.campaign} "
            f"({', '.join(pinned.models)})."
        )


@baseline.command("show")
@click.argument("study")
@common_options
def baseline_show(study: str, as_json: bool) -> None:
    """Say which campaign of STUDY is pinned."""
    from contextcliff_dagster.defs.steps.regression import insist_on_baseline
    from contextcliff_dagster.studies import find_study

    pinned = insist_on_baseline(find_study(study), Store.default())
    if as_json:
        print_json(pinned.to_dict())
    else:
        click.echo(
            f"Baseline of study {pinned.study}: campaign {pinned.campaign} "
            f"({', '.join(pinned.models)}), pinned {pinned.set_at}."
        )


@baseline.command("check")
@click.argument("study")
@click.option("--campaign", metavar="NAME", help="This campaign (default: the newest profiled).")
@common_options
def baseline_check(study: str, campaign: str | None, as_json: bool) -> None:
    """Hold a campaign of STUDY against the baseline; makes no call. Exit code 3: it has shrunk."""
    from contextcliff_dagster.defs.steps.preparation import load_frozen
    from contextcliff_dagster.defs.steps.regression import insist_on_baseline, judge_regression
    from contextcliff_dagster.studies import find_study

    store, chosen = Store.default(), find_study(study)
    insist_on_baseline(chosen, store)
    name = profiled_campaign(store, chosen.name, campaign)
    found = judge_regression(chosen, store, load_frozen(chosen, store), name)
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(found.sentence)
    if found.shrunk:
        raise click.exceptions.Exit(DIFFERENT)
