"""A scheduled study under a real daemon: a killed run is taken up, a refused one is reported."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import InstigatorTick

from contextcliff_dagster.defs.alerts.channels import WEBHOOK
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.dagster_ui import DagsterUi, running_ui
from contextcliff_dagster_tests.support.held_calls import Gate
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.records.calls import read_log, reference_server
from contextcliff_dagster_tests.support.servers.webhook import Webhook, webhook
from contextcliff_dagster_tests.support.tiny_study import TINY

__all__ = ["webhook"]

# Webserver, daemon and three runs, each a process of its own, with the daemon's own pauses.
pytestmark = pytest.mark.timeout(900)

SWITCH = """
mutation ($name: String!) {{ {mutation}Schedule(scheduleSelector: {{
  repositoryLocationName: "contextcliff_dagster", repositoryName: "__repository__",
  scheduleName: $name}}) {{ __typename }} }}"""
STOP = """
mutation ($id: String!) { stopRunningSchedule(id: $id) { __typename } }"""
SCHEDULES = """
{ schedulesOrError(repositorySelector: {repositoryLocationName: "contextcliff_dagster",
    repositoryName: "__repository__"}) { ... on Schedules { results { name id } } } }"""
CALLS = 12


def ticks_of(instance: dg.DagsterInstance, name: str) -> Sequence[InstigatorTick]:
    """Of a schedule or sensor, newest first."""
    (state,) = (one for one in instance.all_instigator_state() if one.instigator_name == name)
    return instance.get_ticks(state.instigator_origin_id, state.selector_id)


def one_tick(ui: DagsterUi, instance: dg.DagsterInstance) -> dg.DagsterRun:
    """The (newest) run of the schedule's next tick, once that tick is over.

    A schedule that is stopped in the middle of a tick makes no further run of it, and begins with
    that tick again when it is started.
    """
    known = set(instance.get_run_ids())

    def new() -> list[dg.DagsterRun]:
        return [run for run in instance.get_runs() if run.run_id not in known]

    def is_over() -> bool:
        tick = ticks_of(instance, "measure_tiny")[0]
        return tick.is_completed and tick.run_ids[-1:] == [new()[0].run_id]

    answer = ui.ask(SWITCH.format(mutation="start"), name="measure_tiny")
    assert answer["startSchedule"]["__typename"] == "ScheduleStateResult", answer
    wait_until(lambda: new() and is_over(), 150)
    results = ui.ask(SCHEDULES)["schedulesOrError"]["results"]
    (of_study,) = (one["id"] for one in results if one["name"] == "measure_tiny")
    ui.ask(STOP, id=of_study)
    return new()[0]


def pid_of(instance: dg.DagsterInstance, run_id: str) -> int:
    logged = instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    texts = " ".join(entry.get_dagster_event().message or "" for entry in logged)
    (pid,) = re.findall(r"Executing steps in process \(pid: (\d+)\)", texts)
    return int(pid)


def test_a_killed_run_is_taken_up_and_a_refused_one_is_reported_once(
    contextcliff_home: Path, tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies, models = tmp_path / "studies", tmp_path / "models.yaml"
    studies.mkdir()
    text = TINY.replace("[reference-short, reference-long]", "[served]")
    (studies / "tiny.yaml").write_text(f'{text}schedule: {{cron: "* * * * *"}}\n')
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(studies))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    monkeypatch.setenv(WEBHOOK, webhook.url)
    gate, log = Gate(tmp_path / "gate"), tmp_path / "log.jsonl"
    gate.let(5)
    models.write_text("models: {}\n")

    def received() -> list[str]:
        return [line["prompt_hash"] for line in read_log(log) if line["event"] == "received"]

    with (
        reference_server(log=log, gate=gate) as url,
        running_ui(tmp_path, "--port", str(free_port())) as ui,
        dg.DagsterInstance.from_config(str(contextcliff_home / "dagster_home")) as instance,
    ):
        models.write_text(
            "models:\n  served: {engine: openai, model_id: reference-short, concurrency: 2, "
            f"base_url: {url}, window_tokens: 8192}}\n"
        )
        killed = one_tick(ui, instance)
        wait_until(lambda: len(received()) > 5)
        in_flight = len(received()) - 5
        os.kill(pid_of(instance, killed.run_id), signal.SIGKILL)
        gate.open()

        def again() -> dg.DagsterRun | None:
            runs = instance.get_runs(dg.RunsFilter(tags={"dagster/parent_run_id": killed.run_id}))
            return next((run for run in runs if run.is_finished), None)

        wait_until(again, 240)
        second = again()
        assert second is not None
        assert second.status is dg.DagsterRunStatus.SUCCESS
        assert second.tags["contextcliff/campaign"] == killed.tags["contextcliff/campaign"]
        twice = sum(count - 1 for count in Counter(received()).values())
        assert len(set(received())) == CALLS
        assert twice <= in_flight + 1

        models.write_text("models: {}\n")
        refused = one_tick(ui, instance)
        wait_until(lambda: webhook.got, 150)
        reported, sensor = time.time(), "alert_failed_runs"
        wait_until(lambda: sum(t.timestamp > reported for t in ticks_of(instance, sensor)) > 1, 150)
        (alert,) = webhook.got
        assert alert["run_id"] == refused.run_id
        assert str(alert["text"]).startswith("contextcliff, study tiny: There is no model 'served'")
        assert not instance.get_runs(dg.RunsFilter(tags={"dagster/parent_run_id": refused.run_id}))
        ended = instance.get_run_by_id(refused.run_id)
        assert ended is not None
        assert ended.tags["dagster/will_retry"] == "false"
    with open_ledger(Store(contextcliff_home)) as ledger:
        names = [campaign.name for campaign in list_campaigns(ledger, "tiny")]
    assert names == [killed.tags["contextcliff/campaign"]]
