"""What the table in docs/utilization.md gives for each line of the design document is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.extensions import utilization
from contextcliff_dagster_tests.support.paths import DOCS

COMMAND = "contextcliff "
REPLACED = {
    r"--scale 8k": "--benchmark ledger --scale 1k",
    r"--scale \S+": "--scale 1k",
    r"--seeds 10": "--seeds 1",
    r"^utilization": "utilization --seeds 1 --yes",
    r'scale="1M"': 'scale="1k"',
    r"my-model": "reader-perfect",
}
"""Sizes and a model of the table -> those that are here."""


def _ours() -> list[str]:
    text = (DOCS / "utilization.md").read_text(encoding="utf-8")
    table = text.split("### From the design document")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [ours for _, cell in rows[1:] for ours in re.findall(r"`([^`]+)`", cell)]


OURS = _ours()


def _small(line: str) -> str:
    for printed, written in REPLACED.items():
        line = re.sub(printed, written, line)
    return line


def test_every_name_of_the_document_is_in_the_table() -> None:
    printed = " ".join(OURS)
    assert {"SCALE_PARAMS"} == {name for name in utilization.__all__ if name not in printed}
    methods = ("generate", "to_structured", "to_prose", "verify_answer", "token_count")
    assert all(f"benchmark.{name}(" in printed for name in methods)
    assert sum(ours.startswith(COMMAND) for ours in OURS) == 11


@pytest.mark.parametrize("ours", [one for one in OURS if not one.startswith(COMMAND)])
def test_each_line_of_python_runs(ours: str) -> None:
    names = {name: getattr(utilization, name) for name in utilization.__all__}
    benchmark = utilization.ContextBenchmark("ledger", scale="1k")
    if ours == "benchmark.verify_answer(response)":
        benchmark.generate()
        assert benchmark.data is not None
        names["response"] = f"There are {benchmark.data['answer']} units."
    value = eval(_small(ours), names | {"benchmark": benchmark})
    assert benchmark.data if ours == "benchmark.generate()" else value


@pytest.mark.parametrize("ours", [one for one in OURS if one.startswith(COMMAND)])
def test_each_command_ends_well(
    ours: str, contextcliff_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(_small(ours.removeprefix(COMMAND)))) == 0
