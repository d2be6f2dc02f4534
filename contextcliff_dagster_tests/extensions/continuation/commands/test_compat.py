"""`contextcliff continuation TEXT --compat context-tester` over HTTP, to its result folder."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.extensions.continuation import commands, made_study
from contextcliff_dagster.extensions.continuation.compat import runs
from contextcliff_dagster.extensions.continuation.compat.metrics import METRICS
from contextcliff_dagster.extensions.continuation.compat.result_files import read_run
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.continuation.made_runs import FAMILIAR, looped
from contextcliff_dagster_tests.extensions.continuation.prose import passages
from contextcliff_dagster_tests.extensions.continuation.test_experiment import novel
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.records.calls import read_log
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

Capsys = pytest.CaptureFixture[str]
PROSE = next(value for name, value in vars(passages).items() if name.isupper())
SIZES = (2048, 4096)
IN_FLIGHT = 4


class Writer(DialectServer):
    """KoboldCpp that writes the same prose for each seed, but for those in ``odd``: loops, and in
    ``short``: a tenth of the tokens. ``answers``: so many, the others wait."""

    odd: frozenset[int] = frozenset()
    short: frozenset[int] = frozenset()
    asked, answers = 0, math.inf

    async def before_answer(self, path: str) -> None:
        if path.endswith("/completions"):
            self.asked += 1
            number = self.asked
            while number > self.answers:
                await asyncio.sleep(0.01)

    def complete(self, path: str, body: dict[str, Any]) -> bytes:
        text = looped(60) if body["seed"] in self.odd else PROSE
        written = body["max_tokens"] // (10 if body["seed"] in self.short else 1)
        told = wire.usage(self.count(self.read(body)), written)
        return wire.STREAM + wire.chunk(text) + wire.chunk(None, "length") + told + wire.DONE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contextcliff_home: Path) -> Path:
    """A working folder with a novel and a word list."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "novel.txt").write_text(novel(0, sentences=900), encoding="utf-8")
    (folder / "words.txt").write_text("\n".join(sorted(FAMILIAR)), encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    log = str(tmp_path / "requests.jsonl")
    return Writer({"kind": "koboldcpp", "window": 4096, "log": log})


@pytest.fixture
def url(writer: Writer) -> Iterator[str]:
    with on_a_thread(writer.handle) as url:
        yield url.removesuffix("/v1")


def arguments(url: str, *options: str) -> list[str]:
    own = ("--compat", "context-tester", "--max-tokens", "64", "--rounds", "5", "--api-url", url)
    return ["continuation", "novel.txt", *own, *options]


def seeds(writer: Writer) -> Counter[int]:
    assert writer.log is not None
    lines = read_log(writer.log) if writer.log.exists() else []
    return Counter(one["options"]["seed"] for one in lines if one["path"].endswith("/completions"))


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def test_a_run_has_its_files_and_outliers_are_replaced(
    here: Path, url: str, writer: Writer, capsys: Capsys
) -> None:
    writer.odd = frozenset({2})
    options = ("--model-id", "first", "--word-list", "words.txt")
    assert main(arguments(url, *options)) == 0
    out, err = capsys.readouterr()
    assert "99% of runs" in " ".join(out.splitlines()[:8])
    assert "Rounds that its rule treats as outliers and replaces: 2." in out
    assert "Coherence is by koboldcpp/served" in err
    assert seeds(writer) == {seed: len(SIZES) for seed in range(6)}
    folder = here / "results" / "served-novel-first"
    assert {file.name for file in folder.iterdir()} == {
        *("metadata.json", "degradation_analysis.json"),
        *(f"context_{size}_results.json" for size in SIZES),
        *(f"served-novel.txt-first{end}" for end in (".csv", "_generations.txt", ".png")),
    }
    page = Store.default().study_dir("first-novel-served") / "report" / "latest" / "report.html"
    report = page.read_text(encoding="utf-8")
    head = report[: report.index("What are the averages?")]
    assert "By its rule: no degradation from 2,048 to 4,096 tokens" in head
    assert "Averages of four metrics over context size" in head
    run = read_run(folder)
    assert run.context_lengths == SIZES
    assert run.metadata["embedding_model"] == "koboldcpp/served"
    assert run.metadata["successful_contexts"] == 2
    for rounds in run.rounds.values():
        assert [one["continuation_text"] for one in rounds] == [PROSE.strip()] * 5
        assert all(one[metric] is not None for one in rounds for metric in METRICS)
        assert rounds[0]["adjacent_coherence"] > 0
    infos = [context.info for context in run.contexts.values()]
    assert infos[1]["context_preview"] == infos[0]["context_preview"]
    assert infos[0]["ground_truth_text"] == infos[1]["ground_truth_text"]
    assert read(folder / "context_2048_results.json")["num_rounds"] == 5
    assert main(["continuation", "compare", str(folder), "--dpi", "50"]) == 0
    assert main(["continuation", "--analyze", str(folder)]) == 0


def test_an_id_that_exists_is_refused_before_anything_is_asked(
    here: Path, url: str, writer: Writer, capsys: Capsys
) -> None:
    (here / "results" / "served-novel-first").mkdir(parents=True)
    assert main(arguments(url, "--model-id", "first")) == 2
    assert "another --model-id" in capsys.readouterr().err
    assert not seeds(writer)
    assert main(arguments(url, "--model-id", "second")) == 0
    asked = seeds(writer)
    assert sum(asked.values()) == 10
    assert main(arguments(url, "--results", "elsewhere")) == 0
    assert seeds(writer) == asked
    assert len(list((here / "elsewhere").iterdir())) == 1
    run = read_run(here / "results" / "served-novel-second")
    assert run.averages[2048]["cloze_score"] > 0
    assert "built-in list of familiar words" in capsys.readouterr().err


def test_a_study_measured_without_a_word_list_keeps_its_rounds(
    here: Path, url: str, writer: Writer, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.odd = frozenset({2})
    with monkeypatch.context() as earlier:
        earlier.setattr(made_study, "BUILT_IN", "")  # as before there was a list
        assert main(arguments(url, "--model-id", "old")) == 0
    asked = seeds(writer)
    capsys.readouterr()
    assert main(["report", "old-novel-served"]) == 0
    out = capsys.readouterr().out
    assert "Without a word list there is no cloze score" in " ".join(out.split())
    assert "are missing" not in out
    assert main(arguments(url, "--model-id", "new")) == 0
    assert all(count == len(SIZES) for count in seeds(writer).values())  # none is bought twice
    assert seeds(writer) >= asked


def test_one_id_serves_several_texts(here: Path, url: str) -> None:
    for name in ("novel", "letter"):
        Path(f"{name}.txt").write_text(novel(1, sentences=900), encoding="utf-8")
        words = arguments(url, "--model-id", "v1", "--max-context", "2k", "--rounds", "1")
        assert main([words[0], f"{name}.txt", *words[2:]]) == 0
        assert (here / "results" / f"served-{name}-v1").is_dir()


def test_without_a_model_the_address_of_a_local_server_is_asked(
    here: Path, url: str, writer: Writer, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ["continuation", "novel.txt", "--compat", "context-tester", "--rounds", "1"]
    assert commands.DEFAULT_URL == "http://localhost:5001"
    monkeypatch.setattr(commands, "DEFAULT_URL", "http://127.0.0.1:9")
    assert main(own) == 2
    assert "127.0.0.1:9" in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setattr(commands, "DEFAULT_URL", url)
    asked = ("--instruction", "context-tester", "--max-tokens", "64", "--max-context", "2k")
    assert main([*own, *asked]) == 0
    assert f"no model is named, so {url} is asked" in capsys.readouterr().err
    assert seeds(writer).total() == 1


def test_short_rounds_fail_their_batch(
    here: Path, url: str, writer: Writer, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_of_server", lambda entry: None)
    monkeypatch.setattr(runs, "local_embedder", lambda: None)
    writer.short = frozenset({1})
    assert main(arguments(url, "--model-id", "a")) == 0
    assert seeds(writer) == {seed: len(SIZES) for seed in range(10)}
    assert "coherence is written as 0" in capsys.readouterr().err
    run = read_run(here / "results" / "served-novel-a")
    assert all(len(rounds) == 5 for rounds in run.rounds.values())
    assert run.averages[4096]["adjacent_coherence"] == 0


def test_without_a_size_that_succeeds_there_is_no_folder(
    here: Path, url: str, writer: Writer, capsys: Capsys
) -> None:
    writer.short = frozenset(range(100))
    assert main(arguments(url, "--rounds", "1", "--max-context", "2k")) == 2
    assert "No context size has 1 round of at least 60% of 64 tokens" in capsys.readouterr().err
    assert not (here / "results").exists()
    assert sum(seeds(writer).values()) == 3


def test_a_killed_run_goes_on_and_pays_nothing_twice(
    here: Path, url: str, writer: Writer, contextcliff_home: Path
) -> None:
    def kept() -> int:
        with Ledger.open(Store.default().ledger) as ledger:
            return int(ledger.read("SELECT count(*) FROM results")[0][0])

    writer.odd, writer.answers = frozenset({2}), 4
    command = [sys.executable, "-m", "contextcliff_dagster.cli", *arguments(url, "--model-id", "k")]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: writer.asked == 4 + IN_FLIGHT and kept() == 4)
    finally:
        started.kill()
        started.wait()
    assert not (here / "results").exists()
    writer.answers = math.inf
    assert main(arguments(url, "--model-id", "k")) == 0
    assert sum(seeds(writer).values()) == 12 + IN_FLIGHT
    run = read_run(here / "results" / "served-novel-k")
    assert [len(rounds) for rounds in run.rounds.values()] == [5, 5]


def test_a_short_text_is_repeated_and_that_is_reported(
    here: Path, url: str, capsys: Capsys
) -> None:
    Path("novel.txt").write_text(PROSE * 4, encoding="utf-8")
    assert main(arguments(url, "--rounds", "1", "--dry-run")) == 0
    assert "too short for the largest window and is repeated" in capsys.readouterr().err


def test_a_measured_study_needs_its_text_no_more_and_a_model_has_its_name(
    here: Path, capsys: Capsys
) -> None:
    own = ["--compat", "context-tester", "--max-tokens", "64", "--rounds", "2", "--model-id", "a"]
    Path("novel.txt").write_text(PROSE * 4, encoding="utf-8")
    command = ["continuation", "novel.txt", "--model", "writer-planted", *own]
    assert main([*command, "--max-context", "2k"]) == 0
    assert Path("results/writer-planted-novel-a").is_dir()
    study = read(Path("results/writer-planted-novel-a/metadata.json"))
    name = study["experiment_metadata"]["study"]
    Path("novel.txt").unlink()
    capsys.readouterr()
    for again in ("report", "profile"):
        assert main([again, name]) == 0
        assert "too short for the largest window and was repeated" in capsys.readouterr().out
    assert main([*command, "--max-context", "2k", "--model-id", "b"]) == 2
    assert "There is no text novel.txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--divisions", "3"), "power of two"),
        (("--passages", "2"), "--compat measures one passage of one text; --passages has 2"),
        (("--temp", "1,0.7"), "at one --temp"),
        (("--start-context", "100"), "--start-context"),
        (("--word-list", "nosuch"), "Word list nosuch cannot be read"),
        (("letter.txt",), "one passage of one text"),
        (("--model-id", "a\x00b"), "cannot name a folder"),
        (("--out", "x"), "--out is the folder of --reanalyze"),
    ],
)
def test_bad_input_is_one_sentence(
    options: tuple[str, ...], words: str, here: Path, capsys: Capsys
) -> None:
    Path("letter.txt").write_text(PROSE, encoding="utf-8")
    own = ["--compat", "context-tester", "--model", "writer-human", "--max-tokens", "64"]
    assert main(["continuation", "novel.txt", *own, *options]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert not Path("results").exists()


def test_temperatures_are_arms(here: Path, capsys: Capsys) -> None:
    small = ("--start-context", "512", "--max-context", "1k", "--max-tokens", "64", "--rounds", "1")
    model = ("--model", "writer-human", "--passages", "1", "--dry-run", "--json")
    assert main(["continuation", "novel.txt", *small, *model, "--temp", "1,0.7"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"]["calls"] == 4
