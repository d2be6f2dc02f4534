"""`visibility run` and `visibility grid`, against an endpoint on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.extensions.visibility.runs.trainings import trainings_file
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import load_studies
from contextcliff_dagster_tests.extensions.visibility.measured_store import (
    keep_landscape,
    models_file,
)
from contextcliff_dagster_tests.support.read_only import read_only
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.servers.tuning_server import KEY, TuningServer
from contextcliff_dagster_tests.support.terminal import Ended, assert_one_sentence, call

RUN = ("visibility", "run", "--model", "tuner")
GRID = ("visibility", "grid", "toy", "--model", "tuner", "--seeds", "2", "--num-steps", "2")
TWO_LEVELS = ("--levels", "metric=hidden", "--levels", "resources=hidden", "--levels", "history=0")


@pytest.fixture
def server() -> TuningServer:
    return TuningServer()


@pytest.fixture(autouse=True)
def here(
    server: TuningServer,
    tmp_path: Path,
    contextcliff_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """A working folder, `toy` with a landscape, and the model `tuner`, whose key is in .env."""
    keep_landscape(Store(contextcliff_home))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TUNER_KEY", raising=False)
    (folder / ".env").write_text(f"TUNER_KEY={KEY}\nOTHER_KEY=other-canary\n", encoding="utf-8")
    with on_a_thread(server.handle) as url:
        file = models_file(tmp_path, url, max_attempts=1)
        monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(file))
        yield folder


def done(*line: str) -> Ended:
    """A command that ends well."""
    ended = call(*line)
    assert (ended.code, ended.sentences) == (0, []), ended
    return ended


def trace_of(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]


def test_a_run_of_three_steps_by_default_with_its_trace(server: TuningServer) -> None:
    summary = json.loads(done(*RUN, "--json").out)
    assert (summary["status"], summary["steps"], len(server.bodies)) == ("success", 3, 3)
    events = trace_of(summary["trace"])
    assert events[-1]["details"]["best_config"] == summary["best_config"]
    assert summary["run_id"] == "toy-s000-h0-t0m0r0b0d0-last-default"
    assert Path(summary["report"]).is_file()
    again = json.loads(done(*RUN, "--json").out)
    assert (again, len(server.bodies)) == (summary, 3), "paid once, the same trace"
    assert {body["temperature"] for body in server.bodies} == {0}
    assert not any("response_format" in body for body in server.bodies)


def test_options_decide_what_is_shown(server: TuningServer) -> None:
    shown = ("--show-task", "--show-metric", "--show-resources", "--show-bounds")
    done(*RUN, *shown, "--show-direction", "--history-window", "1", "--init", "low")
    last = server.prompts[-1]
    for words in ("The data are", "The score is", "A higher", "Bounds:", "Used so far", "Earlier"):
        assert words in last
    before = len(server.bodies)
    done(*RUN, "--feedback-depth", "1", "--num-steps", "2", "--seed", "3", "--base", "best")
    assert len(server.bodies) <= before + 2
    assert not any("Earlier" in prompt for prompt in server.prompts[before:])


def test_a_schema_goes_with_every_request_and_an_endpoint_without_it_is_one_sentence(
    server: TuningServer,
) -> None:
    done(*RUN, "--replies", "schema")
    for body in server.bodies:
        asked = body["response_format"]
        assert asked["type"] == "json_schema"
        properties = asked["json_schema"]["schema"]["properties"]
        assert properties == {"C": {"type": "number"}, "max_iter": {"type": "integer"}}
    server.schemas = False
    ended = call(*RUN, "--replies", "schema", "--seed", "1", "--history-window", "2")
    assert_one_sentence(ended, "does not accept a JSON Schema", "--replies free", "400")


def test_a_dry_run_asks_trains_and_writes_nothing(
    server: TuningServer, here: Path, contextcliff_home: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in contextcliff_home.rglob("*")}
    assert json.loads(done(*RUN, "--dry-run", "--json").out)["estimate"]["calls"] == 3
    assert "To measure: 80 calls" in done(*GRID, "--num-steps", "20", *TWO_LEVELS, "--dry-run").out
    assert server.bodies == []
    assert not trainings_file(Store(contextcliff_home)).exists()
    assert {path: path.stat().st_mtime_ns for path in contextcliff_home.rglob("*")} == before
    assert [path.name for path in here.iterdir()] == [".env"]


def test_an_estimate_counts_what_is_left_of_conversations(server: TuningServer) -> None:
    def calls_left() -> tuple[int, int]:
        asked = json.loads(done(*RUN, "--num-steps", "6", "--dry-run", "--json").out)["estimate"]
        return asked["calls"], asked["cached"]

    assert calls_left() == (6, 0)
    server.broken_after = 4
    assert call(*RUN, "--num-steps", "6").code == 2
    assert calls_left() == (2, 4)
    server.broken_after = None
    done(*RUN, "--num-steps", "6")
    assert calls_left() == (0, 6)
    assert len(server.bodies) == 6


def test_every_prompt_and_reply_is_printed(server: TuningServer) -> None:
    out = done(*RUN, "--debug-show-llm", "--verbose").out
    for prompt in server.prompts:
        assert prompt in out
    assert [f"--- step {number}, reply" in out for number in (1, 2, 3, 4)] == [True] * 3 + [False]
    assert "Step   3" in out
    assert "Test    0." in out


def test_the_key_is_taken_from_env_file_and_kept_nowhere(
    server: TuningServer, here: Path, contextcliff_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.reply = lambda prompt: json.dumps({"C": 2, "why": f"my key is {KEY}"})
    ended = done(*RUN, "--debug-show-llm")
    assert server.keys == {KEY}
    server.broken_after = 0
    failed = call(*RUN, "--seed", "2", "--history-window", "1")
    for text in (ended.err, failed.out, failed.err):
        assert KEY not in text
    files = [path for folder in (contextcliff_home, here) for path in folder.rglob("*")]
    for file in files:
        if file.is_file() and file.name != ".env":
            assert b"other-canary" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"TUNER_KEY=\xff\xfe\n", ".env"),
        (b"OTHER_KEY=x\n", "TUNER_KEY"),
        (b"= = =\n{}\n", "TUNER_KEY"),
        (None, "TUNER_KEY"),
    ],
    ids=["no UTF-8", "another key", "no lines", "none"],
)
def test_a_key_that_is_missing_or_a_broken_env_file_is_one_sentence(
    content: bytes | None, word: str, here: Path, server: TuningServer
) -> None:
    (here / ".env").unlink()
    if content is not None:
        (here / ".env").write_bytes(content)
    assert_one_sentence(call(*RUN), word)
    assert server.bodies == []


def test_the_environment_comes_before_the_env_file(server: TuningServer) -> None:
    assert call(*RUN, env={"TUNER_KEY": "from-outside"}).code == 0
    assert server.keys == {"from-outside"}


def test_a_named_run_goes_on_and_stays_as_it_is(server: TuningServer) -> None:
    done(*RUN, "--run-id", "first")
    assert "first" in load_studies()
    done(*RUN, "--run-id", "first")
    assert len(server.bodies) == 3
    assert_one_sentence(
        call(*RUN, "--run-id", "first", "--show-bounds"), "--run-id first", "other options"
    )
    for name in ("Upper", "a/b", "", "x" * 61, "-x", "a\nb"):
        assert_one_sentence(call(*RUN, "--run-id", name), "--run-id")


def test_a_run_without_all_its_replies_says_so_and_goes_on(server: TuningServer) -> None:
    server.broken_after = 0
    assert_one_sentence(call(*RUN), "has no answers", "connection broke")
    server.broken_after = 1
    ended = call(*RUN, "--debug-show-llm", "--verbose")
    assert_one_sentence(ended, "1 of its 3 steps", "connection broke", "repeat the command to")
    assert "Step   1" in ended.out
    server.broken_after = None
    assert "Step   3" in done(*RUN, "--verbose").out
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    "line",
    [
        (*RUN, "--benchmark", "nosuch"),
        (*RUN, "--benchmark", ""),
        (*RUN, "--benchmark", "leaf"),
        (*RUN, "--benchmark", "toy", "--init", "middle"),
        (*RUN, "--num-steps", "0"),
        (*RUN, "--num-steps", "201"),
        (*RUN, "--seed", "-1"),
        (*RUN, "--temperature", "nan"),
        (*RUN, "--history-window", "1", "--feedback-depth", "2"),
        (*RUN, "--feedback-depth", "0"),
        (*RUN, "--replies", "any"),
        (*RUN, "--base", "first"),
        (*RUN, "--model", "another"),
        (*RUN, "--traces", ".env"),
        ("visibility", "run", "--model", "nosuch"),
        ("visibility", "grid", "--model", "tuner"),
        (*GRID, "nosuch"),
        (*GRID, "toy"),
        (*GRID, "--runs", "49"),
        (*GRID, "--seeds", "0"),
        (*GRID, "--levels", "task"),
        (*GRID, "--levels", "task="),
        (*GRID, "--levels", "nosuch=shown"),
        (*GRID, "--levels", "task=visible"),
        (*GRID, "--levels", "task=shown,shown"),
        (*GRID, "--levels", "history=-1"),
        (*GRID, "--levels", "history=2000"),
        (*GRID, "--levels", f"history={'9' * 5_000}"),
        (*GRID, "--levels", "bounds=placebo"),
    ],
    ids=lambda line: " ".join(line[2:])[:60],
)
def test_a_bad_option_is_one_sentence(line: tuple[str, ...], server: TuningServer) -> None:
    ended = call(*line)
    assert_one_sentence(ended)
    assert len(ended.sentences[0]) < 600
    assert server.bodies == []


def test_a_grid_prints_its_report_and_writes_traces(server: TuningServer, here: Path) -> None:
    out = done(*GRID, *TWO_LEVELS, "--traces", "all").out
    assert "WHAT AN AGENT DOES" in out
    files = list((here / "all").rglob("*.jsonl"))
    assert len(files) == 4
    assert {trace_of(str(file))[-1]["details"]["status"] for file in files} == {"success"}
    calls = len(server.bodies)
    result = json.loads(done(*GRID, *TWO_LEVELS, "--json").out)
    assert result
    assert len(server.bodies) == calls


@pytest.mark.parametrize(
    ("reply", "times"),
    [
        ("", 1),
        ('{"C": ' + "9" * 5_000 + "}", 1),
        ("x", 10_000_000),
        ('{"C": "\\ud83d", "Größe\u2028": 1, "max_iter": NaN}', 1),
        ("{", 100_000),
    ],
    ids=["empty", "5,000 digits", "10 MB", "unicode names", "nested"],
)
def test_hostile_replies_end_a_run_well(reply: str, times: int, server: TuningServer) -> None:
    server.reply = lambda prompt: reply * times
    summary = json.loads(done(*RUN, "--json").out)
    assert summary["steps"] == 3
    for event in trace_of(summary["trace"]):
        assert event["run_id"] == summary["run_id"]


def test_prompts_beyond_the_window_are_fallbacks_and_never_sent(
    server: TuningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.yaml"
    text = file.read_text(encoding="utf-8").replace("8192", "300")
    file.write_text(text, encoding="utf-8")
    ended = call(*RUN, "--json")
    assert ended.code == 0, ended
    assert json.loads(ended.out)["behaviour"]["fallback_share"] == 1
    assert server.bodies == []


def test_a_damaged_landscape_is_one_sentence(contextcliff_home: Path) -> None:
    (file,) = contextcliff_home.glob("_visibility/landscapes/*.json")
    file.write_bytes(file.read_bytes()[:-50])
    assert_one_sentence(call(*RUN), str(file), "is damaged", "delete it")


def test_a_level_that_is_none_is_named_with_its_option() -> None:
    grid = ("visibility", "grid", "toy", "--model", "agent-random", "--dry-run", "--levels")
    assert_one_sentence(call(*grid, "direction=maybe"), "--levels direction=", "'maybe'")
    assert_one_sentence(call(*grid, "colour=red"), "'colour=red' is not AXIS=LEVELS")
    assert_one_sentence(call(*grid, "history="), "'history=' is not AXIS=LEVELS")


def test_a_run_is_shown_where_nothing_can_be_written_and_travels(
    server: TuningServer, contextcliff_home: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(*RUN, "--run-id", "mine", "--history-window", "2")
    shown = done("report", "mine").out
    assert done("ledger", "verify").err == ""
    done("ledger", "export", "mine", str(here / "calls.jsonl"))
    assert (here / "calls.jsonl").read_text().count('"prompt": [{') == 3
    done("export", "mine", str(here / "mine.zip"))
    with read_only(contextcliff_home):
        assert done("report", "mine").out == shown
        assert "3 scored" in done("answers", "mine").out
    other = here / "other"
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(other))
    done("import", str(here / "mine.zip"), "--adopt")
    there = done("report", "mine").out.replace(str(other), str(contextcliff_home))
    assert "- 3 of 3 answers come from mine.zip, sha256\n" in there
    assert len(there.splitlines()) == len(shown.splitlines()) + 2
    again = json.loads(done(*RUN, "--run-id", "mine", "--history-window", "2", "--json").out)
    assert (again["status"], len(server.bodies)) == ("success", 3)
