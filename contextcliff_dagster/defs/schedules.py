"""A new campaign of a study at every tick, and how old its report may grow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.asset_specs import Config, job_name, run_config, run_tags
from contextcliff_dagster.defs.dagster_internals import cron_string_iterator
from contextcliff_dagster.defs.partitions import range_tags
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.study_run import TICK_NAME
from contextcliff_dagster.experiments.lookup import (
    judged_assets,
    measuring_assets,
    ops_of,
    partitioned,
)
from contextcliff_dagster.studies import Study

_TICKS = 60


def campaign_at(tick: datetime) -> str:
    """The campaign's name: ``2026-11-23T0300`` (UTC); the same tick never begins two."""
    return tick.astimezone(UTC).strftime(TICK_NAME)


def study_schedules(
    study: Study, jobs: Sequence[dg.UnresolvedAssetJobDefinition]
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
        def measure(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
            # Begun by the run's first call: a run that fails before leaves no empty campaign.
            campaign = campaign_at(context.scheduled_execution_time)
            return dg.RunRequest(
                run_key=campaign,
                run_config=dated_config(study, experiment, campaign),
                tags=range_tags(study, experiment) | run_tags(study, campaign, "schedule"),
            )

        return measure

    return [schedule(experiment) for experiment in partitioned(study)]


def dated_config(
    study: Study, experiment: Experiment, campaign: str, more: Config | None = None
) -> dict[str, Any]:
    """Run config that makes every asset of the experiment's job work on ``campaign``."""
    assets = [*measuring_assets(study, experiment), *judged_assets(experiment), "report"]
    return run_config(study, campaign, ops_of(experiment, assets), more or {})


def report_freshness(study: Study) -> dg.FreshnessPolicy | None:
    """The report is stale once a tick is missed by more than the study's grace."""
    plan = study.schedule
    if plan is None:
        return None
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    ticks = islice(cron_string_iterator(start, plan.cron, plan.timezone), _TICKS)
    longest = max(later - earlier for earlier, later in pairwise(ticks))
    return dg.FreshnessPolicy.time_window(fail_window=longest + timedelta(hours=plan.grace_hours))
