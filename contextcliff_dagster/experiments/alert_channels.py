"""Alert channels: webhooks, a command and a project's own hear of declines and failed runs.

Webhook addresses are secrets (many carry a token in the path): messages and logs name only the
host.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.experiments.common.experiment import Alarm
from contextcliff_dagster.store import Store, slug, write_json
from contextcliff_dagster.studies import Study

WEBHOOK, COMMAND = "CONTEXTCLIFF_ALERT_WEBHOOK", "CONTEXTCLIFF_ALERT_COMMAND"
WEBHOOK_WITHIN_S, COMMAND_WITHIN_S = 10.0, 25.0
"""Time limits per channel. A study's maximum, two webhooks and a command, fits into one tick."""


Senders = Mapping[str, Callable[[bytes], None]]
"""Channels of a project's own: name -> what sends an alert, as JSON; an error means not sent."""


@dataclass(frozen=True)
class Channel:
    """A way to send an alert, and its time limit."""

    send: Callable[[bytes], None]
    within_s: float


@dataclass(frozen=True)
class Delivery:
    """Names of the channels that just took an alert, that have it, and that still lack it."""

    taken: list[str]
    told: list[str]
    owed: list[str]


def alert(
    study: Study | None,
    store: Store,
    alarm: Alarm | None,
    on_failure: Callable[[str], None],
    own: Senders | None = None,
) -> list[str]:
    """Send ``alarm`` to every configured channel; return the channels that took it.

    A webhook gets the alert as JSON by POST (chat services show its ``text``, which is a sentence);
    a command gets it on stdin. Each channel gets an alert once. A failing channel is reported to
    ``on_failure`` and tried again the next time the same alert is sent; it does not fail the run.
    ``study`` is None for an alert without a study.
    """
    return deliver(study, store, alarm, on_failure, own).taken if alarm is not None else []


def deliver(
    study: Study | None,
    store: Store,
    alarm: Alarm,
    on_failure: Callable[[str], None],
    own: Senders | None = None,
    *,
    failing: set[str] | None = None,
    told: Collection[str] = (),
    until: float | None = None,
) -> Delivery:
    """Send ``alarm`` as `alert` does; return which channels have it and which do not.

    ``failing``: names of channels to skip; channels that fail are added. ``told``: channels that
    have been notified by another alert. ``until``: a `time.monotonic` time; channels that may take
    longer are skipped.
    """
    failing = set() if failing is None else failing
    of = f"study {study.name}" if study else "no study"
    message = {"event": alarm.event, "study": study.name if study else None, **alarm.details}
    message["text"] = f"contextcliff, {of}: {alarm.sentence}"
    notes = store.study_dir(study.name) / "alerts" if study else store.root / "_alerts"
    note = notes / f"{slug(f'{alarm.event}-{alarm.campaign}')}.json"
    notified: set[str] = set()
    with suppress(OSError, ValueError, KeyError, TypeError):  # none yet, or a damaged one
        kept = json.loads(note.read_bytes())
        if kept["shrunk"] == list(alarm.subjects):
            notified = set(kept["told"])
    taken, have, owed = [], [], []
    for name, channel in alert_channels(study, own).items():
        if name in notified or name in told:
            have.append(name)
            continue
        late = until is not None and time.monotonic() + channel.within_s > until
        if name in failing or late:
            owed.append(name)
            continue
        try:
            channel.send(json.dumps(message).encode())
            taken.append(name)
        except Exception as error:
            failing.add(name)
            owed.append(name)
            on_failure(f"The alert could not be delivered to {name}: {_why(error)}.")
    if taken:
        with suppress(ContextCliffError):  # twice is better than not at all
            write_json(note, {"shrunk": list(alarm.subjects), "told": sorted({*notified, *taken})})
    return Delivery(taken, [*have, *taken], owed)


def alert_channels(study: Study | None, own: Senders | None = None) -> dict[str, Channel]:
    """Return the alert channels by name; names contain no secrets."""
    channels = {
        name: Channel(partial(_in_time, send), WEBHOOK_WITHIN_S)
        for name, send in (own or {}).items()
    }
    for variable in (WEBHOOK, study.alerts.webhook_env if study else None):
        if variable and (url := os.environ.get(variable)):
            host = None
            with suppress(ValueError):
                host = urlsplit(url).hostname
            name = f"the webhook of {variable} ({host or 'no host'})"
            channels[name] = Channel(partial(_post, url), WEBHOOK_WITHIN_S)
        elif variable and variable != WEBHOOK:
            why = f"the environment variable {variable} is not set"
            channels[f"the webhook of {variable}"] = Channel(partial(_refuse, why), 0.0)
    # Not from the study, because another person's study could then run any command here.
    if written := os.environ.get(COMMAND, "").strip():
        try:
            command = shlex.split(written)
            name = f"the command {command[0]}"
            channels[name] = Channel(partial(_run, command), COMMAND_WITHIN_S)
        except ValueError as error:
            # Not quoted: it may hold a secret.
            why = f"it cannot be split into words ({str(error).lower()}); correct its quotes"
            channels[f"the command of {COMMAND}"] = Channel(partial(_refuse, why), 0.0)
    return channels


class _Unsendable(Exception):
    """Why an alert cannot be sent, in words of ours, which hold no secret."""


def _post(url: str, body: bytes) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise _Unsendable("its address does not begin with http:// or https://")

    def post(body: bytes) -> None:
        request = Request(url, data=body, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=WEBHOOK_WITHIN_S) as answer:
            answer.read(1)

    _in_time(post, body)


def _in_time(send: Callable[[bytes], None], body: bytes) -> None:
    """Send in a thread, because a socket's timeout applies to each address and each read
    separately, and not to the name look-up."""
    ended: list[Exception | None] = []

    def sending() -> None:
        try:
            send(body)
            ended.append(None)
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=sending, name="alert", daemon=True)
    thread.start()
    thread.join(WEBHOOK_WITHIN_S)
    if not ended:
        raise TimeoutError
    if ended[0] is not None:
        raise ended[0]


def _run(command: list[str], body: bytes) -> None:
    done = subprocess.run(
        command, input=body, capture_output=True, timeout=COMMAND_WITHIN_S, check=False
    )
    if done.returncode:
        raise _Unsendable(f"it ended with exit code {done.returncode}")


def _refuse(why: str, _: bytes) -> None:
    raise _Unsendable(why)


def _why(error: Exception) -> str:
    """Return the reason for an error without quoted addresses or arguments, which may be secret."""
    code = getattr(error, "code", None)
    if isinstance(code, int):
        return f"HTTP status {code}"
    if isinstance(error, _Unsendable):
        return str(error)
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return type(reason if isinstance(reason, BaseException) else error).__name__
