"""A channel that hangs costs an alert its timeout and no more."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from contextcliff_dagster.experiments import alert_channels as alerts
from contextcliff_dagster.experiments.alert_channels import COMMAND, WEBHOOK, alert, deliver
from contextcliff_dagster.experiments.common.outcomes import Alarm
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.servers.webhook import Webhook, webhook

__all__ = ["webhook"]

ALARM = Alarm("run_failed", "a-run", ["profile_tiny"], "It failed.")


@pytest.fixture
def trickling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A webhook whose answer comes byte by byte: no read of it takes long, all of it does."""
    stop = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        there, _ = listening.accept()
        with there:
            there.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not stop.wait(0.05):
                there.sendall(b"x")

    thread = threading.Thread(target=answer)
    thread.start()
    monkeypatch.setenv(WEBHOOK, f"http://127.0.0.1:{listening.getsockname()[1]}/")
    monkeypatch.setattr(alerts, "WEBHOOK_WITHIN_S", 0.5)
    yield
    stop.set()
    thread.join()
    listening.close()


@pytest.mark.usefixtures("trickling")
def test_an_answer_that_never_ends_is_a_timeout(study: Study, store: Store) -> None:
    said: list[str] = []
    assert alert(study, store, ALARM, said.append) == []
    (sentence,) = said
    assert sentence.startswith("The alert could not be delivered to the webhook of ")
    assert sentence.endswith(": TimeoutError.")


@pytest.mark.parametrize(
    ("error", "why"),
    [(ValueError("unknown url type: 'host/T0KEN'"), "ValueError"), (KeyError("T0KEN"), "KeyError")],
)
def test_a_function_that_fails_is_named_without_its_words(
    study: Study, store: Store, error: Exception, why: str
) -> None:
    def send(alert: bytes) -> None:
        raise error

    said: list[str] = []
    assert alert(study, store, ALARM, said.append, {"our team": send}) == []
    assert said == [f"The alert could not be delivered to our team: {why}."]


def test_a_function_that_hangs_is_given_up(
    study: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "WEBHOOK_WITHIN_S", 0.05)
    forever = threading.Event()
    said: list[str] = []
    assert alert(study, store, ALARM, said.append, {"our team": lambda _: forever.wait()}) == []
    assert said == ["The alert could not be delivered to our team: TimeoutError."]
    forever.set()


def test_a_delivery_says_which_channels_have_the_alert(
    study: Study, store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMAND, "true")
    web, command = alerts.alert_channels(study)
    webhook.status = 503
    failing: set[str] = set()
    said: list[str] = []
    first = deliver(study, store, ALARM, said.append, failing=failing)
    assert (first.taken, first.told, first.owed, failing) == ([command], [command], [web], {web})
    again = deliver(study, store, ALARM, said.append, failing=failing)
    assert (again.taken, again.told, again.owed) == ([], [command], [web])
    assert len(said) == len(webhook.got) == 1  # not tried again
    later = deliver(study, store, ALARM, said.append, told=[web])
    assert (later.taken, sorted(later.told), later.owed) == ([], sorted([web, command]), [])
    assert len(webhook.got) == 1
