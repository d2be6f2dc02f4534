"""A scheduled study of two endpoints under a real daemon: measured at once, reported once."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.run.study import prepare_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.scenarios.test_failed_run import (
    YEARLY,
    instance_with_missed_tick,
    run_of_tick,
)
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.dagster_ui import running_ui
from contextcliff_dagster_tests.support.held_calls import Gate
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.records.calls import read_log, reference_server
from contextcliff_dagster_tests.support.tiny_study import TINY

# Webserver, daemon, two servers and four runs, each a process of its own.
pytestmark = pytest.mark.timeout(1800)

CALLS = 12


def pid_of(instance: dg.DagsterInstance, run_id: str) -> int:
    logged = instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    texts = " ".join(entry.get_dagster_event().message or "" for entry in logged)
    (pid,) = re.findall(r"Executing steps in process \(pid: (\d+)\)", texts)
    return int(pid)


def test_two_endpoints_are_asked_at_once_and_reported_once(
    contextcliff_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("left", "right")
    studies, models = tmp_path / "studies", tmp_path / "models.yaml"
    studies.mkdir()
    text = TINY.replace("[reference-short, reference-long]", "[left, right]")
    (studies / "tiny.yaml").write_text(f'{text}schedule: {{cron: "{YEARLY}"}}\n')
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(studies))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    gates = {name: Gate(tmp_path / f"{name}.gate") for name in names}
    logs = {name: tmp_path / f"{name}.jsonl" for name in names}
    models.write_text("models: {}\n")
    for gate in gates.values():
        gate.let(3)

    def received(name: str) -> list[str]:
        lines = read_log(logs[name]) if logs[name].exists() else []
        return [line["prompt_hash"] for line in lines if line["event"] == "received"]

    with (
        reference_server(log=logs["left"], gate=gates["left"]) as left,
        reference_server(log=logs["right"], gate=gates["right"]) as right,
    ):
        entry = "{engine: openai, model_id: reference-short, concurrency: 2, window_tokens: 8192"
        models.write_text(
            f"models:\n  left: {entry}, base_url: {left}}}\n  right: {entry}, base_url: {right}}}\n"
        )
        prepare_study(load_study(studies / "tiny.yaml"))
        with (
            instance_with_missed_tick(Store(contextcliff_home), monkeypatch) as instance,
            running_ui(tmp_path, "--port", str(free_port())),
        ):
            campaign = run_of_tick(instance).tags["contextcliff/campaign"]

            def runs(job: str, **tags: str) -> list[dg.DagsterRun]:
                of = {"contextcliff/campaign": campaign, **tags}
                return list(instance.get_runs(dg.RunsFilter(job_name=job, tags=of)))

            # Each server has answered three calls and holds the next: both are being asked.
            wait_until(lambda: all(len(received(name)) > 3 for name in names), 420)
            of_model = {run.tags["contextcliff/models"]: run for run in runs("measure_tiny")}
            assert sorted(of_model) == ["left", "right"]
            gates["left"].open()
            wait_until(lambda: instance.get_run_by_id(of_model["left"].run_id).is_finished, 420)
            in_flight = len(received("right")) - 3
            os.kill(pid_of(instance, of_model["right"].run_id), signal.SIGKILL)
            gates["right"].open()
            wait_until(lambda: any(run.is_finished for run in runs("report_tiny")), 600)

            attempts = runs("measure_tiny", **{"contextcliff/models": "right"})
            assert Counter(run.status.value for run in attempts) == {"FAILURE": 1, "SUCCESS": 1}
            parents = [run.tags.get("dagster/parent_run_id") for run in attempts]
            assert {*parents} == {None, of_model["right"].run_id}
            (report,) = runs("report_tiny")
            assert report.is_success
            ends = [instance.get_run_stats(run.run_id).end_time or 0.0 for run in attempts]
            assert (instance.get_run_stats(report.run_id).start_time or 0.0) >= max(ends)
    found = json.loads(
        (Store(contextcliff_home).report_dir("tiny", campaign) / "report.json").read_bytes()
    )
    assert [one["model"] for one in found["models"]] == ["left", "right"]
    assert [one["n"] for one in found["models"]] == [CALLS, CALLS]
    assert len(received("left")) == CALLS
    assert len(set(received("right"))) == CALLS
    assert len(received("right")) <= CALLS + in_flight + 1  # those that died with the run
