"""`continuation --tokenizer-model`: a tokenizer of a model hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster_tests.sampling.tokenizers.test_hub import asked

__all__ = ["asked"]


def test_the_command_takes_a_repository(
    asked: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "novel.txt").write_text("A harbour lay there. " * 9, encoding="utf-8")
    options = ["--model", "writer-human", "--dry-run", "--tokenizer-model"]
    text = str(tmp_path / "novel.txt")
    assert main(["continuation", text, *options, "nosuch/model"]) == 2
    error = capsys.readouterr().err
    assert "'hub:nosuch/model' cannot be loaded" in error
    assert error.count("\n") == 1
    assert main(["continuation", text, *options, "org/model"]) == 2
    assert "Text 'novel' has" in capsys.readouterr().err  # its tokenizer has counted it
