"""The runs of one campaign: the measuring runs and the reporting run."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.alerts import is_elsewhere
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
from contextcliff_dagster.defs.executors.gpu import EXECUTOR_VARIABLE
from contextcliff_dagster.defs.partitions import REPORTED_BY, is_retried, partition_key, range_tags
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.lookup import (
    judged_assets,
    measuring_assets,
    ops_of,
    partitioned,
)
from contextcliff_dagster.inference.devices.discovery import machine_devices
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.store import Store, slug
from contextcliff_dagster.studies import Study


@dataclass(frozen=True)
class Asked:
    """The models that a run measures, which are adjacent in the study's order, and their cells.

    ``config``: config of the predictions; ``tags``: further tags of the run.
    """

    models: Sequence[str]
    cells: Sequence[str]
    config: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Measurement:
    """One experiment of a study in one campaign, and its trigger (schedule, sensor)."""

    study: Study
    experiment: Experiment
    campaign: str
    cause: str

    def everything(
        self, store: Store, key: str, config: Mapping[str, Any] | None = None
    ) -> dict[str, Asked]:
        """Return every model and cell by run key (from ``key``), in one part per group of models.

        If the sample is not drawn yet, there is only one part, or each run would draw it.
        """
        cells = self.experiment.cells(self.study)
        groups = model_groups(self.study)
        if len(groups) == 1 or not self._is_prepared(store):
            return {key: Asked(self.study.models, cells, config)}
        return {f"{key}/{slug(models[0])}": Asked(models, cells, config) for models in groups}

    def requests(self, parts: Mapping[str, Asked]) -> list[dg.RunRequest]:
        """Return one request per part; ``parts`` maps run keys to parts.

        A single part runs the whole chain. Several parts only measure, and one report follows
        (`report_sensor`).
        """
        return [self._request(key, part, alone=len(parts) == 1) for key, part in parts.items()]

    def _request(self, key: str, part: Asked, *, alone: bool) -> dg.RunRequest:
        study, experiment = self.study, self.experiment
        asking = measuring_assets(study, experiment)
        names = [*asking, *judged_assets(experiment), "report"] if alone else asking
        config = {asking[0]: part.config} if part.config else {}
        ends = ((part.models[0], part.cells[0]), (part.models[-1], part.cells[-1]))
        tags = {
            **range_tags(study, experiment, [partition_key(experiment, *end) for end in ends]),
            **run_tags(study.with_models(part.models), self.campaign, self.cause),
            **(part.tags or {}),
        }
        if len(places := {place_of(model) for model in part.models}) == 1:
            tags[PLACE_TAG] = places.pop()
        if not alone:
            tags[REPORTED_BY] = report_job_name(study)
        return dg.RunRequest(
            run_key=key,
            run_config=run_config(study, self.campaign, ops_of(experiment, names), config),
            tags=tags,
            asset_selection=None if alone else [asset_key(study, name) for name in names],
        )

    def _is_prepared(self, store: Store) -> bool:
        """Return whether the sample and the documents for the calls exist."""
        from contextcliff_dagster.experiments.common.preparation import find_frozen

        documents = self.experiment.documents
        with suppress(ContextCliffError):  # the run will say so itself
            sampled = not self.study.has_corpus or find_frozen(self.study, store) is not None
            return sampled and (not documents or documents.frozen(self.study, store) is not None)
        return False


PLACE_TAG = "contextcliff/place"
"""Tag with the place that a run's models share; the run queue limits runs per place."""

_THIS_MACHINE = "this machine"
_WITH_OTHER_DEVICES = ("celery", "k8s", "ray")


def model_groups(study: Study) -> list[list[str]]:
    """Return the study's models in groups of adjacent models that share a place.

    Groups are adjacent because a run takes one range of partitions, in the order of the models.
    """
    return [list(models) for _, models in groupby(study.models, key=place_of)]


def place_of(model: str) -> str:
    """Return what the model occupies: the host and port of its endpoint, or devices here.

    If there are several GPUs, each model that leases GPUs is its own place, because the leases
    decide which models run at once. So is a model that cannot be looked up (its run reports why).
    """
    try:
        entry = get_model(model)
        url = entry.resolved_base_url() if entry.spec.remote else None
    except ContextCliffError:
        return model
    if url is not None:
        address = urlsplit(url)
        return f"{address.hostname}:{address.port}" if address.port else f"{address.hostname}"
    elsewhere = os.environ.get(EXECUTOR_VARIABLE) in _WITH_OTHER_DEVICES
    if entry.gpus_wanted and (elsewhere or len(machine_devices()) > 1):
        return model
    return _THIS_MACHINE


# No `from __future__ import annotations` here: Dagster does not resolve strings.


_FIRST_LOOK = timedelta(days=1)
_OVERLAP = timedelta(minutes=2)
"""Overlap of consecutive look-backs, needed because runs are not recorded in time stamp order."""


def report_job(study: Study) -> "dg.UnresolvedAssetJobDefinition":
    """Return `report_<study>`, which scores and reports the measured answers without any calls."""
    names = [*(name for e in partitioned(study) for name in judged_assets(e)), "report"]
    return dg.define_asset_job(
        report_job_name(study),
        dg.AssetSelection.assets(*(asset_key(study, name) for name in names)),
        tags={"contextcliff/study": study.name, **RETRY_FAILED},
        description=f"Scores, results and report of `{study.name}` as measured so far; no call.",
    )


def report_sensor(
    studies: Sequence[Study],
    jobs: Sequence["dg.UnresolvedAssetJobDefinition"],
    *,
    alone: bool = False,
) -> dg.SensorDefinition:
    """Return `report_when_measured`, which starts one report for all parallel runs of a campaign.

    These are the runs of a schedule or round over several groups, and of a job's backfill. The
    sensor waits while Dagster retries failed runs; the report names what they did not measure.
    ``jobs``: the jobs of `report_job`. ``alone``: the sensor is named after its only study. The
    cursor is the time up to which every campaign has been handled.
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
    """Return the runs that measure the campaign, newest first, plus all runs of their backfills."""
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
    """Return whether the run, its retries and its backfill have ended."""
    if not run.is_finished:
        return False
    if run.status is dg.DagsterRunStatus.FAILURE and is_retried(instance, run):
        return any(other.parent_run_id == run.run_id for other in runs)
    backfill = instance.get_backfill(run.tags.get(BACKFILL_ID_TAG, ""))
    return backfill is None or backfill.status in BULK_ACTION_TERMINAL_STATUSES


def _request(study: Study, campaign: str, runs: Sequence[dg.DagsterRun]) -> dg.RunRequest:
    """Return the request of the reporting run; its key prevents a second report of the runs."""
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
