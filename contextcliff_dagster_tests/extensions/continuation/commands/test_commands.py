"""`contextcliff continuation compare`, and the command's texts next to its subcommands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster_tests.extensions.continuation.made_runs import OLD_CSV, write_made_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_made_run(tmp_path / "run", rounds=2)


def test_a_table_and_the_files_are_printed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("old.csv").write_text(OLD_CSV, encoding="utf-8")
    assert main(["continuation", "compare", "run", "old.csv", "--dpi", "50"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "tiny/1B a b"
    assert "author" in out
    assert "2,048    0.5013                29.5         -" in out
    assert out.splitlines()[-3:] == [
        "continuation-comparison/standard.png",
        "continuation-comparison/comparison.html",
        "continuation-comparison/standard.json",
    ]
    assert Path(out.splitlines()[-3]).stat().st_size > 1_000


def test_json_has_the_statistics(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["continuation", "compare", "run", "--enhanced", "--json", "--out", "made"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["statistics"]["baseline_context"] == 1024
    files = ["made/enhanced.png", "made/comparison-enhanced.html", "made/enhanced.json"]
    assert result["files"] == files


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["run", "--enhanced", "--plot-rounds"], "choose one"),
        (["run", "--tolerance", "nan"], "between 0 and 1"),
        (["run", "run", "--enhanced"], "takes one run"),
        (["run"] * 7, "one to 6 runs"),
        (["nosuch"], "nosuch"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_is_one_sentence(
    options: list[str], words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["continuation", "compare", *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") <= 1
    assert not Path("continuation-comparison").exists()
