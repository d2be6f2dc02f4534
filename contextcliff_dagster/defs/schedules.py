"""A new campaign of a study at every tick, and how old its report may grow."""

# No `from __future__ import annotations` here: Dagster reads resources off the annotations of a
# schedule and does not resolve strings.

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.asset_specs import group, job_name, run_tags
from contextcliff_dagster.defs.dagster_internals import cron_string_iterator
from contextcliff_dagster.defs.partitions import range_tags
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.registry import judging_ops, measuring_assets, partitioned
from contextcliff_dagster.studies import Study

_TICKS = 60


def campaign_at(tick: datetime) -> str:
    """The campaign's name: ``2026-11-23T0300`` (UTC); the same tick never begins two."""
    return tick.astimezone(UTC).strftime("%Y-%m-%dT%H%M")


def study_schedules(
    study: Study, jobs: "Sequence[dg.UnresolvedAssetJobDefinition]"
) -> list[dg.ScheduleDefinition]:
    """The study's schedules, one per job that measures all of an experiment, if it has any.

    They run once they are switched on in Dagster: they cost. One tick is one campaign for all.
    """
    by_name = {job.name: job for job in jobs}
    return [
        _schedule(study, experiment, by_name[job_name(study, experiment)])
        for experiment in (partitioned(study) if study.schedule else ())
    ]


def _schedule(
    study: Study, experiment: Experiment, job: "dg.UnresolvedAssetJobDefinition"
) -> dg.ScheduleDefinition:
    plan = study.schedule
    assert plan is not None

    @dg.schedule(
        name=f"measure_{job.name.removeprefix('profile_')}",
        job=job,
        cron_schedule=plan.cron,
        execution_timezone=plan.timezone,
        description=f"Measures `{study.name}` in a new campaign: {plan.cron} {plan.timezone}.",
    )
    def measure(context: dg.ScheduleEvaluationContext, store: StoreResource) -> dg.RunRequest:
        from contextcliff_dagster.experiments.common.study_run import open_ledger
        from contextcliff_dagster.inference.ledger.campaigns import ensure_campaign

        campaign = campaign_at(context.scheduled_execution_time)
        with open_ledger(store.open()) as ledger:
            ensure_campaign(ledger, study.name, campaign)
        return dg.RunRequest(
            run_key=campaign,
            run_config=dated_config(study, experiment, campaign),
            tags={
                **range_tags(study, experiment),
                **run_tags(study, campaign, "schedule"),
            },
        )

    return measure


def dated_config(study: Study, experiment: Experiment, campaign: str) -> dict[str, Any]:
    """Run config that makes every asset of the experiment's job work on ``campaign``."""
    dated = {"config": {"campaign": campaign}}
    ops = [*measuring_assets(study, experiment), *judging_ops(experiment), "report"]
    return {"ops": {f"{group(study)}__{op}": dated for op in ops}}


def report_freshness(study: Study) -> dg.FreshnessPolicy | None:
    """The report is stale once a tick is missed by more than the study's grace."""
    plan = study.schedule
    if plan is None:
        return None
    longest = max(later - earlier for earlier, later in pairwise(_ticks(plan.cron, plan.timezone)))
    return dg.FreshnessPolicy.time_window(fail_window=longest + timedelta(hours=plan.grace_hours))


def _ticks(cron: str, timezone: str) -> Iterator[datetime]:
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    return islice(cron_string_iterator(start, cron, timezone), _TICKS)
