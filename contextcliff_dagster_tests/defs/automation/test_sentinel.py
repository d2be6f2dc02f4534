"""A sentinel under Dagster: a schedule asks for it, a job runs it, lost answers are told."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs import automation
from contextcliff_dagster.defs.automation import sentinel_job, sentinel_schedules
from contextcliff_dagster.defs.resources import ALERTS, run_resources
from contextcliff_dagster.experiments.alert_channels import COMMAND
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.experiments.length_profile.regression import pin_baseline
from contextcliff_dagster.experiments.length_profile.sentinel import run_sentinel
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.campaigns import current_campaign, list_campaigns
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study

pytestmark = pytest.mark.usefixtures("unrecorded")

STUDY = """\
name: watched-daily
corpus: {kind: reference, task: lookup, documents: 300}
tokenizer: reference
bins: {count: 5}
sampling: {samples_per_bin: 12}
prompt: {max_output_tokens: 12}
models: [served]
analysis: {resamples: 100}
sentinel: {cron: "30 6 * * *", timezone: Europe/Zurich}
"""
TICK = datetime(2026, 11, 23, 5, 30, tzinfo=UTC)
CLIFFS = dg.AssetKey(["watched-daily", "cliffs"])


def serve(folder: Path, weights: str) -> None:
    entry = f"models:\n  served: {{engine: reference, weights: {weights_path(weights)}}}\n"
    (folder / "models.yaml").write_text(entry)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    serve(tmp_path, "reference-long")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    path = tmp_path / "watched-daily.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return load_study(path)


def request_at(study: Study, tick: datetime, instance: dg.DagsterInstance) -> dg.RunRequest:
    (schedule,) = sentinel_schedules(study, sentinel_job(study))
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=tick)
    (request,) = schedule.evaluate_tick(context).run_requests
    return request


def test_a_tick_asks_for_one_sentinel_of_its_own(
    study: Study, instance: dg.DagsterInstance
) -> None:
    job = sentinel_job(study)
    (schedule,) = sentinel_schedules(study, job)
    assert (schedule.name, job.name) == ("watch_watched_daily", "sentinel_watched_daily")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 6 * * *", "Europe/Zurich")
    request = request_at(study, TICK, instance)
    name = "sentinel-2026-11-23T0530"
    assert request.run_key == name == request_at(study, TICK, instance).run_key
    assert request.tags["contextcliff/campaign"] == name
    assert request.run_config == {
        "ops": {"watched_daily__sentinel": {"config": {"campaign": name}}}
    }
    assert dg.validate_run_config(job, request.run_config)


def test_a_study_without_a_sentinel_has_the_job_and_no_schedule(study: Study) -> None:
    plain = study.changed(sentinel=None)
    assert sentinel_schedules(plain, sentinel_job(plain)) == []


def test_the_location_has_both(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextcliff_dagster.definitions import defs

    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(study._folder))
    (study._folder / "models.yaml").rename(study._folder.parent / "models.yaml")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(study._folder.parent / "models.yaml"))
    location = defs().get_repository_def()  # type: ignore[call-arg]
    jobs = {job.name for job in location.get_all_jobs()}
    assert {"sentinel_watched_daily", "sentinel_quick"} <= jobs
    assert [schedule.name for schedule in location.schedule_defs] == ["watch_watched_daily"]


def test_a_sentinel_that_could_judge_no_model_fails_its_run(
    study: Study, store: Store, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = SimpleNamespace(
        sentence="served: too few answers came.",
        campaign="sentinel-2026-11-23T0530",
        baseline="2026-11-22",
        shrunk=[],
        unjudged=["served"],
    )
    monkeypatch.setattr(automation, "run_sentinel", lambda *_, **__: outcome)
    monkeypatch.setattr(automation, "shrink_alarm", lambda outcome: None)
    ended = sentinel_job(study).execute_in_process(
        run_config=request_at(study, TICK, instance).run_config,
        instance=instance,
        resources=run_resources(store.root),
        raise_on_error=False,
    )
    assert not ended.success
    assert [event for event in ended.all_events if "too few answers came" in str(event)]


def test_the_job_passes_an_unchanged_model_and_fails_a_changed_one(
    study: Study,
    store: Store,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = tmp_path / "alert.json"
    heard: list[bytes] = []
    monkeypatch.setenv(COMMAND, f"tee {told}")
    definitions = dg.Definitions(
        jobs=[sentinel_job(study)],
        resources={**run_resources(store.root), ALERTS: {"our team": heard.append}},
    )

    def ran(request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        return definitions.resolve_job_def("sentinel_watched_daily").execute_in_process(
            run_config=request.run_config,
            tags=request.tags,
            instance=instance,
            raise_on_error=False,
        )

    request = request_at(study, TICK, instance)
    assert not ran(request).success  # no baseline is pinned
    profile_study(study, store=store, instance=instance)
    with open_ledger(store) as ledger:
        pinned = current_campaign(ledger, study.name)
    pin_baseline(study, store, pinned)

    for _ in range(2):  # tried again, it asks nothing again
        assert ran(request).success
        with open_ledger(store) as ledger:
            ((campaign, sent),) = ledger.read(
                "SELECT campaign, count(*) FROM attempts WHERE campaign <> ? GROUP BY 1", (pinned,)
            )
        assert (campaign, sent) == ("sentinel-2026-11-23T0530", 12)
    assert not told.exists()
    (seen,) = instance.fetch_observations(CLIFFS, limit=1).records
    shown = seen.asset_observation.metadata
    assert shown["campaign"].value == campaign
    assert "served is not worse" in shown["sentinel"].value
    with open_ledger(store) as ledger:
        assert current_campaign(ledger, study.name) == pinned
        assert [c.name for c in list_campaigns(ledger, study.name)] == [pinned, campaign]

    serve(tmp_path, "reference-short")
    lost = ran(request_at(study, datetime(2026, 11, 24, 5, 30, tzinfo=UTC), instance))
    (failure,) = lost.get_step_failure_events()
    assert "served has declined" in failure.step_failure_data.user_failure_data.description
    alerted = json.loads(told.read_text())
    assert [json.loads(alert) for alert in heard] == [alerted]
    assert (alerted["campaign"], alerted["shrunk"]) == ("sentinel-2026-11-24T0530", ["served"])


def test_a_sentinel_goes_on_with_sentinels_only(study: Study, store: Store) -> None:
    with pytest.raises(StudyError, match="sentinel-"):
        run_sentinel(study, store, RunControl(), campaign="2026-11-23")


@pytest.mark.parametrize("line", ['cron: "daily"', "examples: 5", "timezone: Mars/North"])
def test_a_sentinel_that_means_nothing_is_refused(study: Study, line: str) -> None:
    path = study._folder / "watched-daily.yaml"
    path.write_text(STUDY.split("sentinel:")[0] + f"sentinel: {{{line}}}\n", encoding="utf-8")
    with pytest.raises(StudyError, match=r"cron|examples|timezone"):
        load_study(path)
