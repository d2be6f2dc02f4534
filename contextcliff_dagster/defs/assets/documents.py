"""The assets of the documents that an experiment makes and keeps."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.asset_specs import study_asset
from contextcliff_dagster.defs.dagster_internals import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from contextcliff_dagster.defs.partitions import document_partitions
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.code_version import documents_version
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.studies import Study


def document_assets(study: Study, experiment: Experiment) -> list[dg.AssetsDefinition]:
    """Return documents and manifest of ``experiment``; none where it keeps no documents."""
    if (kept := experiment.documents) is None:
        return []
    documents_name, manifest_name = experiment.document_assets()
    code_version = documents_version(study, kept)
    partitions = document_partitions(study, experiment)

    @study_asset(
        study,
        documents_name,
        kept.description,
        kinds={"python", "parquet"},
        code_version=code_version,
        partitions_def=partitions,
        dagster_type=dg.Nothing,
    )
    def documents(context: dg.AssetExecutionContext, store: StoreResource) -> Iterator[Any]:
        where = store.open()
        keys = [partitions.get_partition_key_from_str(key) for key in context.partition_keys]
        for done, key in enumerate(keys):
            report_step("documents", done, len(keys))
            made = kept.make(study, where, dict(key.keys_by_dimension))
            context.log_event(
                dg.AssetMaterialization(
                    context.asset_key,
                    partition=key,
                    metadata=dict(made.values),
                    tags={
                        "dagster/code_version": code_version,
                        "dagster/data_version": made.sha256,
                    },
                )
            )
        report_step("documents", len(keys), len(keys))
        # Each partition has its own event already: see `assets.experiment`.
        yield dg.Output(None, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})

    @study_asset(
        study,
        manifest_name,
        "The list of these documents, each with its hash; those that are missing are made.",
        deps=[documents_name],
        kinds={"python", "json"},
        code_version=code_version,
    )
    def manifest(store: StoreResource) -> dg.MaterializeResult:
        listed = kept.freeze(study, store.open())
        return dg.MaterializeResult(
            # The hash, or an identical rerun would turn everything downstream stale.
            data_version=dg.DataVersion(listed.sha256),
            metadata=dict(listed.values),
        )

    return [documents, manifest]
