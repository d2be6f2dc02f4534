"""Commands of Dagster that the documentation prints: `make install` brings them, and they work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.paths import CHECKOUT, DOCS
from contextcliff_dagster_tests.support.terminal import call

PAGES = [CHECKOUT / "README.md", *sorted(DOCS.glob("*.md"))]
BINARIES = Path(sys.executable).parent
CONFIG = re.compile(r"where the file has `(ops:[^`]*)`")


def commands(program: str) -> list[tuple[Path, list[str]]]:
    """Each command of ``program`` between backquotes or in a block, as words, with its page."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        pattern = rf"(?:^|`)((?:\.venv/bin/)?{program} [a-z][^`]*?)(?:`|$(?=\n```))"
        for command in re.findall(pattern, text, re.M):
            found.append((page, shlex.split(command)))
    return found


def test_make_install_brings_dagster_and_other_programs_are_named_with_their_extra() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    (dagster,) = entry_points(group="console_scripts", name="dagster")
    assert dagster.dist is not None
    assert dagster.dist.name in needed
    assert {page.name for page, _ in commands("dagster")} >= {"ui.md"}
    pages = {page for page, _ in commands("dg")}
    assert pages
    for page in pages:
        assert "extra `dg`" in page.read_text("utf-8"), page


@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", ["dagster", "dg"])
def test_bins_are_measured_from_a_shell_which_is_told_of_the_home(
    program: str, contextcliff_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("prepare", "quick").code == 0
    monkeypatch.delenv("DAGSTER_HOME")
    words = next(one for _, one in commands(program) if "two-bins.yaml" in one)
    (config,) = CONFIG.findall((DOCS / "ui.md").read_text("utf-8"))
    (tmp_path / "two-bins.yaml").write_text(config, encoding="utf-8")
    words = [word.replace("two-bins", str(tmp_path / "two-bins")) for word in words]
    ended = subprocess.run(
        [str(BINARIES / Path(words[0]).name), *words[1:]],
        cwd=CHECKOUT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said[-4000:]
    assert "RUN_SUCCESS" in said
    assert said.count("DAGSTER_HOME is not set") == 1
    assert f"export DAGSTER_HOME={contextcliff_home / 'dagster_home'}" in said
    made = contextcliff_home.rglob("predictions.parquet")
    assert {path.parent.name for path in made} == {"bin=b01", "bin=b02"}
