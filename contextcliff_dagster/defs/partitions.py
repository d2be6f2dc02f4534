"""Partitions of an experiment's assets, and run tags.

Predictions are partitioned by campaign and cell, and everything made of them by campaign. A cell
is a model and one key of the experiment, such as a length bin; a range of cells is a range of
adjacent models. Campaigns are dynamic partitions: a key is added when one begins.

Runs from the UI or a backfill start without our tags; their steps add them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs.asset_specs import asset_key, run_tags
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
from contextcliff_dagster.inference.ledger.campaigns import check_campaign_name
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study

CAMPAIGN, CELL = "campaign", "cell"

Cells = dict[str, dict[str, list[str]]]
"""Campaign -> model -> cells, in the study's order."""


class _Partitions(dg.MultiPartitionsDefinition):
    """Two partition dimensions that do not become tags of a run.

    A job's backfill gives each of its runs, one per range, the tags of the first range's first
    partition. Dagster removes the partition's name from these tags, but not its dimensions.
    """

    def get_tags_for_partition_key(self, partition_key: str) -> Mapping[str, str]:
        return {PARTITION_NAME_TAG: partition_key}


def campaign_partitions(study: Study) -> dg.DynamicPartitionsDefinition:
    return dg.DynamicPartitionsDefinition(name="/".join(asset_key(study, "campaigns").path))


def experiment_partitions(study: Study, experiment: Experiment) -> dg.MultiPartitionsDefinition:
    """Return one partition per campaign and cell."""
    cells = [cell_key(model, cell) for model in study.models for cell in experiment.cells(study)]
    return _Partitions(
        {CAMPAIGN: campaign_partitions(study), CELL: dg.StaticPartitionsDefinition(cells)}
    )


def document_partitions(study: Study, experiment: Experiment) -> dg.MultiPartitionsDefinition:
    """Return the partitions of an experiment's stored documents."""
    assert experiment.documents is not None
    keys = experiment.documents.keys(study)
    return _Partitions({name: dg.StaticPartitionsDefinition([*keys[name]]) for name in keys})


def cell_key(model: str, cell: str) -> str:
    return f"{slug(model)}.{cell}"


def partition_key(campaign: str, model: str, cell: str) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({CAMPAIGN: campaign, CELL: cell_key(model, cell)})


def add_campaign(instance: dg.DagsterInstance, study: Study, campaign: str) -> None:
    """Make ``campaign`` a partition key, unless it is one."""
    instance.add_dynamic_partitions(str(campaign_partitions(study).name), [campaign])


def cells_of_keys(study: Study, experiment: Experiment, keys: Iterable[str]) -> Cells:
    """Return what the partitions ``keys`` stand for.

    Raises:
        StudyError: a key has no campaign that can be named, or no cell of the study.
    """
    known = {
        cell_key(model, cell): (model, cell)
        for model in study.models
        for cell in experiment.cells(study)
    }
    wanted: Cells = {}
    for key in keys:
        campaign, _, name = key.partition("|")
        if name not in known:
            raise StudyError(
                f"{key} is no partition of study {study.name!r}: keys are a campaign, then a model "
                f"and a cell, such as 2026-11-23|{next(iter(known), 'model.cell')}. Keys of "
                "earlier versions had no campaign; launch the run again from the asset's page."
            )
        check_campaign_name(campaign)
        model, cell = known[name]
        wanted.setdefault(campaign, {}).setdefault(model, []).append(cell)
    return wanted


def every_cell(study: Study, experiment: Experiment) -> dict[str, list[str]]:
    """Return model -> cells of a whole campaign."""
    return {model: [*experiment.cells(study)] for model in study.models}


def tagged_cells(run_tags: Mapping[str, str], study: Study, experiment: Experiment) -> Cells:
    """Return the partitions that a run's tags name, a range or a single one; empty if untagged.

    A range's campaign is that of its first key. Raises like `cells_of_keys`.
    """
    if (first := run_tags.get(ASSET_PARTITION_RANGE_START_TAG)) is None:
        partition = run_tags.get(PARTITION_NAME_TAG)
        return {} if partition is None else cells_of_keys(study, experiment, [partition])
    last = run_tags[ASSET_PARTITION_RANGE_END_TAG]
    cells_of_keys(study, experiment, (first, last))
    campaign, _, start = first.partition("|")
    every = [cell_key(model, cell) for model in study.models for cell in experiment.cells(study)]
    within = every[every.index(start) : every.index(last.partition("|")[2]) + 1]
    return cells_of_keys(study, experiment, (f"{campaign}|{key}" for key in within))


def tagged_models(run_tags: Mapping[str, str], models: Sequence[str]) -> Sequence[str]:
    """Return those of a study's ``models`` (names or slugs, in its order) with partitions in a
    run's tags; without tags, all."""
    tags = (ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG, PARTITION_NAME_TAG)
    ends = []
    for cell in (run_tags[tag].partition("|")[2] for tag in tags if tag in run_tags):
        # The longest name: the key of one model may begin with another's.
        of = [model for model in models if cell.startswith(cell_key(model, ""))]
        ends += [models.index(max(of, key=len))] if of else []
    return models[min(ends) : max(ends) + 1] if ends else models


def range_tags(
    study: Study,
    experiment: Experiment,
    campaign: str,
    models: Sequence[str] = (),
    cells: Sequence[str] = (),
) -> dict[str, str]:
    """Return tags that assign partitions of ``campaign`` to one run: ``cells`` of adjacent
    ``models``, in their order; empty means all."""
    models, cells = models or study.models, cells or experiment.cells(study)
    ends = (models[0], cells[0]), (models[-1], cells[-1])
    return _range_tags([partition_key(campaign, *end) for end in ends])


def document_range_tags(study: Study, experiment: Experiment) -> dict[str, str]:
    """Return tags that assign every partition of the documents to one run."""
    return _range_tags(document_partitions(study, experiment).get_partition_keys())


def _range_tags(keys: Sequence[str]) -> dict[str, str]:
    # Plain strings: a MultiPartitionKey as tag value would tag the run with its first partition.
    return {
        ASSET_PARTITION_RANGE_START_TAG: str(keys[0]),
        ASSET_PARTITION_RANGE_END_TAG: str(keys[-1]),
    }


_CAUSES = {
    "dagster/schedule_name": "schedule",
    "dagster/sensor_name": "sensor",
    BACKFILL_ID_TAG: "backfill",
}
"""Dagster's tag -> cause of the run; the first matching tag counts."""


def campaign_of_run(context: dg.AssetExecutionContext) -> str:
    """Return the campaign that the run's partition names. Raises StudyError if it has none."""
    if not context.has_partition_key:
        raise StudyError(
            "What is made of answers is of one campaign: launch it with a partition, such as "
            "`--partition 2026-11-23`; `contextcliff campaign list` names them."
        )
    return context.partition_key


@contextmanager
def tagged_run(
    study: Study, store: StoreResource, campaign: str | None, *, may_begin: bool = False
) -> Iterator[StudyRun]:
    """Open a `StudyRun`, and tag this step's run with its purpose.

    ``may_begin``: whether the first call may begin the campaign.
    """
    with StudyRun.open(study, store.open(), campaign, may_begin=may_begin) as run:
        complete_run_tags(dg.OpExecutionContext.get(), study, run.campaign)
        yield run


def complete_run_tags(context: dg.OpExecutionContext, study: Study, campaign: str) -> None:
    """Add the tags of `asset_specs.run_tags` that the run lacks."""
    of_run = study.with_models(tagged_models(context.run.tags, study.models))
    cause = next((cause for tag, cause in _CAUSES.items() if tag in context.run.tags), "launch")
    wanted = run_tags(of_run, campaign, cause)
    if wanted.keys() <= context.run.tags.keys():
        return
    # Current tags, not those at the step's start: an earlier step may have added some.
    run = context.instance.get_run_by_id(context.run_id)
    known = run.tags if run is not None else {}
    if missing := {name: value for name, value in wanted.items() if name not in known}:
        context.instance.add_run_tags(context.run_id, missing)


def is_retried(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether Dagster will retry the failed ``run``, or has not decided yet."""
    # The tag comes a moment after the failure.
    undecided = instance.run_retries_enabled and WILL_RETRY_TAG not in run.tags
    return undecided or run.tags.get(WILL_RETRY_TAG) == "true"
