"""A channel that fails keeps no other one waiting, and loses no alert."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import dagster as dg
import pytest

from contextcliff_dagster.analysis.regression import Shrink
from contextcliff_dagster.defs import alerts, automation
from contextcliff_dagster.defs.resources import run_resources
from contextcliff_dagster.experiments import alert_channels
from contextcliff_dagster.experiments.alert_channels import COMMAND, WEBHOOK
from contextcliff_dagster.experiments.length_profile.regression import Regression
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.test_failed_runs import Ticks, fail, launched, ticks
from contextcliff_dagster_tests.support.servers.webhook import Webhook, webhook

__all__ = ["ticks", "webhook"]


@pytest.fixture
def commanded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the command is given; it always works."""
    got: list[bytes] = []
    monkeypatch.setenv(COMMAND, "tell")
    monkeypatch.setattr(alert_channels, "_run", lambda _, body: got.append(body))
    return got


def test_a_failing_channel_is_tried_once_in_a_tick(
    ticks: Ticks, webhook: Webhook, commanded: list[bytes]
) -> None:
    webhook.status = 503
    for _ in range(3):
        fail(ticks.instance)
    assert ticks.tick() == "3 failed runs reported."
    assert (len(webhook.got), len(commanded)) == (1, 3)
    assert ticks.tick() == "0 failed runs reported."
    assert (len(webhook.got), len(commanded)) == (2, 3)
    webhook.status = 200
    assert ticks.tick() == "3 failed runs reported."
    assert (len(webhook.got), len(commanded)) == (5, 3)
    assert ticks.tick() == "0 failed runs reported."
    assert len(webhook.got) == 5


@dataclass
class Clock:
    """Seconds that only channels that hang let pass."""

    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock; every webhook hangs until its timeout."""
    clock = Clock()

    def hang(_url: str, _body: bytes) -> None:
        clock.now += alert_channels.WEBHOOK_WITHIN_S
        raise TimeoutError

    monkeypatch.setattr(alert_channels, "_post", hang)
    for module in (alerts, alert_channels):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def test_all_channels_of_a_study_fit_into_one_tick(
    ticks: Ticks, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(_command: list[str], _body: bytes) -> None:
        clock.now += alert_channels.COMMAND_WITHIN_S
        raise TimeoutError

    monkeypatch.setenv(COMMAND, "tell")
    monkeypatch.setattr(alert_channels, "_run", hang)
    for variable in (WEBHOOK, "TEAM_WEBHOOK"):
        monkeypatch.setenv(variable, "http://198.51.100.1/")
    ticks.study = ticks.study.changed(alerts={"webhook_env": "TEAM_WEBHOOK"})
    for _ in range(3):
        fail(ticks.instance)
    for _ in range(3):
        began = clock.now
        ticks.tick()
        # All three were tried, and Dagster's 60 s leave time for the records.
        assert (
            clock.now - began
            == 2 * alert_channels.WEBHOOK_WITHIN_S + alert_channels.COMMAND_WITHIN_S
        )
        assert clock.now - began <= 50.0


def test_many_hanging_webhooks_leave_the_command_its_turn(
    ticks: Ticks, clock: Clock, commanded: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = []
    for number in range(8):
        variable = f"TEAM_{number}"
        monkeypatch.setenv(variable, "http://198.51.100.1/")
        name = f"tiny-{number}"
        studies.append(ticks.study.changed(name=name, alerts={"webhook_env": variable}))
        fail(ticks.instance, **{"contextcliff/study": name})
    ticks.others = studies
    for _ in range(3):
        began = clock.now
        ticks.tick()
        assert clock.now - began <= 50.0
    assert len(commanded) == 8
    # What the webhooks are owed is kept.
    monkeypatch.setattr(alert_channels, "_post", lambda _url, _body: None)
    assert ticks.tick() == "8 failed runs reported."
    assert ticks.tick() == "0 failed runs reported."
    assert len(commanded) == 8


def test_a_channel_without_its_time_left_is_for_the_next_tick(
    ticks: Ticks, webhook: Webhook, commanded: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(ticks.instance)
    with monkeypatch.context() as short:
        short.setattr(alerts, "_TICK_S", alert_channels.COMMAND_WITHIN_S - 1)
        ticks.tick()
    assert (len(webhook.got), len(commanded)) == (1, 0)
    ticks.tick()
    assert (len(webhook.got), len(commanded)) == (1, 1)


def run_lost_sentinel(study: Study, store: Store, instance: dg.DagsterInstance) -> str:
    """A run of the sentinel's job, as the daemon's, in which answers were lost."""
    definitions = dg.Definitions(
        jobs=[automation.sentinel_job(study)],
        resources=run_resources(store.root),
    )
    job = definitions.resolve_job_def("sentinel_tiny")
    done = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not done.success
    launched(instance, done.run_id)
    return done.run_id


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentinel finds that a model has declined."""
    shrink = Shrink(True, 1e-5, 1e-3, 100, 200, 20, 15, 14, 1, 60, 0.9, 0.6)
    found = Regression("then", "sentinel-now", {"m": shrink})
    monkeypatch.setattr(automation, "run_sentinel", lambda *_, **__: found)


@pytest.mark.usefixtures("lost")
def test_a_sentinels_alert_that_no_channel_took_is_sent_later(
    ticks: Ticks, webhook: Webhook
) -> None:
    webhook.status = 503
    run_id = run_lost_sentinel(ticks.study, ticks.store, ticks.instance)
    assert [got["event"] for got in webhook.got] == ["no_shrink_failed"]
    webhook.status = 200
    assert ticks.tick() == "1 failed run reported."
    assert ticks.tick() == "0 failed runs reported."
    _, later = webhook.got
    assert (later["event"], later["run_id"]) == ("run_failed", run_id)
    assert "m has declined in sentinel-now against then" in str(later["text"])


@pytest.mark.usefixtures("lost")
def test_a_sentinels_alert_goes_later_to_the_channel_that_failed_alone(
    ticks: Ticks, webhook: Webhook, commanded: list[bytes]
) -> None:
    webhook.status = 503
    run_lost_sentinel(ticks.study, ticks.store, ticks.instance)
    # The same sentinel again: the command has its alert from the run before.
    run_lost_sentinel(ticks.study, ticks.store, ticks.instance)
    webhook.status = 200
    assert ticks.tick() == "2 failed runs reported."
    assert ticks.tick() == "0 failed runs reported."
    assert [got["event"] for got in webhook.got[2:]] == ["run_failed"] * 2
    assert len(commanded) == 1


@pytest.mark.usefixtures("lost")
def test_a_sentinels_alert_that_all_took_is_not_sent_again(
    ticks: Ticks, webhook: Webhook, commanded: list[bytes]
) -> None:
    run_lost_sentinel(ticks.study, ticks.store, ticks.instance)
    assert ticks.tick() == "0 failed runs reported."
    assert (len(webhook.got), len(commanded)) == (1, 1)
