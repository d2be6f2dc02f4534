"""What users of Context-Tester type, and what the table in docs/continuation.md gives for it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.extensions.continuation import commands
from contextcliff_dagster.extensions.continuation.made_study import KEY_VARIABLES
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


INSTALLED, *_OTHERS = _rows()
"""The row of the commands that install."""
UNCHANGED = [theirs for theirs, ours in _OTHERS if ours == "unchanged"]
ROWS = [row for row in _OTHERS if row[0] not in UNCHANGED]
"""The rows with a command of ours."""


def _arguments(theirs: str, ours: str) -> list[str]:
    """The arguments that a row gives for ours."""
    lines = re.findall(r"`([^`]+)`", ours)
    line = lines[0]
    if ours.startswith("the same"):
        line = " ".join([theirs.partition(" main.py ")[2], *lines])
    return shlex.split(line.replace("$OURS", "--compat context-tester"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contextcliff_home: Path) -> Path:
    """A working folder with the texts and finished runs that the table names."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("novel", "text", "middlemarch"):
        (folder / f"{name}.txt").write_text(novel(0, sentences=600), encoding="utf-8")
    (folder / "easy_words.txt").write_text("and\nhe\nhouse\nthe\n", encoding="utf-8")
    run = write_made_run(tmp_path / "made", rounds=5, name="tiny/1B")
    numbered = ("model1-test", "model2-test", "model3-test")
    for name in ("model-text-20250108-123456", "model-test", *numbered):
        shutil.copytree(run, folder / "results" / name)
    for name in numbered:
        (table,) = (folder / "results" / name).glob("*.csv")
        table.rename(table.with_name(f"{name}.csv"))
    for number in (1, 2, 3):
        shutil.copy(next(run.glob("*.csv")), folder / f"model{number}-results.csv")
    monkeypatch.chdir(folder)
    return folder


def test_the_table_has_every_command_of_the_document() -> None:
    theirs = " ".join(command for command, _ in ROWS)
    options = "analyze reanalyze plot-rounds enhanced dpi rounds divisions temp top-k max-tokens "
    options += "start-context model-id model-name tokenizer-model max-context api-url api-password "
    options += "word-list top-p"
    assert all(f"--{option} " in f"{theirs} " for option in options.split())
    assert {"run_gui.bat"} <= {command for command, _ in ROWS}


def test_the_variables_of_the_table_are_read() -> None:
    names = re.findall(r"export (\w+)=", " ".join(UNCHANGED))
    assert len(names) == 3
    assert {*names} <= {*KEY_VARIABLES, "HF_TOKEN"}


def test_a_server_of_several_models_is_refused_without_a_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = [row for row in ROWS if "refused" in row[1]]
    words = [REPLACED.get(word, word) for word in _arguments(*row)]
    place = words.index("--model-name")
    assert "--model-name" not in row[0]
    with on_a_thread(_TwoModels({"kind": "nim", "window": 8192}).handle) as address:
        words[words.index("--api-url") + 1] = address.removesuffix("/v1")
        assert main(["continuation", *words, "--dry-run"]) == 0
        capsys.readouterr()
        assert main(["continuation", *words[:place], *words[place + 2 :], "--dry-run"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "lists several models; it lists one, two; give the one to measure as --model" in said


class _TwoModels(DialectServer):
    def told(self, path: str, key: str) -> Any:
        answer = super().told(path, key)
        if path == "/v1/models":
            (model,) = answer["data"]
            answer["data"] = [{**model, "id": name} for name in ("one", "two")]
        return answer


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
