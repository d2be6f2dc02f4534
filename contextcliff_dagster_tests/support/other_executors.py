"""A study whose steps run in processes of somebody else's: what their tests share."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.inference.ledger.campaigns import current_campaign
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.paths import EXECUTOR_SETTINGS
from contextcliff_dagster_tests.support.postgres import free_port

LONG = 500.0
PROFILE = ("-m", "dagster", "job", "execute", "-m", "contextcliff_dagster.definitions")
SCHEDULE = 'schedule: {cron: "0 3 1 1 *"}\n'
"""With it, a study has the job that draws its sample and measures it."""
CELERY_WORKER = ("celery", "-A", "dagster_celery.app", "worker", "--concurrency", "1")


@dataclass(frozen=True)
class Machine:
    """What a machine has for itself: where its processes work, and Dagster's home and logs."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, dagster_yaml: Path) -> Machine:
        machine = cls(folder)
        for name in ("work", "tmp", "home", "dagster", "logs"):
            (folder / name).mkdir(parents=True)
        shutil.copy(dagster_yaml, folder / "dagster" / "dagster.yaml")
        return machine

    @property
    def environment(self) -> dict[str, str]:
        names = {"TMPDIR": "tmp", "HOME": "home", "DAGSTER_HOME": "dagster", "DAGSTER_LOGS": "logs"}
        return {variable: str(self.folder / name) for variable, name in names.items()}


class Started:
    """Processes that end with the test, also where the test is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __call__(
        self, name: str, *command: str, on: Machine | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command, which leads a process group; on this machine where none is named."""
        with_us = (
            "contextcliff_dagster.inference.devices.launch",
            "0",
            "--with-parent",
            str(os.getpid()),
        )
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *with_us, "--", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=on.folder / "work" if on else None,
                env={**os.environ, **(on.environment if on else {})},
            )
        return self.processes[name]

    def until(self, happens: Callable[[], bool]) -> None:
        """Wait for it; a process that ends before it with an error is a failure at once."""
        deadline = time.monotonic() + LONG
        while not happens():
            codes = {name: process.poll() for name, process in self.processes.items()}
            assert not any(codes.values()), self.logs(codes)
            assert time.monotonic() < deadline, self.logs(codes)
            time.sleep(0.1)

    def logs(self, codes: dict[str, int | None]) -> str:
        said = {name: (self.folder / f"{name}.log").read_text(errors="replace") for name in codes}
        return "\n".join(f"== {name}: {code}\n{said[name][-3000:]}" for name, code in codes.items())

    def kill(self, name: str) -> None:
        """End the process and its children, as losing their machine would."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(120)

    def end(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(120)
            process.kill()
            process.wait(120)

    def profile_tiny(self, store: Store) -> list[dg.EventLogEntry]:
        """Measure and report the study, which has a schedule; what Dagster recorded of it."""
        measuring = self("measure", sys.executable, *PROFILE, "-j", "measure_tiny")
        self.until(lambda: measuring.poll() == 0)
        with open_ledger(store) as ledger:
            campaign = current_campaign(ledger, "tiny")
        tags = json.dumps({"dagster/partition": campaign})
        judging = self("report", sys.executable, *PROFILE, "-j", "report_tiny", "--tags", tags)
        self.until(lambda: judging.poll() == 0)
        with dg.DagsterInstance.get() as instance:
            runs = instance.get_runs()
            assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 2
            return [entry for run in reversed(runs) for entry in instance.all_logs(run.run_id)]


def celery_steps(events: Iterable[dg.EventLogEntry]) -> list[tuple[str, str]]:
    """Step and Celery worker of each time that a worker began a step."""
    return [
        (entry.step_key or "", str(event.event_specific_data.metadata["Celery worker"].value))
        for entry in events
        if (event := entry.dagster_event) is not None
        and "in celery worker" in (event.message or "")
    ]


def on_a_device(folder: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """A code location with the tiny study over a model that wants a device; ``variables`` set."""
    entry = {"engine": "reference", "model_id": "reference-short", "gpus": 1}
    (folder / "models.yaml").write_text(json.dumps({"models": {"reference-short": entry}}))
    file = folder / "studies" / "tiny.yaml"
    file.write_text(file.read_text().replace(", reference-long]", "]") + SCHEDULE)
    as_code_location(folder, monkeypatch, **variables)


def as_code_location(folder: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """The folder's studies and models.yaml for all processes that follow; ``variables`` set."""
    own: Mapping[str, str] = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "CONTEXTCLIFF_STUDIES": str(folder / "studies"),
        "CONTEXTCLIFF_MODELS": str(folder / "models.yaml"),
        "CONTEXTCLIFF_LEASES": str(folder / "leases"),
    }
    for name, value in {**own, **variables}.items():
        monkeypatch.setenv(name, value)
    # Made before: two first uses of one SQLite home at once corrupt it.
    with dg.DagsterInstance.get() as instance:
        instance.get_runs_count()
        instance.all_asset_keys()
        instance.all_instigator_state()


def over_redis(start: Started, folder: Path) -> dict[str, str]:
    """Start a broker for Celery; the variables that executor and workers need."""
    port = free_port()
    broker, backend = (f"redis://127.0.0.1:{port}/{database}" for database in (0, 1))
    # What docs/scale.md asks of the machines of the workers.
    (folder / "dagster_celery_config.py").write_text(
        f"broker_url = {broker!r}\nresult_backend = {backend!r}\n"
        "worker_prefetch_multiplier = 1\nworker_disable_prefetch = True\n"
    )
    start(
        "redis",
        *("redis-server", "--port", str(port), "--bind", "127.0.0.1"),
        *("--save", "", "--appendonly", "no", "--dir", str(folder)),
    )
    return {
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        "CONTEXTCLIFF_EXECUTOR": "celery",
        "CONTEXTCLIFF_EXECUTOR_CONFIG": str(EXECUTOR_SETTINGS / "celery.yaml"),
        "CONTEXTCLIFF_CELERY_BROKER": broker,
        "CONTEXTCLIFF_CELERY_BACKEND": backend,
    }


def insist_on_a_report_and_calls_made_once(store: Store) -> None:
    (report,) = store.root.rglob("report.json")
    assert (report.parent / "report.md").read_text().startswith("#")
    with Ledger.open(store.ledger) as ledger:
        asked = ledger.read("SELECT count(*), count(DISTINCT call_key) FROM attempts")
        assert asked == [(12, 12)]  # three bins of four examples
        assert ledger.stats()["answers"] == 12
