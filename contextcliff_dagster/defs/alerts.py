"""The sensor that reports failed runs to the alert channels."""

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

from contextcliff_dagster.defs.asset_specs import DATABASE, key_prefix
from contextcliff_dagster.defs.home import COMMAND_LINE
from contextcliff_dagster.defs.partitions import is_retried
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.alert_channels import Senders, alert_channels, deliver
from contextcliff_dagster.experiments.common.experiment import Alarm
from contextcliff_dagster.redaction import redact, secrets_of
from contextcliff_dagster.studies import Study

ALERTED_TAG = "contextcliff/alerted"
"""Tag of a run that has itself sent an alert about its failure. Its value is a JSON list of the
channels that have the alert; the sensor alerts the others."""

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
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Reports each failed run once to the alert channels (CONTEXTCLIFF_ALERT_WEBHOOK, "
            "CONTEXTCLIFF_ALERT_COMMAND, and `alerts` of its study)."
        ),
    )
    def alert_failed_runs(
        context: dg.SensorEvaluationContext,
        contextcliff_store: StoreResource,
        contextcliff_alerts: dg.ResourceParam[Senders],
    ) -> dg.SkipReason:
        until, now = time.monotonic() + _TICK_S, datetime.now(UTC)
        # Only runs from here on: a channel that is set up later is not flooded.
        since, late = _read(context.cursor) if context.cursor else (now - _FIRST_LOOK, set())
        if not any(alert_channels(study, contextcliff_alerts) for study in (None, *studies)):
            context.update_cursor(now.isoformat())
            return dg.SkipReason("No alert channel is configured.")
        failed = []
        for record in _failed_since(context.instance, since):
            name = study_of(record.dagster_run, by_name)
            if name is not None and not is_elsewhere(context, record.dagster_run):
                failed.append((record, by_name.get(name)))
        tick = _Tick(context, contextcliff_store, contextcliff_alerts, failed, until)
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
    own: Senders
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
                self.own,
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
