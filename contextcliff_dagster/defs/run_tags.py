"""Tags of a run that was launched without them: from the UI, by a backfill, by automation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from contextcliff_dagster.defs.asset_specs import run_tags
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.studies import Study

_CAUSES = {
    "dagster/schedule_name": "schedule",
    "dagster/from_automation_condition": "automation",
    "dagster/auto_materialize": "automation",
    "dagster/sensor_name": "sensor",
    "dagster/backfill": "backfill",
}
"""Tag of Dagster's -> what started the run; the first that it has."""


@contextmanager
def tagged_run(
    study: Study, store: StoreResource, campaign: str | None, models: Sequence[str] = ()
) -> Iterator[StudyRun]:
    """`StudyRun.open`, the run of this step being tagged with what it is for.

    ``models``: those that the step measures; all of the study's when empty.
    """
    with StudyRun.open(study, store.open(), campaign) as run:
        complete_run_tags(dg.OpExecutionContext.get(), study, run.campaign, models)
        yield run


def complete_run_tags(
    context: dg.OpExecutionContext, study: Study, campaign: str, models: Sequence[str] = ()
) -> None:
    """Add the tags of `asset_specs.run_tags` that the run lacks."""
    wanted = run_tags(study, campaign, _cause(context.run.tags))
    if wanted.keys() <= context.run.tags.keys():
        return
    if models:
        wanted["contextcliff/models"] = ", ".join(models)
    # Not those that the step began with: an earlier step may have added some.
    run = context.instance.get_run_by_id(context.run_id)
    known = run.tags if run is not None else {}
    if missing := {name: value for name, value in wanted.items() if name not in known}:
        context.instance.add_run_tags(context.run_id, missing)


def _cause(tags: Mapping[str, str]) -> str:
    return next((cause for tag, cause in _CAUSES.items() if tag in tags), "launch")
