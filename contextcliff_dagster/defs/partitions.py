"""Partition dimensions of an experiment's predictions (`model` and one of its own), and run tags.

Dagster orders keys, plots and backfills by the alphabetical order of the dimension names. The
length profile's dimension is called `tokens`, not `bin`, so that `model` comes first and one range
of bins is one run of one engine.

Runs from the UI, a backfill or automation start without our tags; their steps add them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from contextcliff_dagster.defs.asset_specs import report_job_name, run_tags
from contextcliff_dagster.defs.dagster_internals import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    BACKFILL_ID_TAG,
    PARTITION_NAME_TAG,
    WILL_RETRY_TAG,
)
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study

MODEL = "model"


class _Partitions(dg.MultiPartitionsDefinition):
    """Two partition dimensions that do not become tags of a run.

    A job's backfill gives each of its runs, one per range, the tags of the first range's first
    partition. Dagster removes the partition's name from these tags, but not its dimensions.
    """

    def get_tags_for_partition_key(self, partition_key: str) -> Mapping[str, str]:
        return {PARTITION_NAME_TAG: partition_key}


def experiment_partitions(study: Study, experiment: Experiment) -> dg.MultiPartitionsDefinition:
    """Return one partition per model and cell; model keys are slugs of the model names."""
    return _Partitions(
        {
            MODEL: dg.StaticPartitionsDefinition([slug(name) for name in study.models]),
            experiment.dimension: dg.StaticPartitionsDefinition(list(experiment.cells(study))),
        }
    )


def document_partitions(study: Study, experiment: Experiment) -> dg.MultiPartitionsDefinition:
    """Return the partitions of an experiment's stored documents."""
    assert experiment.documents is not None
    keys = experiment.documents.keys(study)
    return _Partitions({name: dg.StaticPartitionsDefinition([*keys[name]]) for name in keys})


def cells_by_model(study: Study, partition_keys: Iterable[str]) -> dict[str, list[str]]:
    """Return model -> its cells among ``partition_keys``, in order; one engine start per model then
    serves all its cells."""
    names = {slug(name): name for name in study.models}
    wanted: dict[str, list[str]] = {}
    for key in partition_keys:
        assert isinstance(key, dg.MultiPartitionKey)
        dimensions = dict(key.keys_by_dimension)
        model = names[dimensions.pop(MODEL)]
        wanted.setdefault(model, []).extend(dimensions.values())
    return wanted


def tagged_partitions(
    run_tags: Mapping[str, str], study: Study, experiment: Experiment
) -> Sequence[str] | None:
    """Return the partitions named by a run's tags, a range or a single one; None if untagged."""
    partitions = experiment_partitions(study, experiment)
    key = partitions.get_partition_key_from_str
    if ASSET_PARTITION_RANGE_START_TAG not in run_tags:
        partition = run_tags.get(PARTITION_NAME_TAG)
        return None if partition is None else [key(partition)]
    first = run_tags[ASSET_PARTITION_RANGE_START_TAG]
    last = run_tags[ASSET_PARTITION_RANGE_END_TAG]
    return partitions.get_partition_keys_in_range(dg.PartitionKeyRange(key(first), key(last)))


def tagged_models(run_tags: Mapping[str, str], study: Study) -> Sequence[str]:
    """Return the models of the partitions in a run's tags; without tags, all the study's models."""
    places = {slug(name): place for place, name in enumerate(study.models)}
    tags = (ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG, PARTITION_NAME_TAG)
    named = [run_tags[tag].partition("|")[0] for tag in tags if tag in run_tags]
    ends = [places[name] for name in named if name in places]
    return study.models[min(ends) : max(ends) + 1] if ends else study.models


def partition_key(experiment: Experiment, model: str, cell: str) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({MODEL: slug(model), experiment.dimension: cell})


def range_tags(
    study: Study, experiment: Experiment, keys: Sequence[str] | None = None
) -> dict[str, str]:
    """Return tags that assign the range ``keys`` of partitions to one run; None means all."""
    return _range_tags(keys or experiment_partitions(study, experiment).get_partition_keys())


def document_range_tags(study: Study, experiment: Experiment) -> dict[str, str]:
    """Return tags that assign every partition of the documents to one run."""
    return _range_tags(document_partitions(study, experiment).get_partition_keys())


def _range_tags(keys: Sequence[str]) -> dict[str, str]:
    # Plain strings: a MultiPartitionKey as tag value would tag the run with its first partition.
    return {
        ASSET_PARTITION_RANGE_START_TAG: str(keys[0]),
        ASSET_PARTITION_RANGE_END_TAG: str(keys[-1]),
    }


REPORTED_BY = "contextcliff/reported_by"
"""Tag of a measuring run that names the job to report once all such runs have ended."""

_CAUSES = {
    "dagster/schedule_name": "schedule",
    "dagster/from_automation_condition": "automation",
    "dagster/auto_materialize": "automation",
    "dagster/sensor_name": "sensor",
    BACKFILL_ID_TAG: "backfill",
}
"""Dagster's tag -> cause of the run; the first matching tag counts."""


@contextmanager
def tagged_run(study: Study, store: StoreResource, campaign: str | None) -> Iterator[StudyRun]:
    """Open a `StudyRun`, and tag this step's run with its purpose."""
    with StudyRun.open(study, store.open(), campaign) as run:
        complete_run_tags(dg.OpExecutionContext.get(), study, run.campaign)
        yield run


def complete_run_tags(context: dg.OpExecutionContext, study: Study, campaign: str) -> None:
    """Add the tags of `asset_specs.run_tags` that the run lacks."""
    of_run = study.with_models(tagged_models(context.run.tags, study))
    cause = next((cause for tag, cause in _CAUSES.items() if tag in context.run.tags), "launch")
    wanted = run_tags(of_run, campaign, cause)
    if is_reported_later(context.run):
        wanted[REPORTED_BY] = report_job_name(study)
    if wanted.keys() <= context.run.tags.keys():
        return
    # Current tags, not those at the step's start: an earlier step may have added some.
    run = context.instance.get_run_by_id(context.run_id)
    known = run.tags if run is not None else {}
    if missing := {name: value for name, value in wanted.items() if name not in known}:
        context.instance.add_run_tags(context.run_id, missing)


def is_reported_later(run: dg.DagsterRun) -> bool:
    """Return whether the run only measures, as part of a job's backfill.

    A backfill of assets (its runs belong to Dagster's unnamed job) goes down the graph by itself,
    and reports once everything is measured.
    """
    return BACKFILL_ID_TAG in run.tags and not run.job_name.startswith("__")


def is_retried(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether Dagster will retry the failed ``run``, or has not decided yet."""
    # The tag comes a moment after the failure.
    undecided = instance.run_retries_enabled and WILL_RETRY_TAG not in run.tags
    return undecided or run.tags.get(WILL_RETRY_TAG) == "true"
