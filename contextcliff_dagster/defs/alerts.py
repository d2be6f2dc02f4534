"""Alert channels, and the sensor that reports failed runs.

An alert about a declined model or a failed run goes to a webhook, a command, or both. Webhook
addresses are secrets (many carry a token in the path): messages and logs name only the host.
"""

import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.asset_specs import DATABASE, key_prefix
from contextcliff_dagster.defs.home import COMMAND_LINE
from contextcliff_dagster.defs.partitions import is_retried
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.experiment import Alarm
from contextcliff_dagster.redaction import redact, secrets_of
from contextcliff_dagster.store import Store, slug, write_json
from contextcliff_dagster.studies import Study

WEBHOOK, COMMAND = "CONTEXTCLIFF_ALERT_WEBHOOK", "CONTEXTCLIFF_ALERT_COMMAND"
WEBHOOK_WITHIN_S, COMMAND_WITHIN_S = 10.0, 25.0
"""Time limits per channel. A study's maximum, two webhooks and a command, fits into one tick."""


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
    study: Study | None, store: Store, alarm: Alarm | None, on_failure: Callable[[str], None]
) -> list[str]:
    """Send ``alarm`` to every configured channel; return the channels that took it.

    A webhook gets the alert as JSON by POST (chat services show its ``text``, which is a sentence);
    a command gets it on stdin. Each channel gets an alert once. A failing channel is reported to
    ``on_failure`` and tried again the next time the same alert is sent; it does not fail the run.
    ``study`` is None for an alert without a study.
    """
    return deliver(study, store, alarm, on_failure).taken if alarm is not None else []


def deliver(
    study: Study | None,
    store: Store,
    alarm: Alarm,
    on_failure: Callable[[str], None],
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
    for name, channel in alert_channels(study).items():
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


def alert_channels(study: Study | None) -> dict[str, Channel]:
    """Return the alert channels by name; names contain no secrets."""
    channels: dict[str, Channel] = {}
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


def _post(url: str, body: bytes) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("its address does not begin with http:// or https://")
    request = Request(url, data=body, headers={"Content-Type": "application/json"})
    ended: list[Exception | None] = []

    def post() -> None:
        try:
            with urlopen(request, timeout=WEBHOOK_WITHIN_S) as answer:
                answer.read(1)
            ended.append(None)
        except Exception as error:
            ended.append(error)

    # In a thread, because a socket's timeout applies to each address and each read separately, and
    # not to the name look-up.
    thread = threading.Thread(target=post, name="alert", daemon=True)
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
        raise ValueError(f"it ended with exit code {done.returncode}")


def _refuse(why: str, _: bytes) -> None:
    raise ValueError(why)


def _why(error: Exception) -> str:
    """Return the reason for an error without quoted addresses or arguments, which may be secret."""
    code = getattr(error, "code", None)
    if isinstance(code, int):
        return f"HTTP status {code}"
    if isinstance(error, ValueError) and type(error) is ValueError:
        return str(error)
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return type(reason if isinstance(reason, BaseException) else error).__name__


# No `from __future__ import annotations` here: Dagster reads resources off the annotations of a
# sensor and does not resolve strings.


ALERTED_TAG = "contextcliff/alerted"
"""Tag of a run that has itself sent an alert about its failure. Its value is a JSON list of the
channels that have the alert; the sensor alerts the others."""

_EVERY_S = 30
_TICK_S = 50.0
"""Time limit for all channels in one tick, because Dagster ends a tick after 60 s."""
_FIRST_LOOK = timedelta(hours=1)
_SEND_FOR = timedelta(days=1)
"""How long a failing channel is retried."""
_OVERLAP = timedelta(minutes=2)
"""Overlap of consecutive look-backs, needed because runs are not recorded in time stamp order."""
_LONGEST_SENTENCE = 1_000


def failed_runs_sensor(studies: Sequence[Study]) -> dg.SensorDefinition:
    """Return `alert_failed_runs`, which reports failed runs of the studies and of ``database`` to
    their alert channels.

    A Dagster run failure sensor would not do, because it moves on if an alert could not be sent.
    Left out are runs that Dagster will retry, and runs in processes that get the error themselves
    (the command line, Python).
    """
    by_name = {study.name: study for study in studies}

    @dg.sensor(
        name="alert_failed_runs",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Reports each failed run once to the alert channels (CONTEXTCLIFF_ALERT_WEBHOOK, "
            "CONTEXTCLIFF_ALERT_COMMAND, and `alerts` of its study)."
        ),
    )
    def alert_failed_runs(
        context: dg.SensorEvaluationContext, contextcliff_store: StoreResource
    ) -> dg.SkipReason:
        until, now = time.monotonic() + _TICK_S, datetime.now(UTC)
        # Only runs from here on: a channel that is set up later is not flooded.
        since, late = _read(context.cursor) if context.cursor else (now - _FIRST_LOOK, set())
        if not any(alert_channels(study) for study in (None, *studies)):
            context.update_cursor(now.isoformat())
            return dg.SkipReason("No alert channel is configured.")
        failed = []
        for record in _failed_since(context.instance, since):
            name = study_of(record.dagster_run, by_name)
            if name is not None and not is_elsewhere(context, record.dagster_run):
                failed.append((record, by_name.get(name)))
        tick = _Tick(context, contextcliff_store, failed, until)
        # Channels that failed in the tick before come last: together they may take all of its time.
        owing = tick.send(late)
        if late:
            owing = tick.send(set())
        late = tick.failing | (late & tick.owed - tick.taken)
        since = min([now, *owing])
        context.update_cursor(f"{since.isoformat()} {json.dumps(sorted(late))}")
        sent = len(tick.sent)
        return dg.SkipReason(f"{sent} failed {'run' if sent == 1 else 'runs'} reported.")

    return alert_failed_runs


@dataclass
class _Tick:
    """A tick that alerts about failed runs, oldest first, and tries a failing channel only once."""

    context: dg.SensorEvaluationContext
    store: StoreResource
    failed: Sequence[tuple[dg.RunRecord, Study | None]]
    until: float
    failing: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    owed: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)

    def send(self, left_out: set[str]) -> list[datetime]:
        """Send alerts about all runs to all channels except ``left_out``.

        Return the failure times of the runs about which some channel has yet to be notified.
        """
        owing = []
        for record, study in self.failed:
            run, failed_at = record.dagster_run, record.update_timestamp
            if time.monotonic() > self.until:
                owing.append(failed_at)  # later runs wait for the next tick, too
                break
            untried = left_out | self.failing
            delivery = deliver(
                study,
                self.store.open(),
                _alarm(self.context.instance, run),
                self.context.log.warning,
                failing=untried,
                told=json.loads(run.tags.get(ALERTED_TAG, "[]")),
                until=self.until,
            )
            self.failing |= untried - left_out
            self.taken.update(delivery.taken)
            self.owed.update(delivery.owed)
            if delivery.taken:
                self.sent.add(run.run_id)
            had_no_turn = set(delivery.owed) - self.failing
            if had_no_turn or (delivery.owed and datetime.now(UTC) - failed_at < _SEND_FOR):
                owing.append(failed_at)
        return owing


def _read(cursor: str) -> tuple[datetime, set[str]]:
    """Return the start of the look-back and the channels that failed on the last tick."""
    since, _, names = cursor.partition(" ")
    return datetime.fromisoformat(since), set(json.loads(names)) if names else set()


def _failed_since(instance: dg.DagsterInstance, since: datetime) -> Iterator[dg.RunRecord]:
    """Yield runs that failed with no retries left and are not reported elsewhere, oldest first."""
    of = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=since - _OVERLAP)
    for record in instance.get_run_records(of, order_by="update_timestamp", ascending=True):
        run = record.dagster_run
        cause = run.tags.get("contextcliff/cause")
        in_process = run.remote_job_origin is None or cause == COMMAND_LINE
        if not (is_retried(instance, run) or in_process):
            yield record


def is_elsewhere(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Return whether the run belongs to another code location, which sends its own alerts."""
    here, there = context.code_location_origin, run.remote_job_origin
    if here is None or there is None:
        return False
    return there.repository_origin.code_location_origin.location_name != here.location_name


def study_of(run: dg.DagsterRun, known: Collection[str]) -> str | None:
    """Return the ``known`` study of the run's tag, or else the first one among its assets.

    Return "" for a run of ``database`` alone, and None for a run of something else.
    """
    if name := run.tags.get("contextcliff/study"):
        return name if name in known else None
    prefix = key_prefix()
    # Sorted: the selection is a set, whose order differs from process to process.
    paths = sorted(list(key.path) for key in run.asset_selection or ())
    relative = [path[len(prefix) :] if path[: len(prefix)] == prefix else path for path in paths]
    names = (path[-2] for path in relative if len(path) > 1)
    of_all = "" if relative and all(path[-1] == DATABASE for path in relative) else None
    return next((name for name in names if name in known), of_all)


def _alarm(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Alarm:
    sentence, step = failure_of(instance, run.run_id)
    tags = {name: run.tags.get(f"contextcliff/{name}") for name in ("campaign", "cause", "models")}
    about = ", ".join(
        [
            *([f"step {step}"] if step else []),
            *(f"{name} {value}" for name, value in tags.items() if value),
        ]
    )
    job = "of assets" if run.job_name.startswith("__") else f"of {run.job_name}"
    where = f"Run {run.run_id[:8]} {job} failed{f' ({about})' if about else ''}."
    details: Mapping[str, str | None] = {
        "run_id": run.run_id,
        "job": run.job_name,
        "step": step,
        "sentence": sentence,
        **tags,
    }
    return Alarm("run_failed", run.run_id, [run.job_name], f"{sentence} {where}", details)


def failure_of(instance: dg.DagsterInstance, run_id: str) -> tuple[str, str | None]:
    """Return a failed run's error as a sentence without secrets, and the failed step, which is None
    if no step failed."""
    steps = instance.all_logs(run_id, of_type={dg.DagsterEventType.STEP_FAILURE})
    for entry in steps:
        event = entry.get_dagster_event()
        data = event.step_failure_data
        text = data.user_failure_data.description if data.user_failure_data else None
        if not text and data.error is not None:
            text = _innermost(data.error)
        return _shown(text or event.message or ""), event.step_key
    types = {dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.ENGINE_EVENT}
    text = ""
    for entry in instance.all_logs(run_id, of_type=types):
        event = entry.get_dagster_event()
        if event.event_type is dg.DagsterEventType.ENGINE_EVENT:
            text = event.message or text  # the last one says how its process ended
            continue
        with suppress(Exception):  # has no error where the run was marked from outside
            if (error := event.job_failure_data.error) is not None:
                return _shown(_innermost(error)), None
        break
    return _shown(text or "The run failed without a message."), None


def _innermost(error: object) -> str:
    """Return the message of the root cause, without its class name."""
    while (cause := getattr(error, "cause", None)) is not None:
        error = cause
    message, name = str(getattr(error, "message", "")).strip(), getattr(error, "cls_name", None)
    head, colon, text = message.partition(": ")
    return text if colon and name and head.rpartition(".")[2] == name else message


def _shown(text: str) -> str:
    sentence = redact(text, secrets_of(os.environ), limit=_LONGEST_SENTENCE)
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
