"""A Dagster engineer walks through the UI: timeline, catalog, partitions, what is stale."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contextcliff_dagster.defs.studies import EXAMPLES
from contextcliff_dagster_tests.support.dagster_ui import running_ui
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.records.calls import reference_server
from contextcliff_dagster_tests.support.tiny_study import TINY

pytestmark = [
    # One UI for all of it: webserver, daemon and two code locations take longer than the looks.
    pytest.mark.browser,
    pytest.mark.timeout(1200),
]

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


def test_a_dagster_engineer_finds_what_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Selenium, which they import, is there where the browser is.
    from contextcliff_dagster_tests.scenarios.dagster_user import (
        catalog,
        partitions,
        staleness,
        timeline,
    )
    from contextcliff_dagster_tests.scenarios.dagster_user.walk import Walk, command_line
    from contextcliff_dagster_tests.support.browser import Browser

    study, models = tmp_path / "studies" / "tiny.yaml", tmp_path / "models.yaml"
    study.parent.mkdir()
    study.write_text(TINY.replace("[reference-short, reference-long]", "[left]") + SHOWN)
    models.write_text("models: {}\n")
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(study.parent))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    monkeypatch.setenv(EXAMPLES, "0")
    workspace, other_location = second_location(tmp_path)
    logs = {name: tmp_path / f"{name}.jsonl" for name in ("left", "right")}
    with reference_server(log=logs["left"]) as left, reference_server(log=logs["right"]) as right:
        entry = "{engine: openai, model_id: reference-short, concurrency: 2, window_tokens: 8192"
        models.write_text(
            f"models:\n  left: {entry}, base_url: {left}}}\n  right: {entry}, base_url: {right}}}\n"
        )
        command_line("profile", "tiny", "--yes")
        options = ("--port", str(free_port()), "--workspace", str(workspace))
        with running_ui(tmp_path, *options) as ui:
            browser = Browser(ui, tmp_path / "chromium")
            pictures = Path(os.environ.get("CONTEXTCLIFF_SCREENSHOTS", tmp_path))
            walk = Walk(browser, study, logs, other_location, pictures)
            try:
                assert len(walk.received("left")) == 12
                timeline.look_at_timeline(walk)
                catalog.look_at_catalog(walk)
                partitions.look_at_tokens(walk)
                partitions.look_at_skipped_check(walk)
                staleness.add_a_model(walk)
                timeline.look_at_tags_of_a_backfill(walk)
                staleness.edit_only_the_judgement(walk)
                partitions.refuse_a_top_up(walk)
            finally:
                browser.screenshot(tmp_path / "last.png")
                browser.close()
