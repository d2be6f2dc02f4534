"""What docs/ says about the command line and Python is so."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from contextcliff_dagster.cli.app import app
from contextcliff_dagster.inference.models.engine_table import engine_names
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster_tests.support.paths import DOCS


def test_every_command_and_no_other_is_described() -> None:
    made = (DOCS / "cli.md").read_text(encoding="utf-8").partition("\n## Commands\n")[2]
    described = set(re.findall(r"^### `(\w+)`$", made, re.M))
    assert described == set(app.list_commands(app.make_context("contextcliff", ["models"])))


def test_every_option_that_is_named_exists() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    context = app.make_context("contextcliff", ["models"])
    commands = [app.get_command(context, name) for name in app.list_commands(context)]
    commands += [part for whole in commands for part in getattr(whole, "commands", {}).values()]
    there = {
        option
        for command in commands
        if command is not None
        for param in command.params
        for option in (*param.opts, *param.secondary_opts)
    }
    named = set(re.findall(r"--[a-z][a-z0-9_-]*", text)) - {"--help"}
    assert named <= there


def test_the_page_on_python_runs_as_written(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (DOCS / "python.md").read_text(encoding="utf-8"), re.S
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,  # it writes a result
    )
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"print\(.*  # (safe up to .*)", "\n".join(blocks))
    assert promised == done.stdout.splitlines()[:1]
    assert done.stdout.count("FAILURE RISK REPORT") == 1


@pytest.mark.parametrize("page", ["inference.md", "scale.md"])
def test_every_model_that_is_shown_is_a_valid_entry(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8").replace("...", "something")
    blocks = re.findall(r"^```yaml\n(models:.*?)^```", text, re.M | re.S)
    blocks += map(textwrap.dedent, re.findall(r"^    models:\n(?:      .*\n)+", text, re.M))
    assert blocks
    for block in blocks:
        (tmp_path / "models.yaml").write_text(block, encoding="utf-8")
        assert load_models([tmp_path / "models.yaml"])


def test_every_engine_has_a_page() -> None:
    head = (DOCS / "inference.md").read_text(encoding="utf-8").partition("\n## ")[0]
    for engine in engine_names():
        row = rf"^\| \[.*`{engine}`.*\]\(([\w-]+\.md)?#(.*?)\) \|"
        ((page, anchor),) = re.findall(row, head, re.M)
        text = (DOCS / (page or "inference.md")).read_text(encoding="utf-8")
        titles = [line.lower().replace(" ", "-") for line in re.findall(r"^## (.*)", text, re.M)]
        assert anchor in {re.sub(r"[^a-z0-9-]", "", title) for title in titles}
