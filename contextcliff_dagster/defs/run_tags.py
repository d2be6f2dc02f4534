"""What the tags of a run say, and those of one that was launched without them.

Such a run comes from the UI, a backfill, or automation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from contextcliff_dagster.defs.asset_specs import report_job_name, run_tags
from contextcliff_dagster.defs.dagster_internals import BACKFILL_ID_TAG, WILL_RETRY_TAG
from contextcliff_dagster.defs.partitions import tagged_models
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.studies import Study

REPORTED_BY = "contextcliff/reported_by"
"""Of a run that measures alone: the job that scores and reports once all such runs are over."""

_CAUSES = {
    "dagster/schedule_name": "schedule",
    "dagster/from_automation_condition": "automation",
    "dagster/auto_materialize": "automation",
    "dagster/sensor_name": "sensor",
    BACKFILL_ID_TAG: "backfill",
}
"""Tag of Dagster's -> what started the run; the first that it has."""


@contextmanager
def tagged_run(study: Study, store: StoreResource, campaign: str | None) -> Iterator[StudyRun]:
    """`StudyRun.open`, the run of this step being tagged with what it is for."""
    with StudyRun.open(study, store.open(), campaign) as run:
        complete_run_tags(dg.OpExecutionContext.get(), study, run.campaign)
        yield run


def complete_run_tags(context: dg.OpExecutionContext, study: Study, campaign: str) -> None:
    """Add the tags of `asset_specs.run_tags` that the run lacks."""
    of_run = study.with_models(tagged_models(context.run.tags, study))
    wanted = run_tags(of_run, campaign, _cause(context.run.tags))
    if is_reported_later(context.run):
        wanted[REPORTED_BY] = report_job_name(study)
    if wanted.keys() <= context.run.tags.keys():
        return
    # Not those that the step began with: an earlier step may have added some.
    run = context.instance.get_run_by_id(context.run_id)
    known = run.tags if run is not None else {}
    if missing := {name: value for name, value in wanted.items() if name not in known}:
        context.instance.add_run_tags(context.run_id, missing)


def is_reported_later(run: dg.DagsterRun) -> bool:
    """Whether the run measures alone: one of those of a job's backfill.

    A backfill of assets (its runs are of a job without a name of ours) goes down the graph by
    itself, and reports when all is measured.
    """
    return BACKFILL_ID_TAG in run.tags and not run.job_name.startswith("__")


def is_retried(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether Dagster will try the failed ``run`` again, or has not decided yet."""
    # The tag comes a moment after the failure.
    undecided = instance.run_retries_enabled and WILL_RETRY_TAG not in run.tags
    return undecided or run.tags.get(WILL_RETRY_TAG) == "true"


def _cause(tags: Mapping[str, str]) -> str:
    return next((cause for tag, cause in _CAUSES.items() if tag in tags), "launch")
