"""The experiments that a study asks for."""

from __future__ import annotations

from collections.abc import Sequence

from contextcliff_dagster.contracts import Table
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.experiment_table import (
    EXPERIMENTS,
    experiment_names,
    load_experiment,
)

__all__ = [
    "EXPERIMENTS",
    "all_experiments",
    "asked_experiments",
    "experiment_tables",
    "guests",
    "load_experiment",
]


def all_experiments() -> tuple[Experiment, ...]:
    """Return every experiment there is, in the order of the table."""
    return tuple(load_experiment(name) for name in experiment_names())


def asked_experiments(study: Study) -> tuple[Experiment, ...]:
    """Return the experiments that ``study`` asks for, in the order in which they are measured."""
    # Only those that may be asked are loaded: most studies measure one.
    names = [name for name in experiment_names() if name in ("length_profile", *study.sections)]
    return tuple(one for name in names if (one := load_experiment(name)).is_asked(study))


def experiment_tables() -> list[Table]:
    """Return the tables of predictions and records that the experiments fill, each once."""
    tables = [table for one in all_experiments() for table in (one.predictions, one.records)]
    return list({table.name: table for table in tables}.values())


def guests(host: Experiment) -> Sequence[Experiment]:
    """Return the experiments whose records are judged and reported with those of ``host``."""
    return [one for one in all_experiments() if one.host == host.name]
