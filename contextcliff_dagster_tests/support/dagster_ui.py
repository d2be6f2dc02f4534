"""`contextcliff ui` as a person starts it, and GraphQL as its page asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = {
    "repositoryLocationName": "contextcliff_dagster",
    "repositoryName": "__repository__",
}
LAUNCH = """
mutation ($asset: [String!]!) {
  launchRun(executionParams: {
    selector: {repositoryLocationName: "contextcliff_dagster", repositoryName: "__repository__",
               jobName: "__ASSET_JOB", assetSelection: [{path: $asset}]}
    runConfigData: {}, mode: "default"
  }) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}"""
"""Materialize one asset without partitions."""
_HANGS_AFTER_S = 900

_BACKFILL = """
mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_RUN = """
mutation ($selector: JobOrPipelineSelector!, $config: RunConfigData!) { launchRun(
  executionParams: {selector: $selector, runConfigData: $config, mode: "default"}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_ENDED = """
query ($id: ID!) { runOrError(runId: $id) { ... on Run { status eventConnection { events {
  ... on ExecutionStepFailureEvent { error { message stack } } } } } } }"""
_STATUS = """
query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status error { message } } } }"""


@dataclass(frozen=True)
class DagsterUi:
    """A UI that is open: its address, the link to it, and the token of that link."""

    address: str
    link: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def token(self) -> str:
        return self.link.partition("token=")[2]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(self, query: str, **variables: Any) -> Any:
        return ask(self.address, query, self.token, **variables)

    def ask_until(self, over: Callable[[Any], object], query: str, **variables: Any) -> Any:
        """Ask until ``over`` is true of the answer. Raises TimeoutError with the last one."""
        until = time.monotonic() + _HANGS_AFTER_S
        while not over(answer := self.ask(query, **variables)):
            if time.monotonic() > until:
                raise TimeoutError(answer)
            time.sleep(1)
        return answer

    def launch(
        self, job: str, assets: Sequence[list[str]] = (), config: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Launch a job, of some of its assets alone if named; return the run once it is over."""
        selector: dict[str, Any] = {**REPOSITORY, "jobName": job}
        if assets:
            selector["assetSelection"] = [{"path": key} for key in assets]
        launched = self.ask(_RUN, selector=selector, config=config or {})["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        answer = self.ask_until(
            lambda answer: answer["runOrError"]["status"] in ("SUCCESS", "FAILURE"),
            _ENDED,
            id=launched["run"]["runId"],
        )
        run: dict[str, Any] = answer["runOrError"]
        return run

    def backfill(self, assets: list[list[str]], partitions: list[str], job: str = "") -> None:
        """Ask for a backfill as the page's dialog does, and wait until it has succeeded.

        ``job``: from the page of this job of ``assets``, not from that of the assets.
        """
        params: dict[str, Any] = {
            "assetSelection": [{"path": key} for key in assets],
            "partitionNames": partitions,
            "fromFailure": False,
        }
        if job:
            params["selector"] = {
                "partitionSetName": f"{job}_partition_set",
                "repositorySelector": REPOSITORY,
            }
        launched = self.ask(_BACKFILL, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        answer = self.ask_until(
            lambda answer: answer["partitionBackfillOrError"]["status"] != "REQUESTED",
            _STATUS,
            id=launched["backfillId"],
        )
        ended = {"status": "COMPLETED_SUCCESS", "error": None}
        assert answer["partitionBackfillOrError"] == ended


def ask(address: str, query: str, token: str = "", **variables: Any) -> Any:
    """What GraphQL answers; a token goes along where there is one."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{address}/graphql", body, headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        answer = json.load(response)
    assert "errors" not in answer, answer["errors"]
    return answer["data"]


@contextmanager
def running_ui(
    folder: Path, *options: str, env: dict[str, str] | None = None
) -> Iterator[DagsterUi]:
    """Start it with ``options`` and without a Dagster home; its log is in ``folder``."""
    log = folder / "ui.log"
    environment = {k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"} | (env or {})
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "contextcliff_dagster.cli", "ui", *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
            # As a shell's background job: Ctrl-C ignored by inheritance must not make it immortal.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ContextCliff is open at http://" in line, log.read_text()[-2000:]
        link = line.split(" at ")[1].split()[0]
        yield DagsterUi(link.partition("/?")[0], link, process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=300)
        process.stdout.close()
