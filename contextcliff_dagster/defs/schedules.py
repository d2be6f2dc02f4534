"""A new campaign of a study at every tick, and how old its report may grow."""

# No `from __future__ import annotations` here: Dagster reads resources off the annotations of a
# schedule and does not resolve strings.

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.asset_specs import group, run_tags
from contextcliff_dagster.defs.dagster_internals import cron_string_iterator
from contextcliff_dagster.defs.partitions import range_tags
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.studies import Study

_DATED_OPS = ("predictions", "eval_records", "profile", "report")
_TICKS = 60


def campaign_at(tick: datetime) -> str:
    """The campaign's name: ``2026-11-23T0300`` (UTC); the same tick never begins two."""
    return tick.astimezone(UTC).strftime("%Y-%m-%dT%H%M")


def study_schedules(
    study: Study, job: "dg.UnresolvedAssetJobDefinition"
) -> list[dg.ScheduleDefinition]:
    """The study's schedule, if it has one. It runs once it is switched on in Dagster: it costs."""
    plan = study.schedule
    if plan is None:
        return []

    @dg.schedule(
        name=f"measure_{group(study)}",
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
            run_config=dated_config(study, campaign),
            tags={
                **range_tags(study, LENGTH_PROFILE),
                **run_tags(study, campaign, "schedule"),
            },
        )

    return [measure]


def dated_config(study: Study, campaign: str) -> dict[str, Any]:
    """Run config that makes every asset of the study's job work on ``campaign``."""
    dated = {"config": {"campaign": campaign}}
    return {"ops": {f"{group(study)}__{op}": dated for op in _DATED_OPS}}


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
