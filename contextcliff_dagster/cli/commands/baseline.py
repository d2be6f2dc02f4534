"""`baseline`: which campaign later ones are compared with, and whether the newest is as good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.campaign_lookup import newest_campaign, profiled_campaign
from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.errors import DIFFERENT, NOT_JUDGED
from contextcliff_dagster.cli.options import (
    common_options,
    profiled_campaign_option,
    together,
)
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.experiments.length_profile.regression import Baseline, Regression

_of_study = together(click.argument("study"), common_options)


@click.group()
def baseline() -> None:
    """Pin a campaign as the baseline, and compare later campaigns with it."""


@baseline.command("set")
@_of_study
@profiled_campaign_option
def baseline_set(study: str, campaign: str | None, as_json: bool) -> None:
    """Pin a campaign of STUDY as its baseline."""
    from contextcliff_dagster.experiments.length_profile.regression import pin_baseline
    from contextcliff_dagster.studies import find_study

    store, chosen = Store.default(), find_study(study)
    pinned = pin_baseline(chosen, store, profiled_campaign(store, chosen.name, campaign))
    print_either(pinned.to_dict(), f"{_named(pinned)}.", as_json=as_json)


@baseline.command("show")
@_of_study
def baseline_show(study: str, as_json: bool) -> None:
    """Show which campaign of STUDY is pinned."""
    from contextcliff_dagster.experiments.length_profile.regression import require_baseline
    from contextcliff_dagster.studies import find_study

    pinned = require_baseline(find_study(study), Store.default())
    print_either(pinned.to_dict(), f"{_named(pinned)}, pinned {pinned.set_at}.", as_json=as_json)


@baseline.command("check")
@_of_study
@profiled_campaign_option
def baseline_check(study: str, campaign: str | None, as_json: bool) -> None:
    """Compare a campaign of STUDY with the baseline; no calls.

    Exit code 3: the score of a model declined; 4: none declined, but one could not be judged.
    """
    from contextcliff_dagster.experiments.common.preparation import load_frozen
    from contextcliff_dagster.experiments.common.study_run import open_ledger
    from contextcliff_dagster.experiments.length_profile.regression import (
        judge_regression,
        require_baseline,
        with_changes,
    )
    from contextcliff_dagster.experiments.length_profile.regression_page import write_regression
    from contextcliff_dagster.studies import find_study

    store, chosen = Store.default(), find_study(study)
    require_baseline(chosen, store)
    name = profiled_campaign(store, chosen.name, campaign)
    if campaign is None and (newer := newest_campaign(store, chosen.name)) not in (None, name):
        said = f"Campaign {newer} has no profile to judge; measure it with `contextcliff profile "
        print_either(
            {"campaign": newer, "sentence": said}, f"{said}{chosen.name}`.", as_json=as_json
        )
        raise click.exceptions.Exit(NOT_JUDGED)
    regression = judge_regression(chosen, store, load_frozen(chosen, store), name)
    with open_ledger(store) as ledger:
        regression = with_changes(regression, chosen, ledger)
    end_with(regression, as_json=as_json, page=write_regression(regression, chosen, store))


def end_with(regression: Regression, *, as_json: bool, page: Path | None = None) -> None:
    """Print what a campaign is against the baseline, and where its ``page`` is.

    Raises:
        click.exceptions.Exit: 3, a model has shrunk; 4, none has and one could not be judged.
    """
    found, words = regression.to_dict(), regression.sentence
    if page is not None:
        found, words = {**found, "page": str(page)}, f"{words}\nReport: {page}"
    print_either(found, words, as_json=as_json)
    if regression.shrunk:
        raise click.exceptions.Exit(DIFFERENT)
    if regression.unjudged:
        raise click.exceptions.Exit(NOT_JUDGED)


def _named(pinned: Baseline) -> str:
    models = ", ".join(pinned.models)
    return f"Baseline of study {pinned.study}: campaign {pinned.campaign} ({models})"
