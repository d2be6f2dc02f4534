"""What the Dagster UI would show as stale."""

from __future__ import annotations

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.loader import LoadingContextForTest

from contextcliff_dagster.defs.resources import default_resources
from contextcliff_dagster.defs.studies import study_assets
from contextcliff_dagster.studies import Study


def stale(study: Study, instance: dg.DagsterInstance) -> set[str]:
    """Names of assets, cells of predictions, and partitions of documents that are not fresh in any
    campaign."""
    graph = dg.Definitions(
        assets=study_assets(study), resources=default_resources()
    ).resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    names = set()
    with partition_loading_context(dynamic_partitions_store=instance):
        for key in graph.get_all_asset_keys():
            definition = graph.get(key).partitions_def
            for partition in (definition.get_partition_keys() if definition else ()) or [None]:
                if resolver.get_status(key, partition) is StaleStatus.FRESH:
                    continue
                if isinstance(partition, dg.MultiPartitionKey):
                    names.add(partition.keys_by_dimension.get("cell", str(partition)))
                else:
                    names.add(key.path[-1])
    return names
