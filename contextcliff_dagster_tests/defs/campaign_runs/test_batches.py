"""Batches in Dagster: runs end once calls are asked, cells wait, a sensor takes the answers in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.defs import batches
from contextcliff_dagster.defs.automation import study_schedules
from contextcliff_dagster.defs.batches import batch_sensor
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.campaign_runs.conftest import Written
from contextcliff_dagster_tests.defs.campaign_runs.test_one_report import CAMPAIGN, TICK, Location
from contextcliff_dagster_tests.support.servers.batch_server import BatchServer, batch_server
from contextcliff_dagster_tests.support.ticks import schedule_tick, sensor_tick

CALLS = 12


@dataclass
class BatchLocation(Location):
    """Also what the sensor that looks after batches requests."""

    looked: str | None = None

    def look_after(self) -> list[dg.RunRequest]:
        requests, self.looked = sensor_tick(
            batch_sensor([self.study]), self.instance, self.definitions, self.resources, self.looked
        )
        return requests

    def takes_in(self) -> None:
        for request in self.look_after():
            assert self.execute(request).success

    def cells(self, kind: dg.DagsterEventType) -> set[str]:
        """Cells of the predictions with an event of this kind."""
        of = dg.EventRecordsFilter(kind, asset_key=dg.AssetKey(["tiny", "predictions"]))
        records = self.instance.get_event_records(of)
        return {str(record.partition_key) for record in records if record.partition_key}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BatchServer]:
    with batch_server(tmp_path / "provider") as server:
        yield server


@pytest.fixture
def location(
    study: Study,
    store: Store,
    instance: dg.DagsterInstance,
    server: BatchServer,
    models: Written,
    monkeypatch: pytest.MonkeyPatch,
) -> BatchLocation:
    monkeypatch.setattr(batches, "FIRST_LOOK_S", 0.0)
    models(
        f"remote: {{engine: openai, model_id: reference-short, base_url: '{server.url}',"
        " window_tokens: 8192, batch: {discount: .5}}"
    )
    asked = study.changed(models=("remote",), schedule={"cron": "0 3 * * 1"}, calls={"batch": True})
    return BatchLocation(asked, store, instance)


def test_a_run_ends_once_its_calls_are_asked_and_the_sensor_reports_the_answers(
    location: BatchLocation, server: BatchServer
) -> None:
    (request,) = location.tick()
    assert location.execute(request).success
    cells = {f"{CAMPAIGN}|remote.b0{number}" for number in range(3)}
    assert location.cells(dg.DagsterEventType.ASSET_OBSERVATION) == cells  # waiting
    assert not location.cells(dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert not location.look_after()
    assert not location.look()  # nothing to report
    # The next tick does not begin a second campaign over it.
    (schedule,) = study_schedules(location.study, location.jobs)
    later = TICK + timedelta(days=7)
    assert not schedule_tick(schedule, location.instance, later, location.resources)

    server.advance(3)
    location.takes_in()
    assert location.cells(dg.DagsterEventType.ASSET_MATERIALIZATION) == cells
    (report,) = location.look()
    assert location.execute(report).success
    assert location.reported()["models"] == ["remote"]
    assert len(server.bills()) == CALLS
    assert not location.look_after()
    assert schedule_tick(schedule, location.instance, later, location.resources)


def test_what_a_batch_did_not_answer_is_asked_again_without_a_hand(
    location: BatchLocation, server: BatchServer
) -> None:
    server.faults["expired"] = 1
    location.execute(*location.tick())
    server.advance(2)
    location.takes_in()
    assert len(server.batches()) == 2
    assert not location.look()  # the rest waits: no report of a part
    server.advance(3)
    location.takes_in()
    (report,) = location.look()
    assert location.execute(report).success
    assert len({bill["custom_id"] for bill in server.bills()}) == CALLS == len(server.bills())


def test_a_batch_that_cannot_be_looked_at_gets_a_run_that_says_why(
    location: BatchLocation, server: BatchServer, models: Written
) -> None:
    location.execute(*location.tick())
    models(
        f"remote: {{engine: openai, model_id: reference-short, base_url: '{server.url}',"
        " window_tokens: 8192, batch: {discount: .5}, api_key_env: NOT_SET_ANYWHERE}"
    )
    (request,) = location.look_after()
    assert not location.execute(request).success
    (again,) = location.look_after()
    assert again.run_key != request.run_key
