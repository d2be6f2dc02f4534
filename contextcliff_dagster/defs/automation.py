"""Automation: schedules, sensors, the sentinel, and the sensor that ends lost runs.

Dagster's default run launcher learns that a run's process has died only from its code server.
If both die (with a container or machine), the run would count as started for ever: it would keep
its place in the queue, and nobody would be alerted. Runs of other launchers (Docker, Kubernetes)
are left to Dagster's run monitoring.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise, takewhile
from typing import Any, cast

import dagster as dg

from contextcliff_dagster.defs.alerts import ALERTED_TAG, is_elsewhere, study_of
from contextcliff_dagster.defs.asset_specs import (
    RETRY_FAILED,
    asset_key,
    group,
    measure_job_name,
    refusing,
    run_tags,
)
from contextcliff_dagster.defs.campaign_runs import Asked, Measurement, open_batches
from contextcliff_dagster.defs.dagster_internals import (
    GRPC_INFO_TAG,
    NOT_FINISHED_STATUSES,
    cron_string_iterator,
)
from contextcliff_dagster.defs.executors.gpu import device_tags
from contextcliff_dagster.defs.home import missing_settings
from contextcliff_dagster.defs.partitions import add_campaign, complete_run_tags
from contextcliff_dagster.defs.places import pool_of, slot_taken
from contextcliff_dagster.defs.resources import StoreResource, Watch
from contextcliff_dagster.defs.ui.calls import StepProgress
from contextcliff_dagster.experiments.alert_channels import Senders, deliver
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.study_run import (
    begin_campaign,
    campaign_of,
    open_ledger,
)
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE, shrink_alarm
from contextcliff_dagster.experiments.length_profile.sentinel import run_sentinel
from contextcliff_dagster.experiments.lookup import partitioned
from contextcliff_dagster.inference.devices.discovery import process_runs
from contextcliff_dagster.inference.execution.run_control import RunControl, deadline_after
from contextcliff_dagster.inference.ledger.campaigns import SENTINEL
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study

# No `from __future__ import annotations` here: Dagster reads configs and resources off the
# annotations of ops, schedules and sensors, and does not resolve strings.

_SPAN, _DAYS = timedelta(days=366), 60
"""Span of the search for gaps: a year covers seasonal pauses; 60 days with ticks, uneven months."""


def campaign_at(tick: datetime) -> str:
    """Return the campaign name of a tick, such as ``2026-11-23T0300`` (UTC); it has only one."""
    return tick.astimezone(UTC).strftime("%Y-%m-%dT%H%M")


def study_schedules(
    study: Study, jobs: Sequence["dg.UnresolvedAssetJobDefinition"]
) -> list[dg.ScheduleDefinition]:
    """Return the study's schedules, if any: one per job that measures a whole experiment.

    They are off until switched on in Dagster, as they cost money. Runs of a tick share a campaign.
    """
    plan = study.schedule
    if plan is None:
        return []
    by_name = {job.name: job for job in jobs}

    def schedule(experiment: Experiment) -> dg.ScheduleDefinition:
        job = by_name[measure_job_name(study, experiment)]

        @dg.schedule(
            name=job.name,
            job=job,
            cron_schedule=plan.cron,
            execution_timezone=plan.timezone,
            description=f"Measures `{study.name}` in a new campaign: {plan.cron} {plan.timezone}.",
        )
        def measure(
            context: dg.ScheduleEvaluationContext, contextcliff_store: StoreResource
        ) -> list[dg.RunRequest] | dg.SkipReason:
            # Begun by the first call: runs that fail before leave no empty campaign.
            campaign = campaign_at(context.scheduled_execution_time)
            store = contextcliff_store.open()
            waiting = {batch.campaign for batch in open_batches(store, study.name)}
            if others := ", ".join(sorted(waiting - {campaign})):
                return dg.SkipReason(f"Batches of campaign {others} are still open.")
            add_campaign(context.instance, study, campaign)
            measurement = Measurement(study, experiment, campaign, "schedule")
            return measurement.everything(store, campaign)

        return measure

    return [schedule(experiment) for experiment in partitioned(study)]


def report_freshness(study: Study) -> dg.FreshnessPolicy | None:
    """Return a policy that makes the report stale once a tick is overdue by more than the grace."""
    plan = study.schedule
    if plan is None:
        return None
    longest = longest_gap(plan.cron)
    return dg.FreshnessPolicy.time_window(fail_window=longest + timedelta(hours=plan.grace_hours))


def longest_gap(cron: str) -> timedelta:
    """Return the longest wall-clock time between two ticks of a cron line.

    All days with ticks have the same ticks. So one day is read tick by tick, and only the first
    tick of each later day, because reading a year of minutely ticks would take seconds.
    """
    ticks = cron_string_iterator(datetime(2026, 1, 1, tzinfo=UTC).timestamp(), cron, "UTC")
    first = next(ticks)
    of_a_day = [first, *takewhile(lambda tick: tick.date() == first.date(), ticks)]
    longest = max((b - a for a, b in pairwise(of_a_day)), default=timedelta(0))
    opened = of_a_day[-1] - first
    firsts = f"{first.minute} {first.hour} {' '.join(cron.split()[2:])}"
    days = cron_string_iterator(first.timestamp(), firsts, "UTC")
    for number, (day, following) in enumerate(pairwise(days), start=1):
        longest = max(longest, following - day - opened)
        if number >= _DAYS and following - first >= _SPAN:
            break
    return longest


class SentinelConfig(dg.Config):
    """Config of a sentinel; empty fields take the study's values."""

    examples: int | None = None
    """Number of examples from the bin that holds the cap."""
    campaign: str | None = None
    """An unfinished sentinel (`sentinel-...`) to continue; if empty, a new one is begun."""
    budget_usd: float | None = None
    """Hard limit of this sentinel in USD; if empty, the study's."""
    deadline_s: float | None = None
    """Seconds after which no more calls are sent; if empty, the study's."""


class BeginConfig(dg.Config):
    """Config of `begin_campaign_<study>`."""

    name: str | None = None
    """Name of the campaign; if empty, today's date."""


def begin_job(study: Study) -> dg.JobDefinition:
    """Return `begin_campaign_<study>`: runs that follow measure the study again."""

    @dg.op(name=f"{group(study)}__begin_campaign")
    @refusing
    def begin(
        context: dg.OpExecutionContext, config: BeginConfig, contextcliff_store: StoreResource
    ) -> None:
        campaign = begin_campaign(contextcliff_store.open(), study.name, config.name)
        add_campaign(context.instance, study, campaign)
        complete_run_tags(context, study, campaign)
        context.log.info(f"Campaign {campaign} of study {study.name} has begun.")

    @dg.job(
        name=f"begin_campaign_{group(study)}",
        description=f"Begins a campaign: the next runs measure `{study.name}` again. No call.",
        tags={"contextcliff/study": study.name},
    )
    def job() -> None:
        begin()

    return job


def sentinel_job(study: Study) -> dg.JobDefinition:
    """Return `sentinel_<study>`, which measures examples at the cap and fails on a decline."""

    @dg.op(name=f"{group(study)}__sentinel", tags=device_tags(study), pool=pool_of(study))
    @refusing
    def sentinel(
        context: dg.OpExecutionContext,
        config: SentinelConfig,
        contextcliff_store: StoreResource,
        contextcliff_watch: dg.ResourceParam[Watch],
        contextcliff_alerts: dg.ResourceParam[Senders],
    ) -> None:
        where = contextcliff_store.open()
        on_progress = contextcliff_watch.on_progress
        progress = StepProgress(lambda text, _: context.log.info(text), on_progress)
        listeners = {model: progress.of(model) for model in study.models}
        outcome = run_sentinel(
            study,
            where,
            RunControl(
                Budget(usd=study.budget.usd if config.budget_usd is None else config.budget_usd),
                deadline_after(config.deadline_s),
                on_wait=context.log.info,
            ),
            per_bin=config.examples,
            campaign=config.campaign,
            on_progress=lambda model, progress: listeners[model](progress),
            at_place=partial(slot_taken, context),
        )
        complete_run_tags(context, study, outcome.campaign)
        alarm = shrink_alarm(outcome)
        if alarm is not None:
            delivery = deliver(study, where, alarm, context.log.warning, contextcliff_alerts)
            for channel in delivery.taken:
                context.log.info(f"Alert sent to {channel}.")
            if delivery.told:  # the others hear of it from `alert_failed_runs`, which tries again
                told = json.dumps(delivery.told)
                context.instance.add_run_tags(context.run_id, {ALERTED_TAG: told})
        shown: dict[str, Any] = {
            "sentinel": outcome.sentence,
            "campaign": outcome.campaign,
            "baseline": outcome.baseline,
            "shrunk": ", ".join(outcome.shrunk) or "none",
        }
        # Logged next to the watched caps: a run without an asset goes unseen.
        context.log_event(dg.AssetObservation(asset_key(study, "cliffs"), metadata=shown))
        if outcome.shrunk or outcome.unjudged:
            raise dg.Failure(outcome.sentence, metadata=shown, allow_retries=False)

    @dg.job(
        name=f"sentinel_{group(study)}",
        description=(
            f"A few examples at the caps of `{study.name}`, asked again and compared with the "
            "pinned baseline; fails where answers are lost, or too few came to judge."
        ),
        tags={"contextcliff/study": study.name, **RETRY_FAILED},
    )
    def job() -> None:
        sentinel()

    return job


def sentinel_schedules(study: Study, job: dg.JobDefinition) -> list[dg.ScheduleDefinition]:
    """Return the schedule of the study's sentinel, if any; off by default to save money."""
    plan = study.sentinel
    if plan is None:
        return []

    @dg.schedule(
        name=f"watch_{group(study)}",
        job=job,
        cron_schedule=plan.cron,
        execution_timezone=plan.timezone,
        description=f"A sentinel of `{study.name}`: {plan.cron} {plan.timezone}.",
    )
    def watch(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        # Begun by the run, not here: a retried run goes on with it and pays once.
        campaign = f"{SENTINEL}{campaign_at(context.scheduled_execution_time)}"
        return dg.RunRequest(
            run_key=campaign,
            run_config={"ops": {f"{group(study)}__sentinel": {"config": {"campaign": campaign}}}},
            tags=run_tags(study, campaign, "schedule"),
        )

    return [watch]


NEXT_ROUND = "next_round"
"""Metadata key of `cliffs`, whose value maps models to `sampling_rounds.Round` as JSON."""


def study_sensors(
    study: Study, jobs: Sequence["dg.UnresolvedAssetJobDefinition"]
) -> list[dg.SensorDefinition]:
    """Return the sensor of a study with a `targeted` section; off by default to save money."""
    plan = study.targeted
    if plan is None:
        return []
    name = measure_job_name(study, LENGTH_PROFILE)
    job = next(job for job in jobs if job.name == name)

    @dg.sensor(
        name=f"target_{group(study)}",
        job=job,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"A pilot of `{study.name}`, then rounds where a token is most informative.",
    )
    def target(context: dg.SensorEvaluationContext, contextcliff_store: StoreResource) -> Any:
        open_runs = dg.RunsFilter(job_name=job.name, statuses=list(NOT_FINISHED_STATUSES))
        if context.instance.get_runs(open_runs, limit=1):
            # Its result decides the next round.
            return dg.SkipReason("A round is being measured.")
        if open_batches(contextcliff_store.open(), study.name):
            return dg.SkipReason("A round waits for the answers of its batches.")
        with open_ledger(contextcliff_store.open()) as ledger:
            campaign = campaign_of(ledger, study)
        add_campaign(context.instance, study, campaign)
        of = dg.AssetRecordsFilter(asset_key(study, "cliffs"), asset_partitions=[campaign])
        records = context.instance.fetch_materializations(of, limit=1).records
        made = records[0].asset_materialization if records else None
        known = made.metadata if made else {}
        measurement = Measurement(study, LENGTH_PROFILE, campaign, "sensor")
        if NEXT_ROUND not in known:
            pilot = {"samples_per_bin": plan.pilot, "why": "Pilot."}
            return measurement.everything(contextcliff_store.open(), f"{campaign}/pilot", pilot)
        rounds = cast("Mapping[str, Mapping[str, Any]]", known[NEXT_ROUND].value)
        asked = []
        for model in study.models:
            if model in rounds and rounds[model]["samples"]:
                plan_of = rounds[model]
                config = {"samples": dict(plan_of["samples"]), "why": plan_of["why"]}
                tags = {"contextcliff/round": plan_of["why"]}
                part = Asked([model], sorted(plan_of["samples"]), config, tags)
                key = f"{campaign}/{slug(model)}/{plan_of['asked']}"
                asked.append(measurement.request(key, part))
        if asked:
            return asked
        return dg.SkipReason(" ".join(f"{m}: {of['why']}" for m, of in rounds.items()))

    return [target]


def lost_runs_sensor(studies: Sequence[Study]) -> dg.SensorDefinition:
    """Return `end_lost_runs`, which fails the studies' runs that have lost their process; Dagster
    retries them like any killed run.

    Its first tick warns of settings that the instance lacks. Code server and run processes share a
    machine. A process must be missing on two ticks, because the code server itself reports one that
    has just died. The cursor lists the runs without a process.
    """
    names = {study.name for study in studies}
    checked: list[dg.DagsterInstance] = []

    @dg.sensor(
        name="end_lost_runs",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Ends runs whose process died together with the code server.",
    )
    def end_lost_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        instance = context.instance
        if not checked:
            checked.append(instance)
            if lacking := missing_settings(instance):
                context.log.warning(lacking)
        if not isinstance(instance.run_launcher, dg.DefaultRunLauncher):
            return dg.SkipReason("Dagster's run monitoring watches the runs of this launcher.")
        before: list[str] = json.loads(context.cursor) if context.cursor else []
        missing, ended = [], 0
        begun = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
        for run in instance.get_runs(dg.RunsFilter(statuses=begun)):
            # Other launchers have their own processes, perhaps on another machine.
            if GRPC_INFO_TAG not in run.tags or is_elsewhere(context, run):
                continue
            if "contextcliff/study" not in run.tags and study_of(run, names) is None:
                continue
            pid, since = _process_of(instance, run.run_id)
            if pid is None or process_runs(pid, since):
                continue
            missing.append(run.run_id)
            now = instance.get_run_by_id(run.run_id)
            if run.run_id in before and now is not None and not now.is_finished:
                # Like a code server: the sentence, then the failure.
                why = f"The process of this run (pid {pid}) ended together with its code server."
                instance.report_engine_event(why, now)
                instance.report_run_failed(now)
                ended += 1
        context.update_cursor(json.dumps(missing))
        return dg.SkipReason(f"{ended} lost {'run' if ended == 1 else 'runs'} ended.")

    return end_lost_runs


def _process_of(instance: dg.DagsterInstance, run_id: str) -> tuple[int | None, float]:
    """Return the process id that the run's process reported, and the time (seconds since 1970)."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        event = entry.get_dagster_event()
        pid = event.engine_event_data.metadata.get("pid")
        if event.step_key is None and pid is not None:
            with suppress(TypeError, ValueError):
                return int(str(pid.value)), entry.timestamp
    return None, 0.0
