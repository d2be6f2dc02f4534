"""What the steps of the walk share: the UI, the study's file, two servers' logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextcliff_dagster_tests.support.dagster_ui import DagsterUi
from contextcliff_dagster_tests.support.records.calls import read_log

LOCATION = "contextcliff_dagster"
OTHER_LOCATION = "team_b"

_RELOAD = """
mutation ($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
  ... on WorkspaceLocationEntry { loadStatus locationOrLoadError {
    __typename ... on PythonError { message } } }
  ... on PythonError { message } } }"""
_CAMPAIGNS = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionKeys } } }"""
_RUNS = """
{ runsOrError { ... on Runs { results { runId pipelineName status tags { key value } } } } }"""


@dataclass(frozen=True)
class Walk:
    """One UI; the study is asked of two servers.

    ``logs``: by model, what its server received.
    """

    ui: DagsterUi
    study: Path
    logs: dict[str, Path]

    def received(self, model: str) -> list[str]:
        """The prompts that the model's server was sent."""
        lines = read_log(self.logs[model])
        return [line["prompt_hash"] for line in lines if line["event"] == "received"]

    def edit(self, old: str, new: str) -> None:
        """Change the study's file, and have the code location read it."""
        text = self.study.read_text()
        assert text.count(old) == 1
        self.study.write_text(text.replace(old, new))
        self.reload(LOCATION)

    def campaign(self) -> str:
        """The newest partition of the report."""
        node = self.ui.ask(_CAMPAIGNS, key=asset("report"))["assetNodeOrError"]
        return str(node["partitionKeys"][-1])

    def reload(self, location: str) -> None:
        answer = self.ui.ask(_RELOAD, name=location)["reloadRepositoryLocation"]
        loaded = {"__typename": "RepositoryLocation"}
        assert answer == {"loadStatus": "LOADED", "locationOrLoadError": loaded}, answer

    def runs(self) -> dict[str, dict[str, Any]]:
        """Run id -> job, status and tags, the newest first."""
        results = self.ui.ask(_RUNS)["runsOrError"]["results"]
        return {
            run["runId"]: {**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}}
            for run in results
        }


def asset(name: str) -> dict[str, list[str]]:
    return {"path": ["tiny", name]}
