"""Runs that measure side by side end in one report, whichever of them fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from contextcliff_dagster.defs.automation import study_schedules
from contextcliff_dagster.defs.campaign_runs import report_job, report_sensor
from contextcliff_dagster.defs.home import PLACE_TAG
from contextcliff_dagster.defs.partitions import add_campaign, partition_key
from contextcliff_dagster.defs.resources import run_resources
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.experiments.lookup import judged_assets
from contextcliff_dagster.run.study import LocalRuns
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.campaign_runs.conftest import Written
from contextcliff_dagster_tests.support.ticks import schedule_tick, sensor_tick

TICK = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)
CAMPAIGN = "2026-11-23T0300"
MEASURED = {"contextcliff/study": "tiny", "contextcliff/campaign": CAMPAIGN}
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Location:
    """The code location of one study as the daemon uses it, its runs in this process."""

    study: Study
    store: Store
    instance: dg.DagsterInstance
    cursor: str | None = None

    def __post_init__(self) -> None:
        self.resources = run_resources(self.store.root)
        self.jobs = study_jobs(self.study)
        self.report = report_job(self.study)
        self.definitions = dg.Definitions(
            study_assets(self.study), jobs=[*self.jobs, self.report], resources=self.resources
        )

    def tick(self) -> list[dg.RunRequest]:
        """What the schedule requests."""
        (schedule,) = study_schedules(self.study, self.jobs)
        return schedule_tick(schedule, self.instance, TICK, self.resources)

    def look_once(self) -> list[dg.RunRequest]:
        """What the sensor requests."""
        sensor = report_sensor([self.study], [self.report])
        requests, self.cursor = sensor_tick(
            sensor, self.instance, self.definitions, self.resources, self.cursor
        )
        return requests

    def look(self) -> list[dg.RunRequest]:
        """What it requests on two ticks, between which nothing happens."""
        return [*self.look_once(), *self.look_once()]

    def execute(self, request: dg.RunRequest, **tags: str) -> dg.ExecuteInProcessResult:
        """The run of ``request``, as the daemon tags it."""
        job = self.definitions.resolve_job_def(request.job_name or "measure_tiny")
        partition = {"dagster/partition": request.partition_key} if request.partition_key else {}
        return job.execute_in_process(
            run_config={**request.run_config, **QUIET},
            tags={**request.tags, **partition, **tags},
            instance=self.instance,
            asset_selection=request.asset_selection,
            raise_on_error=False,
        )

    def reported(self) -> Mapping[str, list[str]]:
        """Models and notes of the campaign's report."""
        folder = self.store.report_dir("tiny", CAMPAIGN)
        report = json.loads((folder / "report.json").read_bytes())
        return {"models": [one["model"] for one in report["models"]], "notes": report["notes"]}


@pytest.fixture
def location(weekly: Study, store: Store, instance: dg.DagsterInstance) -> Location:
    return Location(weekly, store, instance)


def steps(done: dg.ExecuteInProcessResult) -> set[str]:
    return {event.step_key.removeprefix("tiny__") for event in done.get_step_success_events()}


def test_an_undrawn_sample_is_drawn_by_one_run_for_all(location: Location) -> None:
    (request,) = location.tick()
    assert request.run_key == CAMPAIGN
    assert request.asset_selection is None
    assert PLACE_TAG not in request.tags
    assert request.tags["contextcliff/models"] == "reference-short, reference-long"


@pytest.mark.usefixtures("prepared")
def test_a_run_a_place_and_one_report(location: Location) -> None:
    short, long = location.tick()
    assert [short.tags[PLACE_TAG], long.tags[PLACE_TAG]] == ["reference-short", "reference-long"]
    assert location.look() == []
    for request, model in ((short, "reference-short"), (long, "reference-long")):
        done = location.execute(request)
        assert done.success
        assert steps(done) == {"predictions"}
        events = done.get_asset_materialization_events()
        assert {str(event.partition).rpartition(".")[0] for event in events} == {
            f"{CAMPAIGN}|{model}"
        }
        assert not location.store.report_dir("tiny", CAMPAIGN).exists()
    (report,) = location.look()
    assert (report.job_name, report.partition_key) == ("report_tiny", CAMPAIGN)
    assert location.look() == []  # asked for already
    done = location.execute(report)
    assert steps(done) == {"eval_records", "profile", "report", "cost_estimate"}
    assert {check.check_name for check in done.get_asset_check_evaluations()} >= {"plateau"}
    found = location.reported()
    assert found["models"] == ["reference-short", "reference-long"]
    assert not [note for note in found["notes"] if "Not measured" in note]
    location.cursor = None
    assert location.look() == []  # a sensor that starts anew sees that it is reported


@pytest.mark.usefixtures("prepared")
def test_what_was_measured_before_the_sensor_was_on_is_reported(location: Location) -> None:
    for request in location.tick():
        assert location.execute(request).success
    (report,) = location.look()
    assert location.execute(report).success
    # A top-up while it is off, whose run nobody tagged.
    (first, _) = location.tick()
    ranges = {tag: key for tag, key in first.tags.items() if tag.startswith("dagster/asset_part")}
    location.cursor = None
    job = location.definitions.resolve_job_def("profile_tiny")
    assert job.execute_in_process(instance=location.instance, tags=ranges, run_config=QUIET).success
    (again,) = location.look()
    assert again.partition_key == CAMPAIGN
    assert again.run_key != report.run_key


@pytest.mark.usefixtures("prepared")
def test_a_command_that_reports_what_it_measured_is_not_reported_again(
    location: Location, store: Store
) -> None:
    """Between its two runs, the sensor sees measurements that no report covers."""
    runs = LocalRuns.of(location.study, store, instance=location.instance)
    runs.materialize(LENGTH_PROFILE, ["predictions"])
    assert location.look_once() == []
    runs.materialize(None, [*judged_assets(LENGTH_PROFILE), "report"])
    assert location.look() == []


@pytest.mark.usefixtures("prepared")
def test_a_model_whose_run_failed_is_named_as_missing(location: Location) -> None:
    short, long = location.tick()
    location.execute(short)
    refused = {"ops": {"tiny__predictions": {"config": {"budget_usd": -1.0}}}}
    assert not location.execute(long.with_replaced_attrs(run_config=refused)).success
    (report,) = location.look()
    assert location.execute(report).success
    found = location.reported()
    assert found["models"] == ["reference-short"]
    (note,) = (note for note in found["notes"] if "Not measured" in note)
    assert note.startswith(f"Not measured: reference-long. Campaign {CAMPAIGN} has no scored")
    assert "contextcliff profile tiny --model reference-long" in note
    # It is measured after all: a report of its own follows.
    assert location.execute(long).success
    (again,) = location.look()
    assert again.run_key != report.run_key


@pytest.mark.usefixtures("prepared")
def test_runs_of_a_campaign_share_its_budget(location: Location, models: Written) -> None:
    """Side by side, too: `inference.spending.test_budget_trials` has the processes at once."""
    price = "price: {input_usd_per_mtok: 500, output_usd_per_mtok: 500}"
    entry = f"{{engine: reference, window_tokens: 8192, gpus: 1, {price}}}"
    models(f"reference-short: {entry}\nreference-long: {entry}")
    short, long = location.tick()

    def spent() -> float:
        with open_ledger(location.store) as ledger:
            return ledger.spent("tiny", CAMPAIGN).usd

    assert location.execute(short).success
    limit = 1.5 * (first := spent())
    limited = {"ops": {"tiny__predictions": {"config": {"budget_usd": limit}}}}
    assert not location.execute(long.with_replaced_attrs(run_config=limited)).success
    assert first < spent() <= limit


Add = Callable[..., dg.DagsterRun]


@pytest.fixture
def add(location: Location, instance: dg.DagsterInstance) -> Add:
    """Records a run that measures, in a state; a cell is measured."""
    numbers = iter(range(100))
    add_campaign(instance, location.study, CAMPAIGN)
    cell = partition_key(CAMPAIGN, "reference-short", "b00")
    made = dg.AssetMaterialization(dg.AssetKey(["tiny", "predictions"]), partition=cell)
    instance.report_runless_asset_event(made)

    def added(status: str, parent: dg.DagsterRun | None = None, **tags: str) -> dg.DagsterRun:
        parents = {"dagster/parent_run_id": parent.run_id} if parent else {}
        run = dg.DagsterRun(
            job_name="measure_tiny",
            run_id=f"run-{next(numbers)}",
            status=dg.DagsterRunStatus[status],
            tags={**MEASURED, **parents, **tags},
            parent_run_id=parent.run_id if parent else None,
            root_run_id=parent.run_id if parent else None,
        )
        return instance.add_run(run)

    return added


WAITS = {"dagster/will_retry": "true"}


def test_it_waits_for_runs_that_go_on_and_for_the_next_attempt(
    location: Location, add: Add
) -> None:
    add("SUCCESS")
    failed = add("FAILURE", **WAITS)
    assert location.look() == []
    second = add("STARTED", parent=failed)
    assert location.look() == []
    location.instance.run_storage.delete_run(second.run_id)
    add("SUCCESS", parent=failed)
    (request,) = location.look()
    assert request.partition_key == CAMPAIGN


def test_it_waits_for_a_backfill_that_has_runs_to_launch(location: Location, add: Add) -> None:
    backfill = PartitionBackfill(
        backfill_id="abc",
        status=BulkActionStatus.REQUESTED,
        from_failure=False,
        tags={},
        backfill_timestamp=0.0,
        partition_names=[f"{CAMPAIGN}|reference-short.b00"],
    )
    location.instance.add_backfill(backfill)
    add("SUCCESS", **{"dagster/backfill": "abc"})
    assert location.look() == []
    location.instance.update_backfill(backfill.with_status(BulkActionStatus.COMPLETED_SUCCESS))
    assert len(location.look()) == 1


def test_a_failed_run_of_an_ended_backfill_is_not_waited_for(location: Location, add: Add) -> None:
    """Dagster leaves the tag that it would be tried again, and does not try it."""
    for backfill_id in ("canceled", "deleted"):
        add("FAILURE", **WAITS, **{"dagster/backfill": backfill_id})
    backfill = PartitionBackfill(
        backfill_id="canceled",
        status=BulkActionStatus.CANCELED,
        from_failure=False,
        tags={},
        backfill_timestamp=0.0,
        partition_names=[],
    )
    location.instance.add_backfill(backfill)
    assert len(location.look()) == 1


def test_two_schedules_and_their_retries_end_in_one_report(location: Location, add: Add) -> None:
    first, second = add("FAILURE", **WAITS), add("STARTED")
    assert location.look() == []
    add("SUCCESS", parent=first)
    assert location.look() == []
    location.instance.run_storage.delete_run(second.run_id)
    add("SUCCESS")
    assert len(location.look()) == 1
    assert location.look() == []


def test_a_campaign_is_reported_while_another_goes_on(location: Location, add: Add) -> None:
    add("SUCCESS")
    instance = location.instance
    add_campaign(instance, location.study, "slow")

    def measured(cell: str) -> None:
        key = partition_key("slow", "reference-short", cell)
        event = dg.AssetMaterialization(dg.AssetKey(["tiny", "predictions"]), partition=key)
        instance.report_runless_asset_event(event)

    add("STARTED", **{"contextcliff/campaign": "slow"})
    assert location.look_once() == []
    measured("b00")
    (asked,) = location.look_once()
    assert asked.partition_key == CAMPAIGN
    measured("b01")
    # Its run is not there yet; by the same key Dagster launches one.
    assert {request.run_key for request in location.look()} == {asked.run_key}


@pytest.mark.parametrize("status", ["FAILURE", "CANCELED"])
def test_nothing_measured_is_not_reported(
    location: Location, instance: dg.DagsterInstance, status: str
) -> None:
    add_campaign(instance, location.study, CAMPAIGN)
    run = dg.DagsterRun("measure_tiny", "run", status=dg.DagsterRunStatus[status], tags=MEASURED)
    instance.add_run(run)
    assert location.look() == []


def test_keys_of_another_version_and_of_other_studies_are_left_alone(
    location: Location, instance: dg.DagsterInstance
) -> None:
    add_campaign(instance, location.study, CAMPAIGN)
    for asset, cell in (("tiny", "reference-short|b00"), ("other", f"{CAMPAIGN}|m.b00")):
        key = dg.AssetKey([asset, "predictions"])
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=cell))
    assert location.look() == []
