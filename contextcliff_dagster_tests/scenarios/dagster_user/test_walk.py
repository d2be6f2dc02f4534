"""A Dagster engineer walks through the UI: timeline, catalog, partitions, what is stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from contextcliff_dagster.defs.studies import EXAMPLES
from contextcliff_dagster_tests.scenarios.dagster_user import (
    catalog,
    partitions,
    staleness,
    timeline,
)
from contextcliff_dagster_tests.scenarios.dagster_user.walk import Walk
from contextcliff_dagster_tests.support.dagster_ui import running_ui
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.records.calls import reference_server
from contextcliff_dagster_tests.support.terminal import run
from contextcliff_dagster_tests.support.tiny_study import TINY

# Webserver, daemon and two code locations are processes of their own, and so is each run.
pytestmark = pytest.mark.timeout(1800)

SHOWN = "assets: {group: legal, owners: ['team:search'], tags: {domain: legal}}\n"
WORKSPACE = """\
load_from:
  - python_module:
      module_name: contextcliff_dagster.definitions
      location_name: contextcliff_dagster
  - python_file: {relative_path: team_b.py, location_name: team_b}
"""
TEAM_B = """\
import os
os.environ.update({%r: "1", "CONTEXTCLIFF_STUDIES": %r})
from contextcliff_dagster.definitions import defs
"""


def second_location(folder: Path) -> tuple[Path, Path]:
    """A workspace of two code locations, and the file of the second: all examples, nothing else."""
    own, workspace = folder / "team_b.py", folder / "workspace.yaml"
    (folder / "none").mkdir()
    own.write_text(TEAM_B % (EXAMPLES, str(folder / "none")))
    workspace.write_text(WORKSPACE)
    return workspace, own


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Walk]]:
    """A study that the command line measured with one of its two models; its walk through a UI."""
    study, models = tmp_path / "studies" / "tiny.yaml", tmp_path / "models.yaml"
    study.parent.mkdir()
    study.write_text(TINY.replace("[reference-short, reference-long]", "[left]") + SHOWN)
    models.write_text("models: {}\n")
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(study.parent))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    monkeypatch.setenv(EXAMPLES, "0")
    monkeypatch.delenv("DAGSTER_HOME")  # recorded where `contextcliff ui` shows it
    logs = {name: tmp_path / f"{name}.jsonl" for name in ("left", "right")}
    with reference_server(log=logs["left"]) as left, reference_server(log=logs["right"]) as right:
        entry = "{engine: openai, model_id: reference-short, concurrency: 2, window_tokens: 8192"
        models.write_text(
            f"models:\n  left: {entry}, base_url: {left}}}\n  right: {entry}, base_url: {right}}}\n"
        )
        ended = run("profile", "tiny", "--yes")
        assert ended.code == 0, ended.err
        yield partial(Walk, study=study, logs=logs)


def test_a_dagster_engineer_finds_what_is_looked_for(
    tmp_path: Path, measured: Callable[..., Walk]
) -> None:
    workspace, other_location = second_location(tmp_path)
    options = ("--no-daemon", "--port", str(free_port()), "--workspace", str(workspace))
    with running_ui(tmp_path, *options) as ui:
        walk = measured(ui)
        assert len(walk.received("left")) == 12
        timeline.look_at_runs(walk)
        catalog.look_at_catalog(walk, other_location)
        partitions.look_at_tokens(walk)
        partitions.look_at_skipped_check(walk)
        staleness.add_a_model(walk)


def test_a_backfill_measures_what_an_edit_turned_stale(
    tmp_path: Path, measured: Callable[..., Walk]
) -> None:
    # Edited before the UI starts: the daemon reads the code locations once a minute, and keeps the
    # older definitions for a minute more where that meets a reload (docs/ui.md).
    study = tmp_path / "studies" / "tiny.yaml"
    study.write_text(study.read_text().replace("[left]", "[left, right]"))
    with running_ui(tmp_path, "--port", str(free_port())) as ui:
        walk = measured(ui)
        staleness.look_at_added_model(walk)
        staleness.measure_added_model(walk)
        timeline.look_at_tags_of_a_backfill(walk)
        staleness.edit_only_the_judgement(walk)
        partitions.refuse_a_top_up(walk)
