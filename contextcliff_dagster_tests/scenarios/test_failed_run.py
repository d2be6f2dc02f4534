"""A scheduled study under a real daemon: a refused run is reported once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorTick,
    ScheduleInstigatorData,
)

from contextcliff_dagster.cli.dagster_home import open_instance
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.dagster_ui import running_ui
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.servers.webhook import Webhook, webhook
from contextcliff_dagster_tests.support.tiny_study import TINY

__all__ = ["webhook"]

# Webserver, daemon and two runs, each a process of its own, with the daemon's own pauses.
pytestmark = pytest.mark.timeout(1800)

YEARLY = "0 0 1 1 *"


def instance_with_missed_tick(store: Store, monkeypatch: pytest.MonkeyPatch) -> dg.DagsterInstance:
    """Return what `contextcliff ui` opens, the yearly schedule of `tiny` switched on a year ago.

    A daemon that starts makes up for the last tick at once. There is no other to wait for, and
    none can come in between.
    """
    monkeypatch.delenv("DAGSTER_HOME")
    instance = open_instance(store)
    location = RegisteredCodeLocationOrigin("contextcliff_dagster")
    schedule = RemoteInstigatorOrigin(
        RemoteRepositoryOrigin(location, "__repository__"), "measure_tiny"
    )
    since = (datetime.now(UTC) - timedelta(days=366)).timestamp()
    instance.add_instigator_state(
        InstigatorState(
            schedule,
            InstigatorType.SCHEDULE,
            InstigatorStatus.RUNNING,
            ScheduleInstigatorData(YEARLY, since),
        )
    )
    return instance


def ticks_of(instance: dg.DagsterInstance, name: str) -> Sequence[InstigatorTick]:
    """Of a schedule or sensor, newest first."""
    states = [one for one in instance.all_instigator_state() if one.instigator_name == name]
    return [
        tick
        for state in states
        for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
    ]


def run_of_tick(instance: dg.DagsterInstance) -> dg.DagsterRun:
    """The newest run of the schedule's one tick, once that tick is over."""
    wait_until(lambda: any(tick.is_completed for tick in ticks_of(instance, "measure_tiny")), 420)
    (tick,) = ticks_of(instance, "measure_tiny")
    run = instance.get_run_by_id(tick.run_ids[-1])
    assert run is not None
    return run


def test_a_refused_run_is_reported_once(
    contextcliff_home: Path, tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies, models = tmp_path / "studies", tmp_path / "models.yaml"
    studies.mkdir()
    text = TINY.replace("[reference-short, reference-long]", "[served]")
    (studies / "tiny.yaml").write_text(f'{text}schedule: {{cron: "{YEARLY}"}}\n')
    models.write_text("models: {}\n")
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(studies))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    store, sensor = Store(contextcliff_home), "alert_failed_runs"

    with (
        instance_with_missed_tick(store, monkeypatch) as instance,
        running_ui(tmp_path, "--port", str(free_port())),
    ):
        refused = run_of_tick(instance)
        wait_until(lambda: webhook.got, 420)
        known = len(ticks_of(instance, sensor))
        wait_until(lambda: len(ticks_of(instance, sensor)) > known + 1, 420)
        (alert,) = webhook.got
        assert alert["run_id"] == refused.run_id
        assert str(alert["text"]).startswith("contextcliff, study tiny: There is no model 'served'")
        assert not instance.get_runs(dg.RunsFilter(tags={"dagster/parent_run_id": refused.run_id}))
        ended = instance.get_run_by_id(refused.run_id)
        assert ended is not None
        assert ended.tags["dagster/will_retry"] == "false"
    with open_ledger(store) as ledger:
        assert list_campaigns(ledger, "tiny") == []
