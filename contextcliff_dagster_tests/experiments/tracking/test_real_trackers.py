"""MLflow and Weights & Biases themselves: what they were given is read by their own clients."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.study_report import write_study_report
from contextcliff_dagster.experiments.tracking.tracker import PYTHON
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study
from contextcliff_dagster_tests.support.measured_stores import copy_of_quick
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.requirements import gateway_tools_python

pytestmark = [
    pytest.mark.gateway_tools,
    pytest.mark.timeout(600),
]  # the trackers take their time to start

SECRET = "sk-proj-4f9a8b7c6d5e4f3a2b1c0d9e"
READ_MLFLOW = """
import json, os, sys
from mlflow import MlflowClient
places = []
for address in sys.argv[1:]:
    client, runs = MlflowClient(tracking_uri=address), {}
    experiment = client.get_experiment_by_name("contextcliff/quick").experiment_id
    for found in client.search_runs([experiment]):
        history = client.get_metric_history(found.info.run_id, "curve/mean")
        runs.setdefault(found.data.params["model"], []).append({
            "status": found.info.status, "metrics": found.data.metrics,
            "params": found.data.params, "tags": found.data.tags,
            "curve": sorted([m.step, m.value] for m in history),
            "report": open(client.download_artifacts(found.info.run_id, "report.md")).read(),
            "files": sorted(file.path for file in client.list_artifacts(found.info.run_id)),
        })
    places.append(runs)
print(json.dumps(places))
"""
READ_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2 as pb

def messages(content):  # the file is a log of LevelDB's form, in blocks of 32 kB, after 7 bytes
    at, parts = 7, []
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        parts.append(content[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []

runs = []
for path in sys.argv[1:]:
    found = {"run": None, "config": {}, "summary": {}, "curve": [], "files": []}
    for data in messages(open(path, "rb").read()):
        record = pb.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["run"] = [record.run.run_id, record.run.project, record.run.run_group]
            for item in record.run.config.update:
                found["config"][item.key] = json.loads(item.value_json)
        elif kind == "summary":
            for item in record.summary.update:
                found["summary"][item.key or item.nested_key[0]] = json.loads(item.value_json)
        elif kind == "history":
            row = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item}
            if "curve/mean" in row:
                found["curve"].append([row["tokens"], row["curve/mean"]])
        elif kind == "artifact":
            found["files"] = sorted(entry.path for entry in record.artifact.manifest.contents)
    runs.append(found)
print(json.dumps(runs))
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON, gateway_tools_python())
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("MLFLOW_TRACKING_URI", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def measured(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The study `quick`, measured in the test's own store: enough examples for a curve."""
    shutil.copytree(copy_of_quick(tmp_path_factory), store.root, dirs_exist_ok=True)
    return find_study("quick")


def report(study: Study, store: Store) -> list[dict[str, Any]]:
    """Make the report; the ``cliffs.json`` that it rests on."""
    warned: list[str] = []
    with StudyRun.open(study, store) as run:
        write_study_report(run, warned.append)
        paths = store.profiles_dir(study.name, run.campaign).glob("*/cliffs.json")
    assert warned == []
    return [json.loads(path.read_text("utf-8")) for path in paths]


def read(code: str, *given: str) -> Any:
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true"}
    done = subprocess.run(
        [gateway_tools_python(), "-P", "-c", code, *given],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def mlflow_server(folder: Path) -> Iterator[Callable[[], str]]:
    """Starts it; what is given waits until it answers, and returns its address."""
    port = free_port()
    command = [gateway_tools_python(), "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--backend-store-uri", f"sqlite:///{folder}/server.db"]
    command += ["--artifacts-destination", str(folder / "artifacts"), "--workers", "1"]
    # LiteLLM in the same environment would ask the network first, and MLflow's imports wait for it.
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    # Half of a start is processes for jobs, such as judging traces, of which none is asked for.
    environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"

    def answers() -> str:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
            except OSError:
                assert process.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < deadline, (folder / "server.log").read_text()
                time.sleep(0.3)
            else:
                return url

    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            yield answers
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(120)


def test_mlflow_keeps_one_run_for_each_model_in_store_folder_and_server(
    measured: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {**dict(measured.calls), "order": "by_length"}
    study = measured.changed(track="mlflow", description=f"A title with {SECRET}")
    changed = study.changed(description=f"Another title with {SECRET}", calls=calls)
    folder = str(tmp_path / "runs")
    with mlflow_server(tmp_path) as answers:  # starts while the others are logged to
        report(study, store)
        cliffs = report(changed, store)
        report(changed.changed(track={"kind": "mlflow", "tracking_uri": folder}).trusted(), store)
        url = answers()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        report(changed, store)
        kept, *fresh = read(READ_MLFLOW, f"sqlite:///{store.root}/mlflow/mlflow.db", folder, url)
    assert (store.root / "mlflow" / "artifacts").is_dir()
    for runs in (kept, *fresh):
        assert runs.keys() == {one["model"] for one in cliffs}
        assert SECRET not in json.dumps(runs)
        for one in cliffs:
            (run,) = runs[one["model"]]
            assert run["status"] == "FINISHED"
            assert run["tags"]["contextcliff.verdict"] == one["verdict"]
            assert run["metrics"]["n"] == one["n"]
            cap, logged = one["safe_cap_tokens"], run["metrics"]["safe_cap_tokens"]
            assert logged != logged if cap is None else logged == cap  # no cap: not a number
            assert run["params"]["tokenizer"] == "reference"
            assert len(run["curve"]) > 10
            assert run["curve"] == [[point["tokens"], point["mean"]] for point in one["curve"]]
            assert run["files"] == ["report.html", "report.json", "report.md", "report.png"]
            assert "Another title" in run["report"]
            # A parameter stays as it was logged first, and a tag names what it is now.
            order = run["params"]["calls.order"], run["tags"].get("contextcliff.now.calls.order")
            assert order == (("blocks", "by_length") if runs is kept else ("by_length", None))


def test_wandb_keeps_one_run_for_each_model(measured: Study, store: Store) -> None:
    study = measured.changed(track="wandb", description=f"A title with {SECRET}")
    cliffs = {one["model"]: one for one in report(study, store)}

    def logged() -> dict[str, list[dict[str, Any]]]:
        runs: dict[str, list[dict[str, Any]]] = {}
        paths = sorted((store.root / "wandb").rglob("run-*.wandb"))
        assert not any(SECRET.encode() in path.read_bytes() for path in paths)
        for run in read(READ_WANDB, *map(str, paths)):
            runs.setdefault(run["config"]["model"], []).append(run)
        return runs

    first = logged()
    assert first.keys() == cliffs.keys()
    for model, (run,) in first.items():
        one = cliffs[model]
        assert run["run"][1:] == ["contextcliff", one["campaign"]]
        assert run["summary"]["contextcliff.verdict"] == one["verdict"]
        assert run["summary"]["safe_cap_tokens"] == one["safe_cap_tokens"]
        assert run["curve"] == [[point["tokens"], point["mean"]] for point in one["curve"]]
        assert run["files"] == ["report.html", "report.json", "report.md", "report.png"]
    report(study.changed(description="Another title"), store)
    for model, runs in logged().items():
        assert {run["run"][0] for run in runs} == {first[model][0]["run"][0]}
        assert len(runs) == 2  # offline, each time it is logged to is a folder; sync joins them
