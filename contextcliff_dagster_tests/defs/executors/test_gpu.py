"""The GPU executor, with real runs in real processes; the devices are only names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.defs.partitions import add_campaign, range_tags
from contextcliff_dagster.experiments.common.study_run import campaign_of, open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.lease_holders import holders

LONG = 200.0


class Runs:
    """Runs in processes of their own, all on one Dagster home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, job: str, name: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("wb")
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "contextcliff_dagster_tests.support.gpu_runs", job, name],
            env=os.environ | {"GPU_RUNS": str(self.folder)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        return self.processes[name]

    def step(self, name: str, op: str = "needs_one") -> tuple[int, str]:
        """The step's process and what CUDA would see there; waits until it says so."""
        file = self.folder / f"{name}.{op}"
        self.until(lambda: file.exists() or self.processes[name].poll() is not None, name)
        assert file.exists(), self.log(name)
        pid, visible = file.read_text().split(" ", 1)
        return int(pid), visible

    def let_go(self, name: str) -> int:
        """End the run's step; the run's exit code."""
        (self.folder / f"{name}.go").touch()
        return self.processes[name].wait(LONG)

    def until(self, happens: Callable[[], bool], name: str, seconds: float = LONG) -> None:
        deadline = time.monotonic() + seconds
        while not happens():
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.02)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]


@pytest.fixture
def runs(tmp_path: Path, dagster_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("CONTEXTCLIFF_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", "left,right")
    # Made before: two first uses of one SQLite home at once corrupt it.
    with dg.DagsterInstance.get() as instance:
        instance.get_runs_count()
        instance.all_asset_keys()
        instance.all_instigator_state()
    started = Runs(tmp_path)
    yield started
    for process in started.processes.values():
        process.kill()
        process.wait(LONG)


def events(name: str) -> list[str]:
    with dg.DagsterInstance.get() as instance:
        (run,) = instance.get_runs(dg.RunsFilter(tags={"name": name}))
        return [
            f"{entry.step_key}: {entry.user_message}\n{error_of(entry)}"
            for entry in instance.all_logs(run.run_id)
        ]


def error_of(entry: dg.EventLogEntry) -> str:
    data = entry.dagster_event.event_specific_data if entry.dagster_event else None
    error = getattr(data, "error", None)
    return str(error.message) if error else ""


@pytest.mark.timeout(600)
def test_two_runs_get_different_devices_and_a_killed_step_gives_its_own_to_the_third(
    runs: Runs,
) -> None:
    runs.start("one", "first")
    runs.start("one", "second")
    doomed, device = runs.step("first")
    _, other = runs.step("second")
    assert {device, other} == {"left", "right"}

    runs.start("any_device", "third")
    waiting = f"GPU {device} is held by Step needs_one of run"
    runs.until(lambda: any(waiting in said for said in events_of("third")), "third")
    (said,) = [said for said in events_of("third") if "waits for 1 of 2 GPUs" in said]
    assert f"(pid {doomed})" in said
    assert not (runs.folder / "third.needs_any").exists()

    os.kill(doomed, signal.SIGKILL)
    runs.until(lambda: f"pid {doomed}" not in str(holders()), "first")
    assert runs.step("third", "needs_any")[1] == device
    assert runs.processes["first"].wait(LONG) == 1
    assert any("its process was ended by SIGKILL" in said for said in events("first"))

    assert runs.let_go("third") == 0, runs.log("third")
    assert runs.let_go("second") == 0, runs.log("second")
    # A run may end a moment before the last process of its steps, which holds the lease.
    runs.until(lambda: holders() == {}, "second")


def events_of(name: str) -> list[str]:
    """As `events`, also while the run is not recorded yet."""
    with dg.DagsterInstance.get() as instance:
        if not instance.get_runs(dg.RunsFilter(tags={"name": name})):
            return []
    return events(name)


def test_a_run_that_needs_more_than_there_are_ends_before_its_first_step(runs: Runs) -> None:
    assert runs.start("none_and_three", "big").wait(LONG) == 1
    assert any(
        "Step needs_three needs 3 GPUs, but this machine has 2 (left, right)" in said
        for said in events("big")
    )
    assert not (runs.folder / "big.needs_none").exists()
    assert holders() == {}


def test_steps_that_need_none_do_not_wait(runs: Runs) -> None:
    from contextcliff_dagster.inference.devices.leases import lease

    all_of_them = lease(2, "somebody else")
    runs.start("none", "plain")
    _, visible = runs.step("plain", "needs_none")
    assert visible == os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    assert runs.let_go("plain") == 0, runs.log("plain")
    all_of_them.close()


@pytest.mark.timeout(600)
def test_a_finished_study_waits_for_no_device(
    runs: Runs, measured: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"engine": "reference", "model_id": "reference-short", "gpus": 1}
    (tmp_path / "models.yaml").write_text(json.dumps({"models": {"reference-short": entry}}))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path / "studies"))
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", "gpu")
    somebody = runs.start("one", "first"), runs.start("one", "second")
    assert {runs.step("first")[1], runs.step("second")[1]} == {"left", "right"}
    code = ("-m", "contextcliff_dagster.definitions", "-j", "profile_tiny")
    with dg.DagsterInstance.get() as instance, open_ledger(Store.default()) as ledger:
        campaign = campaign_of(ledger, measured)
        add_campaign(instance, measured, campaign)
    asked = ("--tags", json.dumps(range_tags(measured, LENGTH_PROFILE, campaign)))
    again = subprocess.run(
        [sys.executable, "-m", "dagster", "job", "execute", *code, *asked],
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert again.returncode == 0, again.stderr[-4000:]
    assert "waits for" not in again.stderr
    assert all(process.poll() is None for process in somebody)
    with Ledger.open(Store.default().ledger) as ledger:
        assert ledger.read("SELECT count(*) FROM attempts") == [(24,)]


def test_a_cancelled_run_ends_its_steps(runs: Runs) -> None:
    run = runs.start("one", "first")
    step, _ = runs.step("first")
    run.send_signal(signal.SIGINT)
    assert run.wait(LONG) != 0
    runs.until(lambda: holders() == {}, "first")
    with pytest.raises(ProcessLookupError):
        os.kill(step, 0)


def test_the_step_of_a_killed_run_does_not_measure_on(runs: Runs) -> None:
    run = runs.start("one", "first")
    runs.step("first")
    run.kill()
    runs.until(lambda: holders() == {}, "first")
