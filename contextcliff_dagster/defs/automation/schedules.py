"""A new campaign of a study at every tick, and how old its report may grow."""

# No `from __future__ import annotations` here: Dagster reads resources off the annotations of a
# schedule and does not resolve strings.

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile

import dagster as dg

from contextcliff_dagster.defs.asset_specs import job_name
from contextcliff_dagster.defs.campaign_runs.requests import Measurement
from contextcliff_dagster.defs.dagster_internals import cron_string_iterator
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.study_run import TICK_NAME
from contextcliff_dagster.experiments.lookup import partitioned
from contextcliff_dagster.studies import Study

_SPAN, _DAYS = timedelta(days=366), 60
"""A year shows weekends and pauses of months; 60 days with ticks show months of unequal length."""


def campaign_at(tick: datetime) -> str:
    """The campaign's name: ``2026-11-23T0300`` (UTC); the same tick never begins two."""
    return tick.astimezone(UTC).strftime(TICK_NAME)


def study_schedules(
    study: Study, jobs: Sequence["dg.UnresolvedAssetJobDefinition"]
) -> list[dg.ScheduleDefinition]:
    """The study's schedules, one per job that measures all of an experiment, if it has any.

    They run once they are switched on in Dagster: they cost. One tick is one campaign for all.
    """
    plan = study.schedule
    if plan is None:
        return []
    by_name = {job.name: job for job in jobs}

    def schedule(experiment: Experiment) -> dg.ScheduleDefinition:
        job = by_name[job_name(study, experiment)]

        @dg.schedule(
            name=f"measure_{job.name.removeprefix('profile_')}",
            job=job,
            cron_schedule=plan.cron,
            execution_timezone=plan.timezone,
            description=f"Measures `{study.name}` in a new campaign: {plan.cron} {plan.timezone}.",
        )
        def measure(
            context: dg.ScheduleEvaluationContext, store: StoreResource
        ) -> list[dg.RunRequest]:
            # Begun by the first call: runs that fail before leave no empty campaign.
            campaign = campaign_at(context.scheduled_execution_time)
            measurement = Measurement(study, experiment, campaign, "schedule")
            return measurement.requests(measurement.everything(store.open(), campaign))

        return measure

    return [schedule(experiment) for experiment in partitioned(study)]


def report_freshness(study: Study) -> dg.FreshnessPolicy | None:
    """The report is stale once a tick is missed by more than the study's grace."""
    plan = study.schedule
    if plan is None:
        return None
    longest = longest_gap(plan.cron)
    return dg.FreshnessPolicy.time_window(fail_window=longest + timedelta(hours=plan.grace_hours))


def longest_gap(cron: str) -> timedelta:
    """Return the longest time between two ticks of a cron line, by the clock on the wall.

    All days with ticks have the same ones. So one day is read tick by tick, and of the days after
    it the first tick of each: a year of a tick each minute would take seconds.
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
