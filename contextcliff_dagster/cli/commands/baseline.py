"""`baseline`: pin the campaign that later ones are compared with, and check the newest."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.errors import DIFFERENT, NOT_JUDGED
from contextcliff_dagster.cli.options import common_options, profiled_campaign_option, together
from contextcliff_dagster.cli.study_selection import newest_campaign, profiled_campaign
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study

if TYPE_CHECKING:
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

    store, chosen = Store.default(), find_study(study)
    pinned = pin_baseline(chosen, store, profiled_campaign(store, chosen.name, campaign))
    print_either(asdict(pinned), f"{_named(pinned)}.", as_json=as_json)


@baseline.command("show")
@_of_study
def baseline_show(study: str, as_json: bool) -> None:
    """Show which campaign of STUDY is pinned."""
    _, _, pinned = _watched(study)
    print_either(asdict(pinned), f"{_named(pinned)}, pinned {pinned.set_at}.", as_json=as_json)


@baseline.command("check")
@_of_study
@profiled_campaign_option
def baseline_check(study: str, campaign: str | None, as_json: bool) -> None:
    """Compare a campaign of STUDY with the baseline; no calls.

    Exit code 3: the score of a model declined; 4: none declined, but one could not be judged.
    """
    from contextcliff_dagster.experiments.length_profile.regression import write_regression

    store, chosen, _ = _watched(study)
    name = profiled_campaign(store, chosen.name, campaign)
    if campaign is None and (newer := newest_campaign(store, chosen.name)) not in (None, name):
        text = f"Campaign {newer} has no profile to judge; measure it with `contextcliff profile "
        print_either(
            {"campaign": newer, "sentence": text}, f"{text}{chosen.name}`.", as_json=as_json
        )
        raise click.exceptions.Exit(NOT_JUDGED)
    regression = _judged(chosen, store, name)
    end_with(regression, as_json=as_json, page=write_regression(regression, chosen, store))


@baseline.command("dismiss")
@click.argument("study")
@click.argument("campaign")
@click.option("--reason", required=True, help="Why it was a false alarm; kept and reported.")
@common_options
def baseline_dismiss(study: str, campaign: str, reason: str, as_json: bool) -> None:
    """Dismiss the alarm of a CAMPAIGN of STUDY as a false one.

    The campaign passes from now on, and counts among the runs that show how answers vary.
    """
    from contextcliff_dagster.experiments.length_profile.regression import (
        dismiss_alarm,
        write_regression,
    )

    store, chosen, _ = _watched(study)
    name = profiled_campaign(store, chosen.name, campaign)
    regression = dismiss_alarm(chosen, store, _judged(chosen, store, name), reason)
    end_with(regression, as_json=as_json, page=write_regression(regression, chosen, store))


def _watched(study: str) -> tuple[Store, Study, Baseline]:
    """Return the store, the study and its baseline.

    Raises:
        StudyError: the study has no baseline.
    """
    from contextcliff_dagster.experiments.length_profile.regression import require_baseline

    store, chosen = Store.default(), find_study(study)
    return store, chosen, require_baseline(chosen, store)


def _judged(study: Study, store: Store, campaign: str) -> Regression:
    """Compare a campaign with the baseline, and list changes in its models."""
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.experiments.length_profile.regression import regression_of

    with StudyRun.open(study, store, campaign) as run:
        return regression_of(run)


def end_with(regression: Regression, *, as_json: bool, page: Path | None = None) -> None:
    """Print how a campaign compares with the baseline, and the path of its ``page``.

    Raises:
        click.exceptions.Exit: 3 if a model has shrunk; 4 if none has but one could not be judged.
    """
    result, words = regression.to_dict(), regression.sentence
    if page is not None:
        result, words = {**result, "page": str(page)}, f"{words}\nReport: {page}"
    print_either(result, words, as_json=as_json)
    if regression.shrunk:
        raise click.exceptions.Exit(DIFFERENT)
    if regression.unjudged:
        raise click.exceptions.Exit(NOT_JUDGED)


def _named(pinned: Baseline) -> str:
    models = ", ".join(pinned.models)
    return f"Baseline of study {pinned.study}: campaign {pinned.campaign} ({models})"
