"""The code on the experiment's page runs as written."""

from __future__ import annotations

import re

import pytest

from contextcliff_dagster_tests.support.paths import DOCS


def test_the_page_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "visibility.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(block, {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all("validation=" in line for line in lines)
