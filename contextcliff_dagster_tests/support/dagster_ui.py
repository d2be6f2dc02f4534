"""`contextcliff ui` as a person starts it, and GraphQL as its page asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAUNCH = """
mutation ($asset: [String!]!) {
  launchRun(executionParams: {
    selector: {repositoryLocationName: "contextcliff_dagster", repositoryName: "__repository__",
               jobName: "__ASSET_JOB", assetSelection: [{path: $asset}]}
    runConfigData: {}, mode: "default"
  }) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}"""
"""Materialize one asset without partitions."""


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


def ask(address: str, query: str, token: str = "", **variables: Any) -> Any:
    """What GraphQL answers; a token goes along where there is one."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{address}/graphql", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
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
        process.wait(timeout=120)
        process.stdout.close()
