"""`contextcliff continuation --analyze` and `--reanalyze`, on runs of other people and our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.extensions.continuation.compat import runs
from contextcliff_dagster.extensions.continuation.compat.metrics import LIST_KEYS
from contextcliff_dagster_tests.extensions.continuation.made_runs import (
    FAMILIAR,
    OLD_CSV,
    write_made_run,
)
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("\n".join(sorted(FAMILIAR)), encoding="utf-8")
    return write_made_run(tmp_path / "run", rounds=2)


@pytest.fixture
def no_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "local_embedder", lambda: None)


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def test_analyze_writes_what_follows_from_the_rounds(run: Path, capsys: Capsys) -> None:
    made = {file.name: file.read_bytes() for file in run.iterdir()}
    for name in (*[n for n in made if n.endswith((".csv", ".txt"))], "degradation_analysis.json"):
        (run / name).unlink()
    assert main(["continuation", "--analyze", "run"]) == 0
    out = capsys.readouterr().out
    assert "author" in out
    assert out.splitlines()[-1] == "run/tiny-1B-river.txt-a_b.png"
    now = {file.name: file.read_bytes() for file in run.iterdir()}
    assert now.keys() == made.keys() | {"tiny-1B-river.txt-a_b.png"}
    assert all(now[name] == made[name] for name in made if name != "degradation_analysis.json")
    assert "trends" in read(run / "degradation_analysis.json")


def test_analyze_takes_averages_alone(run: Path, capsys: Capsys) -> None:
    Path("old").mkdir()
    Path("old/old.csv").write_text(OLD_CSV, encoding="utf-8")
    assert main(["continuation", "--analyze", "old", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["averages"]["4096"]["cloze_score"] == 23.01
    assert not list(Path("old").glob("*_generations.txt"))


def test_reanalyze_gives_a_run_without_a_cloze_score_one_by_the_built_in_list(
    run: Path, no_embedder: None, capsys: Capsys
) -> None:
    for file in run.glob("context_*_results.json"):
        content = read(file)
        for figures in content["individual_rounds"]:
            for key in LIST_KEYS:
                del figures[key]
        file.write_text(json.dumps(content), encoding="utf-8")
    assert main(["continuation", "--reanalyze", "run"]) == 0
    assert "The cloze score uses the built-in list" in capsys.readouterr().err
    after = read(Path("run-reanalyzed/context_1024_results.json"))
    assert after["averaged_stats"]["cloze_score"] > 0
    metadata = read(Path("run-reanalyzed/metadata.json"))["experiment_metadata"]
    assert metadata["reanalysis_metadata"]["reanalysis_word_list"] == "built-in"


def test_reanalyze_keeps_the_author_and_what_it_cannot_measure(
    run: Path, no_embedder: None, capsys: Capsys
) -> None:
    before = read(run / "context_1024_results.json")
    assert main(["continuation", "--reanalyze", "run"]) == 0
    err = capsys.readouterr().err
    assert "No embedder is installed" in err
    assert "Without --word-list" in err
    after = read(Path("run-reanalyzed/context_1024_results.json"))
    assert after["averaged_stats"] == before["averaged_stats"]
    Path("words.txt").write_text("the\n", encoding="utf-8")
    options = ["--word-list", "words.txt", "--out", "again"]
    assert main(["continuation", "--reanalyze", "run", *options]) == 0
    again = read(Path("again/context_1024_results.json"))["averaged_stats"]
    assert again["cloze_score"] < before["averaged_stats"]["cloze_score"]
    assert again["adjacent_coherence"] == before["averaged_stats"]["adjacent_coherence"]
    metadata = read(Path("again/metadata.json"))
    assert metadata["ground_truth_analysis"] == read(run / "metadata.json")["ground_truth_analysis"]
    assert metadata["experiment_metadata"]["reanalysis_metadata"]["reanalysed_from"] == "run"
    assert read(run / "context_1024_results.json") == before
    assert main(["continuation", "compare", "run", "again", "--dpi", "50"]) == 0


def test_reanalyze_asks_the_embeddings_of_a_server(run: Path, capsys: Capsys) -> None:
    with on_a_thread(DialectServer({"kind": "koboldcpp", "window": 1024}).handle) as url:
        assert main(["continuation", "--reanalyze", "run", "--api-url", url]) == 0
    assert "Coherence is by koboldcpp/served" in capsys.readouterr().err
    before = read(run / "context_1024_results.json")["averaged_stats"]
    after = read(Path("run-reanalyzed/context_1024_results.json"))["averaged_stats"]
    assert after["adjacent_coherence"] != before["adjacent_coherence"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--analyze", "run", "--reanalyze", "run"], "exclude each other"),
        (["novel.txt", "--analyze", "run"], "leave out novel.txt"),
        (["--analyze", "nosuch"], "no folder nosuch"),
        (["--analyze", "words.txt"], "no folder words.txt"),
        (["--analyze", "run", "--word-list", "words.txt"], "--word-list"),
        (["--analyze", "run", "--out", "o"], "--out is the folder of --reanalyze"),
        (["--analyze", "run", "--model", "writer-human"], "leave out --model"),
        (["--reanalyze", "run", "--out", "run"], "run exists"),
        (["--reanalyze", "run", "--word-list", "nosuch"], "Word list nosuch cannot be read"),
        (["--reanalyze", "old"], "has no texts"),
        (["--reanalyze", "run", "--results", "r"], "--results goes with --compat"),
    ],
)
def test_bad_input_is_one_sentence(
    options: list[str], words: str, run: Path, capsys: Capsys
) -> None:
    Path("old").mkdir()
    Path("old/old.csv").write_text(OLD_CSV, encoding="utf-8")
    assert main(["continuation", *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") <= 1
