"""What the steps of the walk share: a browser on the UI, the study's file, two servers' logs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium.webdriver.common.by import By

from contextcliff_dagster_tests.support.browser import Browser
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.records.calls import read_log

LOCATION = "contextcliff_dagster"
OTHER_LOCATION = "team_b"

_RELOAD = """
mutation ($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
  ... on WorkspaceLocationEntry { loadStatus locationOrLoadError {
    __typename ... on PythonError { message } } }
  ... on PythonError { message } } }"""
_RUNS = """
{ runsOrError { ... on Runs { results { runId pipelineName status tags { key value } } } } }"""


@dataclass(frozen=True)
class Walk:
    """One UI of two code locations; the first one's own study is asked of two servers.

    ``logs``: by model, what its server received. ``other_location``: the second location's file,
    which begins with its environment and is read at each load.
    """

    browser: Browser
    study: Path
    logs: dict[str, Path]
    other_location: Path
    pictures: Path

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

    def reload(self, location: str) -> None:
        answer = self.browser.ask(_RELOAD, name=location)["reloadRepositoryLocation"]
        loaded = {"__typename": "RepositoryLocation"}
        assert answer == {"loadStatus": "LOADED", "locationOrLoadError": loaded}, answer

    def runs(self) -> dict[str, dict[str, Any]]:
        """Run id -> job, status and tags, the newest first."""
        results = self.browser.ask(_RUNS)["runsOrError"]["results"]
        return {
            run["runId"]: {**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}}
            for run in results
        }

    def wait_for_run(self, run_id: str, status: str) -> None:
        wait_until(lambda: self.runs()[run_id]["status"] in ("SUCCESS", "FAILURE"), 240)
        assert self.runs()[run_id]["status"] == status

    def texts(self, xpath: str) -> list[str]:
        """The texts of all that ``xpath`` finds just now, on one drawing of the page."""
        find = self.browser.driver.find_elements
        texts: tuple[list[str]] = self.browser.until(
            lambda: ([one.text for one in find(By.XPATH, xpath)],)
        )
        return texts[0]

    def picture(self, name: str) -> None:
        self.browser.screenshot(self.pictures / f"{name}.png")


def asset(name: str) -> dict[str, list[str]]:
    return {"path": ["tiny", name]}


def command_line(*arguments: str) -> None:
    """Run `contextcliff` as in a shell, its runs recorded where `contextcliff ui` shows them."""
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    ended = subprocess.run(
        [sys.executable, "-m", "contextcliff_dagster.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
