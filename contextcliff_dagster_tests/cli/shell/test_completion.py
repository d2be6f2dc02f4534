"""Completion as the shells ask for it, and as a person sees it in a real bash."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from contextcliff_dagster.cli.app import app

_MODELS = """\
models:
  zebra-7b: {engine: openai, model_id: z, base_url: "http://127.0.0.1:9/v1"}
"""
_STUDY = """\
name: zoo
corpus: {kind: reference, documents: 60}
tokenizer: reference
models: [reference-short]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a study, and a command called contextcliff on the path."""
    (tmp_path / "models.yaml").write_text(_MODELS, encoding="utf-8")
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "zoo.yaml").write_text(_STUDY, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "contextcliff"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m contextcliff_dagster.cli "$@"\n')
    command.chmod(0o700)
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path / "studies"))
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def completed(*words: str, shell: type[BashComplete] = BashComplete) -> list[str]:
    *before, incomplete = words
    items = shell(app, {}, "contextcliff", "_X").get_completions(before, incomplete)
    return [item.value for item in items if item.type == "plain"]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("shell", [BashComplete, ZshComplete, FishComplete])
@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("pr", ["profile", "prepare"]),
        ("profile zo", ["zoo"]),
        ("prepare --seed 3 zo", ["zoo"]),
        ("baseline set zo", ["zoo"]),
        ("profile zoo --model zeb", ["zebra-7b"]),
        ("models diff zeb", ["zebra-7b"]),
        ("serve reference-l", ["reference-long"]),
        ("--data x --dataset musi", ["musique"]),
        ("--mod", ["--model"]),
        ("report --score num", ["numeric"]),
        ("profile --controls or", ["oracle"]),
        ("init --preset lm", ["lmstudio"]),
        ("nosuch x", []),
    ],
)
def test_names_are_completed(words: str, values: list[str], shell: type[BashComplete]) -> None:
    assert completed(*words.split(), shell=shell) == values


def test_what_cannot_be_read_is_no_completion(own: Path) -> None:
    (own / "models.yaml").write_text("models: [\n", encoding="utf-8")
    assert completed("profile", "--model", "") == []
    shutil.rmtree(own / "studies")
    assert completed("profile", "") == []


def _wait_for(terminal: int, pattern: str) -> None:
    """Until the screen shows what ``pattern`` means."""
    shown = ""
    while not re.search(pattern, shown):
        assert select.select([terminal], [], [], 120)[0], shown
        shown += os.read(terminal, 4096).decode()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_real_bash_completes_a_study_a_model_and_a_file(own: Path) -> None:
    (own / "questions.jsonl").write_text("{}\n", encoding="utf-8")
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, cwd=own,
        env={**os.environ, "PS1": "> ", "TERM": "dumb", "HISTFILE": "/dev/null"},
    )  # fmt: skip
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 40, 200, 0, 0))
    os.close(theirs)
    try:
        setup = 'eval "$(_CONTEXTCLIFF_COMPLETE=bash_source contextcliff)"; echo re""ady\n'
        os.write(ours, setup.encode())
        _wait_for(ours, r"ready\s+> ")  # typed before, a tab is a tab
        for typed, becomes in (
            ("contextcliff profile zo\t", "profile zoo "),
            ("--model zeb\t", "--model zebra-7b "),
            ("--data quest\t", r"--data questions\.jsonl"),
        ):
            os.write(ours, typed.encode())
            _wait_for(ours, becomes)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
