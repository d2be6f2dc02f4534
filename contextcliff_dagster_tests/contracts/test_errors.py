"""The command that a message gives for an extra can be pasted into a shell."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import install_command


@pytest.mark.parametrize("folder", [".venv", "my env", "o'brien"])
def test_the_command_names_this_environments_python_as_one_word(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / folder / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    words = ["-m", "pip", "install", "contextcliff-dagster[local]"]
    assert shlex.split(install_command("local").strip("`")) == [str(python), *words]
    monkeypatch.chdir(tmp_path)
    assert shlex.split(install_command("local").strip("`")) == [f"{folder}/bin/python", *words]
