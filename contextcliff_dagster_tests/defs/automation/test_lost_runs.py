"""A run whose process is gone, and with it the code server that knew, does not stay started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from contextcliff_dagster.defs.alerts import failure_of
from contextcliff_dagster.defs.automation import lost_runs_sensor
from contextcliff_dagster.defs.dagster_internals import GRPC_INFO_TAG, EngineEventData
from contextcliff_dagster.inference.devices.discovery import process_runs
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.child_processes import wait_until


@dg.job(name="profile_tiny")
def measuring() -> None: ...


def begun_run(instance: dg.DagsterInstance, pid: int, *, started: bool = True) -> str:
    """A run that a code server's process ``pid`` has begun."""
    location = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    tags = {"contextcliff/study": "tiny", GRPC_INFO_TAG: "{}"}
    run = instance.create_run_for_job(measuring, status=dg.DagsterRunStatus.STARTING, tags=tags)
    instance.run_storage.delete_run(run.run_id)
    run = run._replace(remote_job_origin=RemoteJobOrigin(location, run.job_name))
    instance.run_storage.add_run(run)
    message = f"Started process for run (pid: {pid})."
    instance.report_engine_event(message, run, EngineEventData.in_process(pid))
    if started:
        event = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name)
        instance.report_dagster_event(event, run.run_id)
    return run.run_id


@pytest.fixture
def instance(dagster_home: Path) -> Iterator[dg.DagsterInstance]:
    """One whose runs a code server starts."""
    with dg.DagsterInstance.from_config(str(dagster_home)) as opened:
        yield opened


@pytest.fixture
def gone() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


class Ticks:
    def __init__(self, study: Study, instance: dg.DagsterInstance) -> None:
        self._sensor, self._instance = lost_runs_sensor([study]), instance
        self._cursor: str | None = None

    def tick(self) -> str:
        context = dg.build_sensor_context(instance=self._instance, cursor=self._cursor)
        data = self._sensor.evaluate_tick(context)
        self._cursor = data.cursor
        return str(data.skip_message)

    def status(self, run_id: str) -> str:
        run = self._instance.get_run_by_id(run_id)
        assert run is not None
        return run.status.value


def test_a_lost_run_is_ended_at_the_second_look_and_only_once(
    study: Study, instance: dg.DagsterInstance, gone: int
) -> None:
    lost, living = begun_run(instance, gone), begun_run(instance, os.getpid())
    ticks = Ticks(study, instance)
    assert ticks.tick() == "0 lost runs ended."
    assert ticks.status(lost) == "STARTED"
    assert ticks.tick() == "1 lost run ended."
    assert ticks.tick() == "0 lost runs ended."
    assert (ticks.status(lost), ticks.status(living)) == ("FAILURE", "STARTED")
    sentence = f"The process of this run (pid {gone}) ended together with its code server."
    assert failure_of(instance, lost) == (sentence, None)


def test_a_run_that_had_not_quite_started_is_ended_too(
    study: Study, instance: dg.DagsterInstance, gone: int
) -> None:
    lost, ticks = begun_run(instance, gone, started=False), Ticks(study, instance)
    ticks.tick()
    assert ticks.status(lost) == "STARTING"
    assert ticks.tick() == "1 lost run ended."


def test_a_run_that_its_code_server_has_ended_meanwhile_is_left_alone(
    study: Study, instance: dg.DagsterInstance, gone: int
) -> None:
    lost, ticks = begun_run(instance, gone), Ticks(study, instance)
    ticks.tick()
    run = instance.get_run_by_id(lost)
    assert run is not None
    instance.report_run_failed(run, "Killed by signal 9.")
    assert ticks.tick() == "0 lost runs ended."


def test_another_process_of_the_same_id_and_a_dead_one_do_not_count_as_alive() -> None:
    """As after a restart of a container, whose process ids begin at 1 again."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        now = time.time()
        assert process_runs(process.pid, now)
        assert not process_runs(process.pid, now - 3600)
        process.kill()
        wait_until(lambda: not process_runs(process.pid, now))  # not yet buried
    assert not process_runs(process.pid, now)
