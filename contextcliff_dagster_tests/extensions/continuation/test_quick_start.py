"""What users of Context-Tester type, and what the table in docs/continuation.md gives for it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from importlib.metadata import metadata
from pathlib import Path

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.extensions.continuation import commands
from contextcliff_dagster_tests.extensions.continuation.made_runs import write_made_run
from contextcliff_dagster_tests.extensions.continuation.test_experiment import novel
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

REPLACED = {
    "131072": "4096",
    "128000": "4096",
    "16384": "4096",
    "microsoft/phi-4-mini-instruct": "tiktoken:o200k_base",
}
"""Windows and a tokenizer of the table -> those that are here."""


def _rows() -> list[tuple[str, str]]:
    text = (CHECKOUT / "docs" / "continuation.md").read_text(encoding="utf-8")
    table = text.split("### From Context-Tester")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return [(theirs.strip("`"), ours) for theirs, ours in rows]


INSTALLED, *ROWS = _rows()
"""The row of the commands that install, and those of all others."""


def _arguments(theirs: str, ours: str) -> list[str]:
    """The arguments that a row gives for ours."""
    (line, *_) = re.findall(r"`([^`]+)`", ours)
    if ours.startswith("the same"):
        line = f"{theirs.partition(' main.py ')[2]} {line}"
    return shlex.split(line.replace("$OURS", "--compat context-tester"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contextcliff_home: Path) -> Path:
    """A working folder with the texts and finished runs that the table names."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("novel", "text", "middlemarch"):
        (folder / f"{name}.txt").write_text(novel(0, sentences=600), encoding="utf-8")
    run = write_made_run(tmp_path / "made", rounds=5, name="tiny/1B")
    for name in ("model-text-20250108-123456", "model1-test", "model2-test", "model-test"):
        shutil.copytree(run, folder / "results" / name)
    for number in (1, 2, 3):
        shutil.copy(next(run.glob("*.csv")), folder / f"model{number}-results.csv")
    monkeypatch.chdir(folder)
    return folder


def test_the_table_has_every_command_of_the_document() -> None:
    theirs = " ".join(command for command, _ in ROWS)
    options = "analyze reanalyze plot-rounds enhanced dpi rounds divisions temp top-k max-tokens "
    options += "start-context model-id model-name tokenizer-model max-context api-url api-password"
    assert all(f"--{option} " in f"{theirs} " for option in options.split())
    assert {"run_gui.bat"} <= {command for command, _ in ROWS}


def test_what_is_installed_exists() -> None:
    theirs, ours = INSTALLED
    assert "uv sync" in theirs
    make, pip = re.findall(r"`([^`]+)`", ours)
    command = [*shlex.split(make), "--dry-run"]
    assert subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=False).returncode == 0
    extras = metadata("contextcliff-dagster").get_all("Provides-Extra") or []
    (extra,) = re.findall(r"contextcliff-dagster\[(\w+)\]", pip)
    assert extra in extras


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[theirs for theirs, _ in ROWS])
def test_every_command_of_context_tester_has_one_of_ours(
    theirs: str, ours: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = DialectServer({"kind": "koboldcpp", "window": 8192})
    with on_a_thread(server.handle) as address:
        url = address.removesuffix("/v1")
        monkeypatch.setattr(commands, "DEFAULT_URL", url)
        words = [REPLACED.get(word, word) for word in _arguments(theirs, ours)]
        words = [url if word.startswith(("http://", "https://")) else word for word in words]
        measures = "--compat" in words
        assert main(["continuation", *words, *(["--dry-run"] if measures else [])]) == 0
    if words[0] == "compare":
        assert list(Path("continuation-comparison").glob("*.html"))
