"""The sensor that alerts of failed runs: each once, with the sentence of its error first."""

# No `from __future__ import annotations` here: Dagster reads resources off the annotations of a
# sensor and does not resolve strings.

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import dagster as dg

from contextcliff_dagster.defs.alerts.channels import alert_channels, deliver
from contextcliff_dagster.defs.asset_specs import group, key_prefix
from contextcliff_dagster.defs.home import COMMAND_LINE
from contextcliff_dagster.defs.partitions import is_retried
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.experiment import Alarm
from contextcliff_dagster.redaction import redact, secrets_of
from contextcliff_dagster.studies import Study

ALERTED_TAG = "contextcliff/alerted"
"""On a run that has sent an alert of its own about what it fails for: the channels that have it, as
JSON. The sensor alerts the others."""

_EVERY_S = 30
_TICK_S = 50.0
"""When the last channel of a tick must have ended: Dagster ends the tick after 60 s."""
_FIRST_LOOK = timedelta(hours=1)
_SEND_FOR = timedelta(days=1)
"""The time for which a failing channel is tried again."""
_OVERLAP = timedelta(minutes=2)
"""Runs are not recorded in the order of their time stamps."""
_LONGEST_SENTENCE = 1_000


def failed_runs_sensor(studies: Sequence[Study], *, alone: bool = False) -> dg.SensorDefinition:
    """`alert_failed_runs`: a failed run of these studies goes to their alert channels.

    ``alone``: its name is that of the one study, whose runs it is for; else also runs of none.

    It is not a run failure sensor of Dagster's, which moves on where an alert could not be sent.
    A run that Dagster will try again, and one of a process that gets the error itself (the command
    line, Python), is left out.
    """
    by_name = {study.name: study for study in studies}

    @dg.sensor(
        name=f"alert_failed_runs_{group(studies[0])}" if alone else "alert_failed_runs",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Sends each failed run, once, to the alert channels (CONTEXTCLIFF_ALERT_WEBHOOK, "
            "CONTEXTCLIFF_ALERT_COMMAND, and `alerts` of its study)."
        ),
    )
    def alert_failed_runs(
        context: dg.SensorEvaluationContext, store: StoreResource
    ) -> dg.SkipReason:
        until, now = time.monotonic() + _TICK_S, datetime.now(UTC)
        # Only runs from here on: a channel that is set up later is not flooded.
        since, late = _read(context.cursor) if context.cursor else (now - _FIRST_LOOK, set())
        if not any(alert_channels(study) for study in (None, *studies)):
            context.update_cursor(now.isoformat())
            return dg.SkipReason("No alert channel is configured.")
        failed = []
        for record in _failed_since(context.instance, since):
            name = _study_of(record.dagster_run, by_name)
            elsewhere = is_elsewhere(context, record.dagster_run)
            if not (elsewhere or ((alone or name) and name not in by_name)):
                failed.append((record, by_name[name] if name else None))
        tick = _Tick(context, store, failed, until)
        # Channels that failed in the tick before come last: together they may take all of its time.
        owing = tick.send(late)
        if late:
            owing = tick.send(set())
        late = tick.failing | (late & tick.owed - tick.taken)
        context.update_cursor(_written(min([now, *owing]), late))
        sent = len(tick.sent)
        return dg.SkipReason(f"{sent} failed {'run' if sent == 1 else 'runs'} reported.")

    return alert_failed_runs


@dataclass
class _Tick:
    """One look at the failed runs, oldest first. A channel that fails is tried once in it."""

    context: dg.SensorEvaluationContext
    store: StoreResource
    failed: Sequence[tuple[dg.RunRecord, Study | None]]
    until: float
    failing: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    owed: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)

    def send(self, left_out: set[str]) -> list[datetime]:
        """Alert of all runs on all channels but those ``left_out``.

        Return when the runs failed of which a channel is still to be told.
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
                told=_told(run) or (),
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
    """From when on runs are looked at, and the channels that failed in the tick before."""
    since, _, names = cursor.partition(" ")
    return datetime.fromisoformat(since), set(json.loads(names)) if names else set()


def _written(since: datetime, failing: set[str]) -> str:
    return f"{since.isoformat()} {json.dumps(sorted(failing))}" if failing else since.isoformat()


def _told(run: dg.DagsterRun) -> list[str] | None:
    """The channels that the run itself has told why it fails; None where that is all of them."""
    if (value := run.tags.get(ALERTED_TAG)) is None:
        return []
    try:
        return list(json.loads(value))
    except (ValueError, TypeError):  # of a version that did not name them
        return None


def _failed_since(instance: dg.DagsterInstance, since: datetime) -> Iterator[dg.RunRecord]:
    """Runs that have failed for good and that nobody else reports, oldest first."""
    of = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=since - _OVERLAP)
    for record in instance.get_run_records(of, order_by="update_timestamp", ascending=True):
        run = record.dagster_run
        cause = run.tags.get("contextcliff/cause")
        in_process = run.remote_job_origin is None or cause == COMMAND_LINE
        if not (is_retried(instance, run) or in_process or _told(run) is None):
            yield record


def is_elsewhere(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Whether the run belongs to another code location, which sends its own alerts."""
    here, there = context.code_location_origin, run.remote_job_origin
    if here is None or there is None:
        return False
    return there.repository_origin.code_location_origin.location_name != here.location_name


def _study_of(run: dg.DagsterRun, known: Collection[str]) -> str | None:
    """The study of the run's tag or of the assets it was to make: the first that is ``known``.

    A name that is not known, where only such assets were to be made; None where they are of none.
    """
    if name := run.tags.get("contextcliff/study"):
        return name
    prefix = key_prefix()
    # Sorted: the selection is a set, whose order differs from process to process.
    paths = sorted(list(key.path) for key in run.asset_selection or ())
    relative = [path[len(prefix) :] if path[: len(prefix)] == prefix else path for path in paths]
    names = [path[-2] for path in relative if len(path) > 1]
    return next((name for name in names if name in known), names[0] if names else None)


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
    """Return the sentence of the error that a failed run ended with, without secrets, and the step
    it ended in; None where it was not a step."""
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
    """The message of the first cause, without the name of its class."""
    while (cause := getattr(error, "cause", None)) is not None:
        error = cause
    message, name = str(getattr(error, "message", "")).strip(), getattr(error, "cls_name", None)
    head, colon, rest = message.partition(": ")
    return rest if colon and name and head.rpartition(".")[2] == name else message


def _shown(text: str) -> str:
    sentence = redact(text, secrets_of(os.environ), limit=_LONGEST_SENTENCE)
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
