"""`make` finds a Python that works, or says what to install."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support import requirements
from contextcliff_dagster_tests.support.paths import CHECKOUT as ROOT


def make(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "VENV"))}
    return subprocess.run(
        ["/usr/bin/make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env=environment | ({"PATH": path} if path else {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_lists_every_target_for_people() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    (line,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    listed = make("help").stdout
    for target in line.split():
        assert f"  {target} " in listed


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def test_what_a_skipped_test_advises_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    variables = set(re.findall(r"^([A-Z]+) +\?=", (ROOT / "Makefile").read_text(), re.MULTILINE))
    advised = 0
    for lacks in requirements._CHECKS.values():
        for words in re.findall(r"make ([\w =-]+)", lacks() or ""):
            target, *given = words.split()
            assert target in targets()
            assert {word.partition("=")[0] for word in given} <= variables
            advised += 1
    assert advised >= 2


def test_torch_is_installed_without_training_anything() -> None:
    # -n only prints, -W takes the project file as changed: what would be done in a fresh clone.
    done = make("-n", "-W", "pyproject.toml", "install-reference")
    assert done.returncode == 0, done.stderr
    assert ".reference-outside.txt" in done.stdout
    assert "reference.train" not in done.stdout


@pytest.fixture
def shims(tmp_path: Path) -> Path:
    """A PATH with the system's tools, no Python, and a python3.13 that exists and fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "date", "echo", "grep", "mkdir", "touch"):
        (folder / tool).symlink_to(f"/bin/{tool}")
    shim = folder / "python3.13"
    shim.write_text("#!/bin/sh\necho 'python3.13: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    return folder


def test_a_shim_that_fails_is_no_python(shims: Path, tmp_path: Path) -> None:
    done = make(f"VENV={tmp_path}/venv", f"{tmp_path}/venv/bin/.python", path=str(shims))
    assert done.returncode != 0
    assert "No Python 3.11 to 3.14" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_the_next_python_that_works_is_taken(shims: Path, tmp_path: Path) -> None:
    import sys

    (shims / "python3.11").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (shims / "python3.11").chmod(0o755)
    done = make(
        *(f"VENV={tmp_path}/venv", "INSTALLER=pip", f"{tmp_path}/venv/bin/.python"), path=str(shims)
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "venv/bin/python").exists()
    assert "installer=pip" in (tmp_path / "venv/bin/.python").read_text()
