"""A failed run is reported once, to every channel, with its error's sentence first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from contextcliff_dagster.contracts import BudgetError
from contextcliff_dagster.defs.alerts import ALERTED_TAG, failed_runs_sensor, failure_of
from contextcliff_dagster.defs.home import COMMAND_LINE
from contextcliff_dagster.defs.resources import ALERTS, run_resources
from contextcliff_dagster.experiments.alert_channels import (
    COMMAND,
    WEBHOOK,
    Senders,
    alert_channels,
)
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.servers.webhook import SECRET, Webhook, webhook

__all__ = ["webhook"]

SENTENCE = "The budget of 1 USD is spent; raise it."
TAGS = {"contextcliff/study": "tiny", "contextcliff/cause": "schedule"}


@dg.job(name="profile_tiny")
def failing() -> None:
    @dg.op
    def predictions() -> None:
        key = "sk-" + "a1B2" * 8
        raise BudgetError(f"{SENTENCE} ({key})")

    predictions()


def launched(instance: dg.DagsterInstance, run_id: str, **other: object) -> None:
    """The run as one that Dagster's daemon had launched, with ``other`` values."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    location = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    instance.run_storage.delete_run(run_id)
    instance.run_storage.add_run(
        run._replace(remote_job_origin=RemoteJobOrigin(location, run.job_name), **other)
    )


def fail(instance: dg.DagsterInstance, **tags: str) -> str:
    done = failing.execute_in_process(instance=instance, tags=TAGS | tags, raise_on_error=False)
    launched(instance, done.run_id)
    return done.run_id


@dataclass
class Ticks:
    """The sensor as the daemon evaluates it, again and again."""

    study: Study
    store: Store
    instance: dg.DagsterInstance
    cursor: str | None = None
    others: Sequence[Study] = ()
    own: Senders = field(default_factory=dict)

    def tick(self) -> str:
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            resources={**run_resources(self.store.root), ALERTS: self.own},
        )
        data = failed_runs_sensor([self.study, *self.others]).evaluate_tick(context)
        self.cursor = data.cursor
        return str(data.skip_message)


@pytest.fixture
def ticks(study: Study, store: Store, instance: dg.DagsterInstance) -> Ticks:
    return Ticks(study, store, instance)


def test_a_failed_run_is_reported_once_and_its_sentence_comes_first(
    ticks: Ticks, webhook: Webhook
) -> None:
    run_id = fail(ticks.instance, **{"contextcliff/campaign": "2026-11-23T0300"})
    said = [ticks.tick() for _ in range(3)]
    assert said[0] == "1 failed run reported."
    (got,) = webhook.got
    text = str(got["text"])
    assert text.startswith(f"contextcliff, study tiny: {SENTENCE}")
    assert f"Run {run_id[:8]} of profile_tiny failed" in text
    assert "step predictions, campaign 2026-11-23T0300, cause schedule" in text
    assert (got["event"], got["run_id"], got["study"]) == ("run_failed", run_id, "tiny")
    assert "sk-" not in str(got)
    assert SECRET not in "".join(path.read_text() for path in ticks.store.root.rglob("*.json"))


def test_an_alert_that_could_not_be_sent_is_sent_later(ticks: Ticks, webhook: Webhook) -> None:
    webhook.status = 500
    fail(ticks.instance)
    assert ticks.tick() == "0 failed runs reported."
    webhook.status = 200
    assert ticks.tick() == "1 failed run reported."
    assert ticks.tick() == "0 failed runs reported."
    assert len(webhook.got) == 2


def test_a_channel_of_the_projects_own_hears_of_it_once_and_is_tried_again(ticks: Ticks) -> None:
    heard: list[dict[str, Any]] = []
    broken = [True]

    def tell_team(alert: bytes) -> None:
        if broken[0]:
            raise OSError("not now")
        heard.append(json.loads(alert))

    ticks.own = {"our team": tell_team}
    fail(ticks.instance)
    assert ticks.tick() == "0 failed runs reported."
    broken[0] = False
    assert [ticks.tick()[0] for _ in range(2)] == ["1", "0"]
    (alert,) = heard
    assert (alert["event"], alert["study"]) == ("run_failed", "tiny")
    assert alert["text"].startswith(f"contextcliff, study tiny: {SENTENCE}")


def test_runs_that_others_report_are_left_out(ticks: Ticks, webhook: Webhook) -> None:
    fail(ticks.instance, **{"dagster/will_retry": "true"})
    fail(ticks.instance, **{ALERTED_TAG: json.dumps(list(alert_channels(None)))})
    fail(ticks.instance, **{"contextcliff/study": "of-another-location"})
    fail(ticks.instance, **{"contextcliff/cause": COMMAND_LINE})
    failing.execute_in_process(instance=ticks.instance, tags=TAGS, raise_on_error=False)
    ticks.tick()
    assert webhook.got == []


def fail_assets(instance: dg.DagsterInstance, *keys: str) -> None:
    """A failed run of these assets, launched by hand: without a tag of ours."""
    done = failing.execute_in_process(instance=instance, raise_on_error=False)
    launched(instance, done.run_id, asset_selection=frozenset(map(asset_key_of, keys)))


def asset_key_of(written: str) -> dg.AssetKey:
    return dg.AssetKey(written.split("/"))


@pytest.mark.parametrize("prefix", ["", "team_b", "teams/b"])
def test_a_run_of_assets_is_of_the_first_known_study_below_the_prefix(
    ticks: Ticks, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_ASSET_PREFIX", prefix)
    ticks.others = [ticks.study.changed(name="zoo")]
    below = f"{prefix}/" if prefix else ""
    for keys in (
        ["database"],
        ["tiny/predictions", "database"],
        ["zoo/metrics", "database", "tiny/metrics", "tiny/cliffs", "zoo/cliffs"],
        ["another/metrics", "zoo/cliffs"],
        ["another/metrics"],
    ):
        fail_assets(ticks.instance, *(below + key for key in keys))
    assert ticks.tick() == "4 failed runs reported."
    assert [got["study"] for got in webhook.got] == [None, "tiny", "tiny", "zoo"]


def test_a_run_whose_process_died_says_how(ticks: Ticks, webhook: Webhook) -> None:
    run = ticks.instance.create_run_for_job(failing, tags=TAGS)
    launched(ticks.instance, run.run_id)
    ticks.instance.report_engine_event("Run execution process was terminated by signal 9.", run)
    ticks.instance.report_run_failed(run)
    assert failure_of(ticks.instance, run.run_id) == (
        "Run execution process was terminated by signal 9.",
        None,
    )
    ticks.tick()
    assert "was terminated by signal 9. Run" in str(webhook.got[0]["text"])


def test_without_a_channel_nothing_is_kept_for_later(
    ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(ticks.instance)
    assert ticks.tick() == "No alert channel is configured."
    assert not (ticks.store.study_dir("tiny") / "alerts").exists()
    monkeypatch.setenv(COMMAND, "true")
    monkeypatch.delenv(WEBHOOK, raising=False)
    ticks.cursor = None
    assert ticks.tick() == "1 failed run reported."
