"""A scheduled campaign is held against the baseline; a real shrink fails the check and is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pyarrow.compute as pc
import pytest
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionResolvedStatus

from contextcliff_dagster.analysis.regression import Shrink
from contextcliff_dagster.contracts import EVAL_RECORDS, StudyError
from contextcliff_dagster.defs.automation import campaign_at, report_freshness, study_schedules
from contextcliff_dagster.defs.resources import run_resources
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.experiments.alert_channels import COMMAND, WEBHOOK, alert
from contextcliff_dagster.experiments.common.preparation import load_frozen
from contextcliff_dagster.experiments.common.study_run import campaign_of, open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import check_shrink, shrink_alarm
from contextcliff_dagster.experiments.length_profile.regression import (
    Regression,
    judge_regression,
    pin_baseline,
    read_baseline,
    with_changes,
)
from contextcliff_dagster.inference.ledger.campaigns import (
    current_campaign,
    ensure_campaign,
    list_campaigns,
    record_identity,
    recorded_identity,
)
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.measured_stores import copy_of_made, make_worse
from contextcliff_dagster_tests.support.servers.webhook import SECRET, Webhook, webhook
from contextcliff_dagster_tests.support.ticks import schedule_tick
from contextcliff_dagster_tests.support.tiny_study import Ran, Run

__all__ = ["webhook"]

TICK = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that another process, such as the daemon, could open."""
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def study(study: Study, tmp_path: Path) -> Study:
    """Twelve examples a bin, every Monday."""
    path = tmp_path / "studies" / "tiny.yaml"
    text = path.read_text().replace("samples_per_bin: 4", "samples_per_bin: 12")
    path.write_text(text + 'schedule: {cron: "0 3 * * 1"}\n', encoding="utf-8")
    return load_study(path)


@pytest.fixture
def pinned(
    study: Study,
    store: Store,
    instance: dg.DagsterInstance,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """The campaign of a whole run, pinned as the baseline."""

    def make(folder: Path) -> None:
        profile_study(study, store=Store(folder), instance=instance)

    copy_of_made(tmp_path_factory, "weekly", make, store.root)
    with open_ledger(store) as ledger:
        campaign = current_campaign(ledger, study.name)
    pin_baseline(study, store, campaign)
    return campaign


def check_of(result: Ran) -> dg.AssetCheckEvaluation:
    (found,) = (e for e in result.get_asset_check_evaluations() if e.check_name == "no_shrink")
    return found


def assert_skipped(result: Ran, instance: dg.DagsterInstance, why: str) -> None:
    """`no_shrink` is skipped, as Dagster's UI shows it, and the asset says why."""
    key = dg.AssetCheckKey(dg.AssetKey(["tiny", "cliffs"]), "no_shrink")
    checks = [event.check_name for event in result.get_asset_check_evaluations()]
    assert "plateau" in checks
    assert "no_shrink" not in checks
    (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    context = LoadingContextForTest(instance)
    status = asyncio.run(record.resolve_status(context))
    assert status is AssetCheckExecutionResolvedStatus.SKIPPED
    event = instance.get_latest_materialization_event(key.asset_key)
    assert event is not None
    assert event.asset_materialization is not None
    assert why in str(event.asset_materialization.metadata["no_shrink_skipped"].value)


@pytest.mark.usefixtures("prepared")
def test_a_tick_measures_anew_and_a_shrink_fails_the_check(
    run: Run, study: Study, store: Store, instance: dg.DagsterInstance, webhook: Webhook
) -> None:
    first = run("predictions", "eval_records", "metrics", "cliffs", "report")
    assert_skipped(first, instance, "No baseline is pinned")
    with open_ledger(store) as ledger:
        pinned = current_campaign(ledger, study.name)
    pin_baseline(study, store, pinned)
    assert_skipped(run("metrics", "cliffs"), instance, "is the pinned baseline itself")

    jobs = study_jobs(study)
    (schedule,) = study_schedules(study, jobs)
    resources = run_resources(store.root)
    (request,) = schedule_tick(schedule, instance, TICK, resources)
    with open_ledger(store) as ledger:  # nothing is begun before the first call
        assert current_campaign(ledger, study.name) == pinned
    names = [pinned, "2026-11-23T0300"]
    assert request.run_key == campaign_at(TICK) == names[1]

    definitions = dg.Definitions(
        assets=study_assets(study), jobs=jobs, schedules=[schedule], resources=resources
    )
    measured = definitions.resolve_job_def(schedule.job_name).execute_in_process(
        run_config=request.run_config, tags=request.tags, instance=instance
    )
    assert measured.success
    judged = ("eval_records", "metrics", "cliffs", "report")
    done = run(*judged, campaign=names[1])
    with open_ledger(store) as ledger:
        assert [campaign.name for campaign in list_campaigns(ledger, study.name)] == names
    again = check_of(done)
    assert again.passed
    page = store.report_dir(study.name, names[1]) / "regression.html"
    assert again.metadata["regression.html"].value == str(page)
    assert "not worse beyond noise" in page.read_text("utf-8")
    *_, report = done.get_asset_materialization_events()
    of_report = report.materialization.metadata
    shown = {name: of_report[name].value for name in ("report.html", "regression.html")}
    assert shown == {name: str(page.with_name(name)) for name in shown}
    assert "not worse" in str(again.description)
    assert webhook.got == []

    make_worse(study, store, names[1])
    heard: list[bytes] = []
    for _ in range(2):
        failed = check_of(run(*judged, campaign=names[1], senders={"team": heard.append}))
        assert not failed.passed
        assert failed.severity is dg.AssetCheckSeverity.ERROR
        assert "reference-short has declined" in str(failed.description)
        assert ">declined<" in page.read_text("utf-8")
        assert "reference-long is not worse" in str(failed.description)
    (told,) = webhook.got  # once
    (heard_by_team,) = heard
    assert json.loads(heard_by_team) == told
    assert told["shrunk"] == ["reference-short"]
    assert "Its serving identity is the same." in str(told["text"])
    assert (told["study"], told["campaign"], told["baseline"]) == ("tiny", names[1], pinned)


def test_what_cannot_be_compared_is_not_judged(pinned: str, study: Study, store: Store) -> None:
    manifest = load_frozen(study, store)
    assert judge_regression(study, store, manifest, pinned).shrinks == {}
    for path in sorted(store.campaign_dir("eval_records", study.name, pinned).rglob("*.parquet")):
        table = read_table(path, EVAL_RECORDS)
        target = Path(str(path).replace(f"campaign={pinned}", "campaign=other"))
        column = table.column_names.index("recipe_hash")
        other = pc.replace_substring(table["recipe_hash"], table["recipe_hash"][0].as_py(), "x")
        write_table(target, table.set_column(column, "recipe_hash", other), EVAL_RECORDS)
    judgement = judge_regression(study, store, manifest, "other")
    assert judgement.shrunk == []
    assert "its requests differ" in judgement.unjudged["reference-short"]
    assert not check_shrink(judgement).passed
    store.baseline_file(study.name).write_text("{")
    with pytest.raises(Exception, match="pin the baseline again"):
        read_baseline(study, store)


def test_the_sentence_says_what_changed_of_the_serving_identity(
    pinned: str, study: Study, store: Store
) -> None:
    with open_ledger(store) as ledger:
        served = recorded_identity(ledger, study.name, pinned, "reference-short")
        assert served is not None
        for campaign, version in (("before", "0.25.0"), ("now", "0.26.0")):
            other = Identity({**served.fields, "server": "vllm", "server_version": version})
            record_identity(ledger, study.name, campaign, "reference-short", other)
        judged = replace(
            shrunk(), baseline="before", shrinks={"reference-short": shrunk().shrinks["m"]}
        )
        changed = with_changes(judged, study, ledger)
    line = "server_version: 0.25.0 -> 0.26.0"
    assert changed.changes == {"reference-short": [line]}
    assert f"Its serving identity has changed: {line}." in changed.sentence
    alarm = shrink_alarm(changed)
    assert alarm is not None
    assert alarm.details["changes"] == changed.changes


def test_a_scheduled_run_that_fails_before_its_first_call_leaves_no_campaign(
    study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    with open_ledger(store) as ledger:
        ensure_campaign(ledger, study.name, "whole")
    jobs = study_jobs(study)
    (schedule,) = study_schedules(study, jobs)
    resources = run_resources(store.root)
    (request,) = schedule_tick(schedule, instance, TICK, resources)
    broken = study.changed(
        corpus={"kind": "jsonl", "path": "/nowhere.jsonl"}, tokenizer="reference"
    )
    definitions = dg.Definitions(assets=study_assets(broken), jobs=jobs, resources=resources)
    done = definitions.resolve_job_def(schedule.job_name).execute_in_process(
        run_config=request.run_config, tags=request.tags, instance=instance, raise_on_error=False
    )
    assert not done.success
    with open_ledger(store) as ledger:
        assert [one.name for one in list_campaigns(ledger, study.name)] == ["whole"]
        with pytest.raises(StudyError, match="has no campaign"):
            campaign_of(ledger, study, request.run_key)


def copy_campaign(
    study: Study, store: Store, old: str, new: str, minutes: int, wrong: bool
) -> None:
    """The records of ``old`` as those of a later campaign, all of them ``wrong`` or as they are."""
    for path in sorted(store.campaign_dir("eval_records", study.name, old).rglob("*.parquet")):
        rows = [
            {
                **row,
                "finished_at": row["finished_at"] + timedelta(minutes=minutes),
                "score": 0.0 if wrong else row["score"],
            }
            for row in read_table(path, EVAL_RECORDS).to_pylist()
        ]
        target = Path(str(path).replace(f"campaign={old}", f"campaign={new}"))
        write_table(target, rows, EVAL_RECORDS)


def test_runs_that_have_not_shrunk_show_how_flips_vary(
    pinned: str, study: Study, store: Store
) -> None:
    for number in range(1, 8):  # out of order by name: time decides
        copy_campaign(study, store, pinned, f"run-{9 - number}", number, wrong=number == 3)
    copy_campaign(study, store, pinned, "sentinel-1", 2, wrong=False)
    manifest = load_frozen(study, store)

    def judged(name: str) -> Regression:
        return judge_regression(study, store, manifest, name)

    first, third, last = judged("run-8"), judged("run-6"), judged("run-2")
    assert {model: one.runs for model, one in first.shrinks.items()} == {
        "reference-short": 0,
        "reference-long": 0,
    }
    assert "5 earlier runs" in first.sentence
    assert "a week with unusually many flips fails the check" in first.sentence
    assert "reference-short" in third.shrunk
    assert last.shrinks["reference-short"].runs == 5  # the one that failed is none
    assert "earlier runs" not in last.sentence


def shrunk() -> Regression:
    shrink = Shrink(True, 1e-5, 1e-3, 100, 200, 20, 15, 14, 1, 60, 0.9, 0.6)
    return Regression("then", "now", {"m": shrink})


def test_a_webhook_that_fails_is_named_without_its_secret_and_told_later(
    study: Study, store: Store, webhook: Webhook
) -> None:
    said: list[str] = []
    webhook.status = 500
    assert alert(study, store, shrink_alarm(shrunk()), said.append) == []
    assert "HTTP status 500" in said[0]
    assert "127.0.0.1" in said[0]
    webhook.status = 200
    assert len(alert(study, store, shrink_alarm(shrunk()), said.append)) == 1
    assert alert(study, store, shrink_alarm(shrunk()), said.append) == []
    assert len(webhook.got) == 2
    assert "m has declined in now against then" in str(webhook.got[1]["text"])
    kept = [path.read_text() for path in store.root.rglob("*.json")]
    assert not any(SECRET in text for text in [*said, *kept])


@pytest.mark.parametrize("url", ["ftp://host/x", "http://127.0.0.1:9/T0KEN-in-the-path", "T0KEN"])
def test_a_webhook_that_is_none_breaks_nothing(
    study: Study, store: Store, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(WEBHOOK, url)
    said: list[str] = []
    assert alert(study, store, shrink_alarm(shrunk()), said.append) == []
    assert len(said) == 1
    assert "T0KEN" not in said[0]


def test_a_command_gets_the_alert_on_stdin(
    study: Study, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tmp_path / "alert.json"
    monkeypatch.setenv(COMMAND, f"tee {target}")
    assert alert(study, store, shrink_alarm(shrunk()), print) == ["the command tee"]
    assert json.loads(target.read_text())["shrunk"] == ["m"]
    monkeypatch.setenv(COMMAND, "false")
    said: list[str] = []
    assert alert(study, store, shrink_alarm(shrunk()), said.append) == []
    assert "exit code 1" in said[0]


@pytest.mark.parametrize("command", ["it's broken --token T0KEN", "a 'b", 'x "'])
def test_a_command_with_broken_quotes_stops_no_webhook(
    study: Study, store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv(COMMAND, command)
    said: list[str] = []
    assert len(alert(study, store, shrink_alarm(shrunk()), said.append)) == 1
    assert len(webhook.got) == 1
    (sentence,) = said
    assert COMMAND in sentence
    assert "quot" in sentence
    assert "T0KEN" not in sentence


def test_a_missed_tick_makes_the_report_stale_after_the_grace(study: Study) -> None:
    policy = report_freshness(study)
    assert policy is not None
    assert policy.fail_window.to_timedelta().total_seconds() == (7 * 24 + 24) * 3_600


@pytest.mark.parametrize("line", ['cron: "often"', 'cron: "0 3 * * 1", timezone: Mars/North'])
def test_a_schedule_that_means_nothing_is_refused(tmp_path: Path, study: Study, line: str) -> None:
    path = tmp_path / "studies" / "tiny.yaml"
    path.write_text(path.read_text().replace('cron: "0 3 * * 1"', line))
    with pytest.raises(StudyError, match=r"cron|timezone"):
        load_study(path)
