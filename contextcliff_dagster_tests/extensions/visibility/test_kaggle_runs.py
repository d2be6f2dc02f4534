"""Runs on small files in the competitions' formats, from download to trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.extensions.visibility.tasks.kaggle import format_named
from contextcliff_dagster_tests.extensions.visibility.kaggle_files import table_of, zipped
from contextcliff_dagster_tests.support.terminal import call


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the downloads of three competitions."""
    monkeypatch.chdir(tmp_path)
    for name in ("nomad", "leaf", "jigsaw"):
        format = format_named(name)
        table = table_of(format, 300 if format.text else 60)
        packed = zipped(train__csv__zip=zipped(train__csv=table.encode()))
        (tmp_path / f"{format.page}.zip").write_bytes(packed)
        ended = call("visibility", "prepare", name, f"{format.page}.zip")
        assert ended.code == 0, ended
    return tmp_path


@pytest.mark.parametrize("name", ["nomad", "leaf", "jigsaw"])
def test_a_run_of_five_steps_ends_with_scores_on_all_parts(name: str, here: Path) -> None:
    line = ("visibility", "run", "--benchmark", name, "--num-steps", "5", "--show-task")
    ended = call(*line, "--show-metric", "--model", "agent-random", "--json")
    assert ended.code == 0, ended
    run = json.loads(ended.out)
    assert (run["status"], run["steps"]) == ("success", 5)
    for score in ("best_validation", "reported_test", "final_validation"):
        assert isinstance(run[score], float)
    assert (here / run["trace"]).is_file()


def test_a_grid_of_144_runs_is_planned() -> None:
    line = ("visibility", "grid", "nomad", "--runs", "144", "--model", "agent-random")
    ended = call(*line, "--dry-run", "--json")
    assert ended.code == 0, ended
    plan = json.loads(ended.out)
    assert len(set(plan["commands"])) == 144
    assert plan["estimate"]["calls"] == 1440
    assert plan["landscapes"][0]["rows"] == 2560
