"""The quick study on vLLM, in process and on a server that is killed: as on the built-in runtime.

vLLM changes the process that it runs in, so it runs in others.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextcliff_dagster.contracts import PREDICTIONS
from contextcliff_dagster.inference.engines.vllm.managed_server import server_command
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.store import read_table
from contextcliff_dagster_tests.support.servers.batch_server import batch_server

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(1800),
]

ANSWER = ("example_id", "bin", "raw_output", "finish_reason", "no_answer", "prompt_tokens")
CALLS = 50
START_SECONDS = 600


def model(engine: str, **changes: Any) -> dict[str, Any]:
    vllm = {"kv_cache_gib": 0.25, **changes.pop("vllm", {})}
    base = {"engine": engine, "model_id": "reference-short", "dtype": "float32"}
    return {**base, "window_tokens": 8192, "concurrency": 2, "vllm": vllm, **changes}


MODELS = {
    "inside": model("vllm"),
    "served": model("vllm_server"),
    "killed": model("vllm_server"),
    "fragile": model("vllm_server", vllm={"restarts": 0}),
    "impossible": model("vllm_server", vllm={"engine_args": {"load_format": "no such format"}}),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm")
    (folder / "models.yaml").write_text(yaml.safe_dump({"models": MODELS}), encoding="utf-8")
    return folder


def profile(home: Path, name: str, *options: str) -> subprocess.Popen[str]:
    """`contextcliff profile quick --model NAME` with a store of its own."""
    command = ["profile", "quick", "--yes", "--model", name, "--store", str(home / name), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "contextcliff_dagster.cli", *command],
        env={**os.environ, "CONTEXTCLIFF_MODELS": str(home / "models.yaml")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def done(process: subprocess.Popen[str], code: int = 0) -> str:
    out, _ = process.communicate(timeout=1500)
    assert process.returncode == code, out
    return out


def records(home: Path, name: str) -> dict[str, dict[str, Any]]:
    """Example -> what was measured, times aside."""
    rows = [
        row
        for path in (home / name).rglob("predictions.parquet")
        for row in read_table(path, PREDICTIONS).to_pylist()
    ]
    assert len(rows) == CALLS
    return {row["example_id"]: {key: row[key] for key in ANSWER} for row in rows}


def results(home: Path, name: str) -> int:
    """Calls whose results are kept already."""
    state = home / name / "state.db"
    if not state.is_file():
        return 0
    with closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True)) as db:
        try:
            return int(db.execute("SELECT count(*) FROM results").fetchone()[0])
        except sqlite3.OperationalError:  # the tables are being made
            return 0


def wait_for_results(process: subprocess.Popen[str], home: Path, name: str, count: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while results(home, name) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Process ids and command lines of all below `pid`."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            todo.append(child)
            try:
                yield child, (Path("/proc") / str(child) / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue


def server_of(process: subprocess.Popen[str]) -> int:
    """The server's process id; the guard above it names it on its own command line, too."""
    found = [
        pid
        for pid, command in descendants(process.pid)
        if "api_server" in command and "process_watchdog" not in command
    ]
    return found[0]


def vllm_told_the_times(home: Path, name: str) -> None:
    with closing(sqlite3.connect(home / name / "state.db")) as db:
        times = db.execute("SELECT ttft_ms, duration_ms, queue_ms, cached_tokens FROM results")
        told = times.fetchall()
    assert len(told) == CALLS
    assert all(0 < ttft <= duration and queue >= 0 for ttft, duration, queue, _ in told)
    assert all(cached is not None for *_, cached in told)


@pytest.fixture(scope="module")
def built_in(home: Path) -> dict[str, dict[str, Any]]:
    done(profile(home, "reference-short"))
    return records(home, "reference-short")


def test_in_process_the_answers_are_those_of_the_built_in_runtime(
    home: Path, built_in: dict[str, dict[str, Any]]
) -> None:
    assert "FAILURE RISK REPORT" in done(profile(home, "inside"))
    assert records(home, "inside") == built_in
    vllm_told_the_times(home, "inside")


def test_vllm_s_own_batch_runner_reads_what_is_submitted(
    home: Path, built_in: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    arguments = server_command(ModelEntry.model_validate({"name": "x", **MODELS["served"]}), 1)
    options = arguments[3 : arguments.index("--host")]  # those of the engine, without the server's

    def worker(requests: Path) -> bytes:
        results = tmp_path / "results.jsonl"
        runner = [sys.executable, "-m", "vllm.entrypoints.openai.run_batch", "-i", str(requests)]
        served = ["-o", str(results), "--served-model-name", "reference-short"]
        done = subprocess.run([*runner, *served, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return results.read_bytes()

    with batch_server(tmp_path / "provider") as server:
        server.worker = worker
        batched = {"engine": "openai", "model_id": "reference-short", "window_tokens": 8192}
        models = {
            **MODELS,
            "batched": {**batched, "base_url": server.url, "batch": {"discount": 0.5}},
        }
        (home / "models.yaml").write_text(yaml.safe_dump({"models": models}), encoding="utf-8")
        assert "wait in batches" in done(profile(home, "batched", "--batch"))
        server.advance(3)
        assert "FAILURE RISK REPORT" in done(profile(home, "batched", "--batch"))
    assert records(home, "batched") == built_in


def test_a_server_killed_in_the_middle_changes_no_record(
    home: Path, built_in: dict[str, dict[str, Any]]
) -> None:
    done(profile(home, "served"))
    assert records(home, "served") == built_in
    vllm_told_the_times(home, "served")

    process = profile(home, "killed")
    wait_for_results(process, home, "killed", 10)
    first = server_of(process)
    os.kill(first, signal.SIGKILL)
    kept = results(home, "killed")
    done(process)
    assert kept < CALLS, "it was killed too late to matter"
    assert records(home, "killed") == records(home, "served")
    assert not any("api_server" in command for _, command in descendants(os.getpid()))


def test_a_server_that_may_not_be_started_again_ends_the_run_in_a_sentence(home: Path) -> None:
    process = profile(home, "fragile")
    wait_for_results(process, home, "fragile", 5)
    os.kill(server_of(process), signal.SIGKILL)
    out = done(process, 2)
    assert "its vLLM server died" in " ".join(out.split())
    assert "run the same command to go on" in " ".join(out.split())
    assert "Traceback" not in out
    assert results(home, "fragile") >= 5


def test_when_we_are_killed_the_server_goes_too(home: Path) -> None:
    process = profile(home, "fragile")  # goes on where the run before was ended
    started = results(home, "fragile")
    wait_for_results(process, home, "fragile", started + 1)
    below = [pid for pid, command in descendants(process.pid) if "api_server" in command]
    assert len(below) >= 2, "the guard and the server"
    process.kill()
    process.wait()
    deadline = time.monotonic() + 120
    while any(_runs(pid) for pid in below):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        stat = (Path("/proc") / str(pid) / "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_server_that_cannot_start_is_one_sentence_with_its_last_words(home: Path) -> None:
    out = done(profile(home, "impossible"), 2)
    assert "its vLLM server ended before it was ready" in out
    assert "no such format" in out
    assert "Traceback" not in out
