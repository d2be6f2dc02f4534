"""A whole study over Celery: a real Redis, two real workers, a run that only hands out steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.defs.device_tags import CELERY_QUEUE
from contextcliff_dagster.inference.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.postgres import free_port

pytestmark = [
    pytest.mark.celery,
    pytest.mark.slow,  # nine steps, each of them a Dagster process of its own
    pytest.mark.timeout(600),
]

LONG = 500.0
SETTINGS = Path(__file__).parents[2] / "docker" / "executors" / "celery.yaml"
WORKER = ("celery", "-A", "dagster_celery.app", "worker", "--concurrency", "1")


class Started:
    """Processes that end with the test, also where the test is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __call__(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with_us = ("contextcliff_dagster.inference.launch", "0", "--with-parent", str(os.getpid()))
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *with_us, "--", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self.processes[name]

    def until(self, happens: Callable[[], bool]) -> None:
        """Wait for it; a process that ends before it with a fault is a failure at once."""
        deadline = time.monotonic() + LONG
        while not happens():
            codes = {name: process.poll() for name, process in self.processes.items()}
            assert not any(codes.values()), self.logs(codes)
            assert time.monotonic() < deadline, self.logs(codes)
            time.sleep(0.1)

    def logs(self, codes: dict[str, int | None]) -> str:
        said = {name: (self.folder / f"{name}.log").read_text(errors="replace") for name in codes}
        return "\n".join(f"== {name}: {code}\n{said[name][-3000:]}" for name, code in codes.items())

    def end(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait(20)


@pytest.fixture
def start(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """A code location with the tiny study over a model that wants a device, and a broker."""
    entry = {"engine": "reference", "model_id": "reference-short", "gpus": 1}
    (tmp_path / "models.yaml").write_text(json.dumps({"models": {"reference-short": entry}}))
    file = tmp_path / "studies" / "tiny.yaml"
    file.write_text(
        file.read_text().replace("[reference-short, reference-long]", "[reference-short]")
    )
    port = free_port()
    broker = {"BROKER": f"redis://127.0.0.1:{port}/0", "BACKEND": f"redis://127.0.0.1:{port}/1"}
    # What docs/scale.md asks of the machines of the workers.
    (tmp_path / "dagster_celery_config.py").write_text(
        f"broker_url = {broker['BROKER']!r}\nresult_backend = {broker['BACKEND']!r}\n"
        "worker_prefetch_multiplier = 1\n"
    )
    for name, value in {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "CONTEXTCLIFF_STUDIES": str(file.parent),
        "CONTEXTCLIFF_MODELS": str(tmp_path / "models.yaml"),
        "CONTEXTCLIFF_DEVICES": "left",
        "CONTEXTCLIFF_LEASES": str(tmp_path / "leases"),
        "CONTEXTCLIFF_EXECUTOR": "celery",
        "CONTEXTCLIFF_EXECUTOR_CONFIG": str(SETTINGS),
        **{f"CONTEXTCLIFF_CELERY_{name}": url for name, url in broker.items()},
    }.items():
        monkeypatch.setenv(name, value)
    # Made before: two first uses of one SQLite home at once corrupt it.
    with dg.DagsterInstance.get() as instance:
        instance.get_runs_count()
        instance.all_asset_keys()
        instance.all_instigator_state()
    started = Started(tmp_path)
    try:
        started(
            "redis",
            *("redis-server", "--port", str(port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(tmp_path)),
        )
        yield started
    finally:
        started.end()


def test_a_study_runs_over_workers_and_asks_its_model_on_the_queue_for_devices(
    start: Started, store: Store
) -> None:
    gpu = (*WORKER, "--max-tasks-per-child", "1", "-Q", CELERY_QUEUE, "-n", "gpu@here")
    start("worker", *WORKER, "-Q", "dagster", "-n", "plain@here")
    start("gpu_worker", *gpu)
    code = ("-m", "contextcliff_dagster.definitions", "-j", "profile_tiny")
    run = start("run", sys.executable, "-m", "dagster", "job", "execute", *code)
    start.until(lambda: run.poll() == 0)

    with dg.DagsterInstance.get() as instance:
        (record,) = instance.get_run_records()
        assert record.dagster_run.status is dg.DagsterRunStatus.SUCCESS
        where = {
            entry.step_key: event.event_specific_data.metadata["Celery worker"].value
            for entry in instance.all_logs(record.dagster_run.run_id)
            if (event := entry.dagster_event) is not None
            and "in celery worker" in (event.message or "")
        }
    assert where.pop("tiny__predictions") == "gpu@here"
    assert set(where.values()) == {"plain@here"}
    assert {"tiny__manifest", "tiny__report"} <= where.keys()

    (report,) = store.root.rglob("report.json")
    assert (report.parent / "report.md").read_text().startswith("#")
    with Ledger.open(store.ledger) as ledger:
        counts = ledger.stats()
        asked = ledger.read("SELECT COUNT(*), COUNT(DISTINCT call_key) FROM attempts")
    assert asked == [(12, 12)], counts  # three bins of four examples
