"""The two partition dimensions of an experiment's predictions: `model`, and its own.

Dagster orders keys, plots and backfills by the alphabetical order of the dimension names; that of
the length profile is called `tokens`, not `bin`, so that `model` comes first and one range of bins
is one run of one engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import dagster as dg

from contextcliff_dagster.defs.dagster_internals import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study

MODEL = "model"


def experiment_partitions(study: Study, experiment: Experiment) -> dg.MultiPartitionsDefinition:
    """One partition per model and cell; model keys are slugs of the model names."""
    return dg.MultiPartitionsDefinition(
        {
            MODEL: dg.StaticPartitionsDefinition([slug(name) for name in study.models]),
            experiment.dimension: dg.StaticPartitionsDefinition(list(experiment.cells(study))),
        }
    )


def document_partitions(study: Study, experiment: Experiment) -> dg.MultiPartitionsDefinition:
    """Those of the documents that an experiment keeps."""
    assert experiment.documents is not None
    keys = experiment.documents.keys(study)
    return dg.MultiPartitionsDefinition(
        {name: dg.StaticPartitionsDefinition([*keys[name]]) for name in keys}
    )


def cells_by_model(study: Study, partition_keys: Iterable[str]) -> dict[str, list[str]]:
    """Model name -> its cells among ``partition_keys``, in their order: one engine start serves
    them all."""
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
    """The partitions that the tags of a run name, by a range or one alone; None without either."""
    partitions = experiment_partitions(study, experiment)
    key = partitions.get_partition_key_from_str
    if ASSET_PARTITION_RANGE_START_TAG not in run_tags:
        one = run_tags.get(PARTITION_NAME_TAG)
        return None if one is None else [key(one)]
    first = run_tags[ASSET_PARTITION_RANGE_START_TAG]
    last = run_tags[ASSET_PARTITION_RANGE_END_TAG]
    return partitions.get_partition_keys_in_range(dg.PartitionKeyRange(key(first), key(last)))


def partition_key(experiment: Experiment, model: str, cell: str) -> dg.MultiPartitionKey:
    """The key of one model's cell."""
    return dg.MultiPartitionKey({MODEL: slug(model), experiment.dimension: cell})


def range_tags(
    study: Study, experiment: Experiment, keys: Sequence[str] | None = None
) -> dict[str, str]:
    """Run tags that make one run take ``keys``, a range of partitions; every one when None."""
    return _range_tags(keys or experiment_partitions(study, experiment).get_partition_keys())


def document_range_tags(study: Study, experiment: Experiment) -> dict[str, str]:
    """Run tags that make one run take every partition of the documents."""
    return _range_tags(document_partitions(study, experiment).get_partition_keys())


def _range_tags(keys: Sequence[str]) -> dict[str, str]:
    # Plain strings: a MultiPartitionKey as tag value would tag the run with its first partition.
    return {
        ASSET_PARTITION_RANGE_START_TAG: str(keys[0]),
        ASSET_PARTITION_RANGE_END_TAG: str(keys[-1]),
    }
