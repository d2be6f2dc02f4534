"""Lookup of experiments, their assets and their tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from contextcliff_dagster.contracts import StudyError, Table
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.measurement import planned_calls
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.experiment_table import (
    EXPERIMENTS,
    experiment_names,
    load_experiment,
)


def all_experiments(names: Collection[str] = ()) -> tuple[Experiment, ...]:
    """Return every experiment that can be loaded, of ``names`` if given, in the table's order."""
    experiments = []
    for name in names or experiment_names():
        with suppress(StudyError):  # a broken extension; a study that asks for it raises
            experiments.append(load_experiment(name))
    return tuple(experiments)


def asked_experiments(study: Study) -> tuple[Experiment, ...]:
    """Return the experiments that ``study`` asks for, in the order of measurement."""
    # Load only experiments that the study may ask for: most studies measure one.
    ours = [name for name in EXPERIMENTS if name in ("length_profile", *study.sections)]
    names = dict.fromkeys([*ours, *study.sections])
    return tuple(e for name in names if (e := load_experiment(name)).is_asked(study))


def experiment_tables() -> list[Table]:
    """Return the experiments' tables of predictions and records, without duplicates."""
    tables = [table for e in all_experiments() for table in (e.predictions, e.records)]
    return list({table.name: table for table in tables}.values())


def guests(host: Experiment, study: Study | None = None) -> Sequence[Experiment]:
    """Return the experiments whose records are judged and reported with those of ``host``.

    With ``study``, extensions that it does not name are left out: loading them takes time.
    """
    names = [] if study is None else [*EXPERIMENTS, *study.sections]
    return [e for e in all_experiments(dict.fromkeys(names)) if e.host == host.name]


def partitioned(study: Study) -> list[Experiment]:
    """Return the experiments with their own partitions; guests share their host's partitions."""
    return [experiment for experiment in asked_experiments(study) if experiment.host is None]


def measuring_assets(study: Study, experiment: Experiment) -> list[str]:
    """Return the names of the assets that make calls: of the experiment, then of its guests."""
    return [
        name
        for asked in asked_experiments(study)
        if experiment.name in (asked.name, asked.host)
        for name in asked.asset_names("predictions")
    ]


def asked_keys(study: Study, store: Store, ledger: Ledger) -> Iterator[str]:
    """Yield the keys of the calls in the study's campaigns, even if another study paid for them.

    Skips experiments whose sample no longer belongs to the study.
    """
    for campaign in list_campaigns(ledger, study.name):
        run = StudyRun(study, store, ledger, campaign.name)
        identities = ledger.read(
            "SELECT DISTINCT identity_hash FROM campaign_models WHERE study = ? AND campaign = ?",
            (study.name, campaign.name),
        )
        hosts = partitioned(study)
        for experiment in [*hosts, *(guest for host in hosts for guest in guests(host))]:
            with suppress(StudyError):
                for (identity_hash,) in identities:
                    for call in planned_calls(run, experiment, identity_hash):
                        yield call.call_key


def judged_assets(experiment: Experiment) -> list[str]:
    """Return the assets derived from an experiment's predictions, without the report."""
    return [*experiment.asset_names("records"), *experiment.asset_names("result")]
