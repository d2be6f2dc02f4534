"""What Dagster's UI is told of the code location, by the GraphQL that its pages ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import InProcessTestWorkspaceLoadTarget
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster_graphql.test.utils import execute_dagster_graphql

CHECK = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  assetChecksOrError { ... on AssetChecks { checks { name
    executionForLatestMaterialization { runId status evaluation { description } } } } } } } }"""

PARTITIONS = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionKeys staleStatusByPartition
  partitionStats { numMaterialized numFailed numPartitions } } } }"""


class Ui:
    """The code location of the environment, as a page of the UI sees it now."""

    def __init__(self, context: WorkspaceProcessContext) -> None:
        self._context = context

    def ask(self, query: str, **variables: Any) -> Any:
        """The data that answers ``query``; errors fail."""
        context = self._context.create_request_context()
        answer = execute_dagster_graphql(context, query, variables)
        assert not answer.errors, answer.errors
        return answer.data

    def check(self, asset: str, name: str) -> dict[str, Any]:
        """The execution of a check that the asset's page shows."""
        node = self.ask(CHECK, key={"path": asset.split("/")})["assetNodeOrError"]
        by_name = {check["name"]: check for check in node["assetChecksOrError"]["checks"]}
        execution: dict[str, Any] = by_name[name]["executionForLatestMaterialization"]
        return execution

    def partitions(self, asset: str) -> tuple[dict[str, str], dict[str, int]]:
        """Stale status by partition, and how many are materialized and failed."""
        node = self.ask(PARTITIONS, key={"path": asset.split("/")})["assetNodeOrError"]
        by_key = dict(zip(node["partitionKeys"], node["staleStatusByPartition"], strict=True))
        return by_key, node["partitionStats"]


@contextmanager
def ui_of(instance: dg.DagsterInstance) -> Iterator[Ui]:
    """The UI on ``instance``, with the studies of the environment."""
    origin = LoadableTargetOrigin(module_name="contextcliff_dagster.definitions", attribute="defs")
    place = InProcessCodeLocationOrigin(origin, location_name="contextcliff_dagster")
    with WorkspaceProcessContext(instance, InProcessTestWorkspaceLoadTarget(place)) as context:
        yield Ui(context)
