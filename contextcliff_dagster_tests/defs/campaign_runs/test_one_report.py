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
from contextcliff_dagster.defs.campaign_runs import PLACE_TAG, report_job, report_sensor
from contextcliff_dagster.defs.partitions import REPORTED_BY
from contextcliff_dagster.defs.resources import StoreResource, Watch
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.campaign_runs.conftest import Written

TICK = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)
CAMPAIGN = "2026-11-23T0300"
MEASURED = {REPORTED_BY: "report_tiny", "contextcliff/campaign": CAMPAIGN}
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Location:
    """The code location of one study as the daemon uses it, its runs in this process."""

    study: Study
    store: Store
    instance: dg.DagsterInstance
    cursor: str | None = None

    def __post_init__(self) -> None:
        self.resources = {"store": StoreResource(root=str(self.store.root)), "watch": Watch()}
        self.jobs = study_jobs(self.study)
        self.report = report_job(self.study)
        self.definitions = dg.Definitions(
            study_assets(self.study), jobs=[*self.jobs, self.report], resources=self.resources
        )

    def tick(self) -> list[dg.RunRequest]:
        """What the schedule requests."""
        (schedule,) = study_schedules(self.study, self.jobs)
        context = dg.build_schedule_context(
            instance=self.instance, scheduled_execution_time=TICK, resources=self.resources
        )
        return list(schedule.evaluate_tick(context).run_requests or ())

    def look(self) -> list[dg.RunRequest]:
        """What the sensor requests."""
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources=self.resources
        )
        data = report_sensor([self.study], [self.report]).evaluate_tick(context)
        self.cursor = data.cursor
        return list(data.run_requests or ())

    def execute(self, request: dg.RunRequest, **tags: str) -> dg.ExecuteInProcessResult:
        """The run of ``request``, as the daemon tags it."""
        job = self.definitions.resolve_job_def(request.job_name or "profile_tiny")
        return job.execute_in_process(
            run_config={**request.run_config, **QUIET},
            tags={**request.tags, **tags},
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
    assert {REPORTED_BY, PLACE_TAG}.isdisjoint(request.tags)
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
        assert {str(event.partition).partition("|")[0] for event in events} == {model}
        assert not location.store.report_dir("tiny", CAMPAIGN).exists()
    (report,) = location.look()
    assert (report.job_name, report.tags["contextcliff/campaign"]) == ("report_tiny", CAMPAIGN)
    done = location.execute(report)
    assert steps(done) == {"eval_records", "profile", "report"}
    assert {check.check_name for check in done.get_asset_check_evaluations()} >= {"plateau"}
    found = location.reported()
    assert found["models"] == ["reference-short", "reference-long"]
    assert not [note for note in found["notes"] if "Not measured" in note]
    assert [again.run_key for again in location.look()] == [report.run_key]  # Dagster keeps one


@pytest.mark.usefixtures("prepared")
def test_a_model_whose_run_failed_is_named_as_missing(location: Location) -> None:
    short, long = location.tick()
    location.execute(short)
    refused = {"ops": {"tiny__predictions": {"config": {"campaign": CAMPAIGN, "budget_usd": -1.0}}}}
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
    config = {"campaign": CAMPAIGN, "budget_usd": limit}
    limited = {"ops": {"tiny__predictions": {"config": config}}}
    assert not location.execute(long.with_replaced_attrs(run_config=limited)).success
    assert first < spent() <= limit


@pytest.mark.usefixtures("prepared")
def test_a_backfill_of_a_job_reports_once(location: Location) -> None:
    whole = dg.RunRequest(run_config={}, tags={})
    ranges = {
        f"dagster/asset_partition_range_{end}": f"reference-short|{bin}"
        for end, bin in (("start", "b00"), ("end", "b02"))
    }
    done = location.execute(whole, **ranges, **{"dagster/backfill": "abc"})
    assert done.success
    assert {"cost_estimate", "predictions"} <= steps(done)
    assert {"profile", "report"}.isdisjoint(steps(done))
    run = location.instance.get_run_by_id(done.run_id)
    assert run is not None
    assert run.tags[REPORTED_BY] == "report_tiny"
    assert run.tags["contextcliff/models"] == "reference-short"
    (report,) = location.look()
    assert location.execute(report).success


Add = Callable[..., dg.DagsterRun]


@pytest.fixture
def add(instance: dg.DagsterInstance) -> Add:
    """Records a run that measures, in a state."""
    numbers = iter(range(100))

    def added(status: str, parent: dg.DagsterRun | None = None, **tags: str) -> dg.DagsterRun:
        parents = {"dagster/parent_run_id": parent.run_id} if parent else {}
        run = dg.DagsterRun(
            job_name="profile_tiny",
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
    assert request.run_key == f"{CAMPAIGN}/run-3"


def test_it_waits_for_a_backfill_that_has_runs_to_launch(location: Location, add: Add) -> None:
    backfill = PartitionBackfill(
        backfill_id="abc",
        status=BulkActionStatus.REQUESTED,
        from_failure=False,
        tags={},
        backfill_timestamp=0.0,
        partition_names=["reference-short|b00"],
    )
    location.instance.add_backfill(backfill)
    add("SUCCESS", **{"dagster/backfill": "abc"})
    assert location.look() == []
    location.instance.update_backfill(backfill.with_status(BulkActionStatus.COMPLETED_SUCCESS))
    assert len(location.look()) == 1


@pytest.mark.parametrize("status", ["FAILURE", "CANCELED"])
def test_nothing_measured_is_not_reported(location: Location, add: Add, status: str) -> None:
    add(status, **{"dagster/will_retry": "false"})
    assert location.look() == []


def test_runs_of_another_study_are_left_alone(location: Location, add: Add) -> None:
    add("SUCCESS", **{REPORTED_BY: "report_other"})
    assert location.look() == []
