"""The commands of the README lead from a folder of documents and an endpoint to a report."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.files.folders import library
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.terminal import run

ADDRESS = "http://127.0.0.1:8000/v1"


def commands() -> list[list[str]]:
    """Those of "Measure your own model", as words, in their order."""
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Measure your own model")[2].partition("\n## ")[0]
    lines = re.findall(r"^    \.venv/bin/contextcliff (.*)$", section, re.M)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("questions", ["recall", None])
def test_a_folder_of_thirty_documents_becomes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, questions: str | None
) -> None:
    asks, profile, init = commands()
    assert asks == ["init"], "the same on a terminal: test_on_a_terminal_it_asks"
    library(tmp_path / "contracts", documents=30)
    if questions is None:
        cut = init.index("--questions")
        del init[cut : cut + 2]
    with on_a_thread(DialectServer({"kind": "vllm", "window": 100_000}).handle) as url:
        words = [url if word == ADDRESS else word for word in init]
        assert url in words
        for command in (words, profile):
            done = run(*command, cwd=tmp_path, fresh=questions is None)
            assert done.code == 0, done.err
    store = Path(str(re.search(r"Report: +(\S+)", done.out)[1]))  # type: ignore[index]
    assert store.name == "report.html"
    assert store.is_file()
