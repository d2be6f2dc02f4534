"""The sensor that has a campaign scored and reported once the runs that measure it are over."""

# No `from __future__ import annotations` here: Dagster does not resolve strings.

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.alerts.failed_runs import is_elsewhere
from contextcliff_dagster.defs.asset_specs import (
    RETRY_FAILED,
    asset_key,
    group,
    job_name,
    pilot_job_name,
    report_job_name,
    run_config,
    run_tags,
)
from contextcliff_dagster.defs.dagster_internals import (
    BACKFILL_ID_TAG,
    BULK_ACTION_TERMINAL_STATUSES,
)
from contextcliff_dagster.defs.partitions import REPORTED_BY, is_retried
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.lookup import judged_assets, ops_of, partitioned
from contextcliff_dagster.studies import Study

_FIRST_LOOK = timedelta(days=1)
_OVERLAP = timedelta(minutes=2)
"""Runs are not recorded in the order of their time stamps."""


def report_job(study: Study) -> "dg.UnresolvedAssetJobDefinition":
    """`report_<study>`: records, results and report of what is measured; makes no call."""
    names = [*(name for e in partitioned(study) for name in judged_assets(e)), "report"]
    return dg.define_asset_job(
        report_job_name(study),
        dg.AssetSelection.assets(*(asset_key(study, name) for name in names)),
        tags={"contextcliff/study": study.name, **RETRY_FAILED},
        description=f"Scores, results and report of what is measured of `{study.name}`; no call.",
    )


def report_sensor(
    studies: Sequence[Study],
    jobs: Sequence["dg.UnresolvedAssetJobDefinition"],
    *,
    alone: bool = False,
) -> dg.SensorDefinition:
    """`report_when_measured`: one report for all runs that measure a campaign side by side.

    Those of a schedule or a round of several groups, and those of a backfill of a job. Failed ones
    are waited for while Dagster tries them again; what they did not measure the report names.
    ``jobs``: those of `report_job`. ``alone``: its name is that of the one study. The cursor is the
    time up to which every campaign is done with.
    """
    by_job = {report_job_name(study): study for study in studies}

    @dg.sensor(
        name=f"report_when_measured_{group(studies[0])}" if alone else "report_when_measured",
        jobs=jobs,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Scores and reports a campaign once the runs that measure it are over.",
    )
    def report_when_measured(context: dg.SensorEvaluationContext) -> Any:
        instance, now = context.instance, datetime.now(UTC)
        since = datetime.fromisoformat(context.cursor) if context.cursor else now - _FIRST_LOOK
        of = dg.RunsFilter(tags={REPORTED_BY: list(by_job)}, updated_after=since - _OVERLAP)
        changed: dict[tuple[str, str], datetime] = {}
        for record in instance.get_run_records(of):
            tags = record.dagster_run.tags
            if not is_elsewhere(context, record.dagster_run):
                key = tags[REPORTED_BY], tags["contextcliff/campaign"]
                changed[key] = min(record.update_timestamp, changed.get(key, now))
        cursor, requests = now, []
        for (job, campaign), at in changed.items():
            runs = _runs_of(instance, job, campaign)
            if not all(_is_over(instance, run, runs) for run in runs):
                cursor = min(cursor, at)
            elif any(run.is_success for run in runs):
                requests.append(_request(by_job[job], campaign, runs))
        context.update_cursor(cursor.isoformat())
        return requests or dg.SkipReason("No campaign has been measured since the last look.")

    return report_when_measured


def _runs_of(instance: dg.DagsterInstance, job: str, campaign: str) -> list[dg.DagsterRun]:
    """The runs that measure the campaign, newest first, with all of their backfills."""
    of = {REPORTED_BY: job, "contextcliff/campaign": campaign}
    runs = {run.run_id: run for run in instance.get_runs(dg.RunsFilter(tags=of))}
    backfills = {run.tags[BACKFILL_ID_TAG] for run in runs.values() if BACKFILL_ID_TAG in run.tags}
    if backfills:
        # One that has not begun does not say its campaign yet.
        queued = dg.RunsFilter(tags={BACKFILL_ID_TAG: list(backfills)})
        runs |= {run.run_id: run for run in instance.get_runs(queued)}
    return list(runs.values())


def _is_over(
    instance: dg.DagsterInstance, run: dg.DagsterRun, runs: Sequence[dg.DagsterRun]
) -> bool:
    """Whether nothing more comes of the run itself, nor of its backfill."""
    if not run.is_finished:
        return False
    if run.status is dg.DagsterRunStatus.FAILURE and is_retried(instance, run):
        return any(other.parent_run_id == run.run_id for other in runs)
    backfill = instance.get_backfill(run.tags.get(BACKFILL_ID_TAG, ""))
    return backfill is None or backfill.status in BULK_ACTION_TERMINAL_STATUSES


def _request(study: Study, campaign: str, runs: Sequence[dg.DagsterRun]) -> dg.RunRequest:
    """The run that reports; the same runs are reported once."""
    ran = {run.job_name for run in runs}

    def was_measured(experiment: Experiment) -> bool:
        pilot = experiment.name == "length_profile" and pilot_job_name(study) in ran
        return pilot or job_name(study, experiment) in ran

    measured = [experiment for experiment in partitioned(study) if was_measured(experiment)]
    names = [*(name for experiment in measured for name in judged_assets(experiment)), "report"]
    ops = [op for experiment in measured for op in ops_of(experiment, judged_assets(experiment))]
    return dg.RunRequest(
        run_key=f"{campaign}/{runs[0].run_id}",
        job_name=report_job_name(study),
        run_config=run_config(study, campaign, [*ops, "report"], {}),
        tags=run_tags(study, campaign, "sensor"),
        asset_selection=[asset_key(study, name) for name in names],
    )
