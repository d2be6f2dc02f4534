"""Every line of context-eval's quick start has a line of ours, and that line runs."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from contextcliff_dagster.extensions.visibility.behaviour import StabilityMetric
from contextcliff_dagster.extensions.visibility.tasks.kaggle import format_named
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.kaggle_files import table_of, zipped
from contextcliff_dagster_tests.extensions.visibility.measured_store import keep_landscape
from contextcliff_dagster_tests.extensions.visibility.tables import NOT_RUN
from contextcliff_dagster_tests.support.paths import DOCS
from contextcliff_dagster_tests.support.terminal import call

SECTION = (
    (DOCS / "visibility.md")
    .read_text(encoding="utf-8")
    .partition("### From context-eval\n")[2]
    .partition("\n### ")[0]
)
ROWS = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| `")]
COMMANDS = re.findall(r"`contextcliff ([^`]+)`", SECTION)
SMALL = ("--num-steps", "1", "--seeds", "1", "--levels", "resources=hidden")
"""Of a grid: eight runs of one step."""
QUICK_START = (
    "python run_toy_bench.py --num-steps 5",
    "python run_nomad_bench.py --num-steps 5 --show-task --show-metric",
    "./scripts/run_grid.sh toy --dry-run",
    "./scripts/run_grid.sh toy",
    "./scripts/run_grid.sh nomad",
    "pip install -r requirements.txt",
    "OPENAI_API_KEY=...",
    "python3 fetch_nomad.py",
    "fetch_leaf.py",
    "fetch_jigsaw.py",
    "python3 prepare_nomad.py --float32",
    "python3 prepare_leaf.py --float32",
    "python3 prepare_jigsaw.py",
    "from src.metrics import StabilityMetric",
    "metric.calculate_config_distance(config_a, config_b)",
    "metric.detect_oscillation(trace)",
    "metric.evaluate_trace(trace)",
)


def test_the_table_has_every_line_of_their_quick_start() -> None:
    theirs = [name for row in ROWS for name in re.findall(r"`([^`]+)`", row[0])]
    assert {*QUICK_START} <= {*theirs}
    options = {name for name in theirs if name.startswith("--")}
    named = call("visibility", "run", "--help").out
    assert len(options) == 11
    assert all(f"{option} " in named for option in options)


def test_the_journeys_leave_these_commands_to_this_test() -> None:
    assert {*COMMANDS} <= {*NOT_RUN}


def test_the_line_that_imports_their_metric_imports_ours() -> None:
    (line,) = re.findall(r"`from (contextcliff_dagster\S*) import StabilityMetric`", SECTION)
    assert import_module(line).StabilityMetric().evaluate_trace([])["total_steps"] == 0


def test_each_call_of_their_metric_has_one_of_ours() -> None:
    rows = [row for row in ROWS if row[0].startswith("`metric.")]
    cells = [theirs if ours == "the same" else ours for theirs, ours in rows]
    calls = [call for cell in cells for call in re.findall(r"`([^`]+)`", cell)]
    trace = [{"config": {"depth": depth}} for depth in (4, 8, 4)]
    given = {"metric": StabilityMetric(), "trace": trace}
    given |= {"config_a": trace[0]["config"], "config_b": trace[1]["config"]}
    distance, report, repeated = (eval(call, given) for call in calls)
    assert distance == (pytest.approx(0.5), ["depth"])
    assert report["churn_steps"] == 2
    assert repeated == report["instability_score"] == pytest.approx(1 / 3)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contextcliff_home: Path) -> Path:
    """A working folder with small files in place of the downloads, which are prepared."""
    monkeypatch.chdir(tmp_path)
    for name in ("nomad", "leaf", "jigsaw"):
        format = format_named(name)
        table = table_of(format, 300 if format.text else 60)
        file = tmp_path / f"{format.page}.zip"
        file.write_bytes(zipped(train__csv__zip=zipped(train__csv=table.encode())))
        assert call("visibility", "prepare", name, file.name).code == 0
    for name in ("toy", "nomad"):
        keep_landscape(Store(contextcliff_home), name)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_our_line_runs(command: str, here: Path) -> None:
    words = shlex.split(command)
    if words[1] != "prepare":
        words += ["--model", "agent-random"]
    if words[1] == "grid" and "--dry-run" not in words:
        words += SMALL
    ended = call(*words)
    assert ended.code == 0, ended
    if "--traces" in words or words[1] == "run":
        benchmark = words[words.index("--benchmark") + 1]
        traces = list((here / "traces" / benchmark).rglob("*.jsonl"))
        assert len(traces) == (1 if words[1] == "run" else 8)
