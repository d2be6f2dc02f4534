"""Dagster definitions of a study (an asset group with jobs, or an asset that reports an error), and
those that all studies share."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.alerts import failed_runs_sensor
from contextcliff_dagster.defs.asset_specs import (
    PREPARATION,
    RETRY_FAILED,
    asset_key,
    documents_job_name,
    group,
    job_name,
    key_prefix,
    measure_job_name,
    run_config,
)
from contextcliff_dagster.defs.assets.experiment import experiment_assets, report_asset
from contextcliff_dagster.defs.assets.preparation import cost_estimate_asset, preparation_assets
from contextcliff_dagster.defs.automation import (
    begin_job,
    lost_runs_sensor,
    sentinel_job,
    sentinel_schedules,
    study_schedules,
    study_sensors,
)
from contextcliff_dagster.defs.batches import batch_sensor
from contextcliff_dagster.defs.campaign_runs import report_job, report_sensor
from contextcliff_dagster.defs.executors.gpu import chosen_executor
from contextcliff_dagster.defs.partitions import document_range_tags
from contextcliff_dagster.defs.ui.results import with_token_ranges
from contextcliff_dagster.experiments.lookup import asked_experiments, measuring_assets, partitioned
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import BrokenStudy, Study
from contextcliff_dagster.studies.files import is_retired

EXAMPLES = "CONTEXTCLIFF_EXAMPLES"
_ALWAYS = "reference"
"""Shipped study that is always shown, as an example."""


def shared_definitions(
    studies: Sequence[Study],
    *parents: str,
    executor: bool = True,
    database: bool = True,
    alerts: bool = True,
) -> dg.Definitions:
    """Return what studies of a code location share (retired ones aside), and what is asked for.

    ``executor``: all steps of the location run in `chosen_executor`. ``database``: the asset
    ``database``, its key below ``parents``. ``alerts``: the sensor `alert_failed_runs`.

    Raises:
        StudyError: the chosen executor is unknown or cannot be used.
    """
    from contextcliff_dagster.defs.database import database_asset  # imports DuckDB's resource

    store = Store.default()
    studies = [study for study in studies if not is_retired(store, study.name)]
    assets = [database_asset(studies, *parents)] if database else []
    more = [asset.key for asset in assets]
    reports = [report_job(study, *more) for study in studies]
    return dg.Definitions(
        assets=assets,
        jobs=reports,
        sensors=[
            *([failed_runs_sensor(studies)] if alerts else ()),
            lost_runs_sensor(studies),
            *([report_sensor(studies, reports, *more)] if reports else ()),
            *([batch_sensor(studies)] if studies else ()),
        ],
        executor=chosen_executor() if executor else None,
    )


def is_used_example(name: str, store: Store) -> bool:
    """Return whether the shipped study ``name`` is shown. Shown are `reference`, and studies with
    a folder in the store; all are if ``CONTEXTCLIFF_EXAMPLES`` is set to anything but 0."""
    if name == _ALWAYS or os.environ.get(EXAMPLES, "0") not in ("", "0"):
        return True
    return store.study_dir(name).is_dir()


def study_parts(study: Study) -> dg.Definitions:
    """Return assets, jobs, schedules and sensors of one study, none if it is retired; raise an
    error if it is invalid."""
    store = Store.default()
    if is_retired(store, study.name):
        return dg.Definitions()
    jobs, begin = study_jobs(study), begin_job(study)
    assets = with_token_ranges(study_assets(study), study, store)
    schedules = study_schedules(study, jobs)
    if not study.has_corpus:
        return dg.Definitions(assets, schedules, jobs=[*jobs, begin])
    sentinel = sentinel_job(study)
    schedules += sentinel_schedules(study, sentinel)
    return dg.Definitions(assets, schedules, study_sensors(study, jobs), [*jobs, begin, sentinel])


def study_assets(study: Study, *, launched: bool = True) -> list[dg.AssetsDefinition]:
    """Return all assets of one study, from corpus to report; ``launched``: by Dagster."""
    return [
        *(preparation_assets(study) if study.has_corpus else ()),
        cost_estimate_asset(study),
        *(
            asset
            for experiment in asked_experiments(study)
            for asset in experiment_assets(study, experiment, launched=launched)
        ),
        report_asset(study),
    ]


def study_jobs(study: Study) -> list[dg.UnresolvedAssetJobDefinition]:
    """Return `profile_<study>`, which makes the missing calls, and `pilot_<study>`, which makes
    those of a few examples per bin.

    An experiment with its own partitions gets its own job, `<experiment>_<study>`, because a job's
    assets share one set of partitions. Schedules and sensors have `measure_...`, which also draws
    the sample: runs of a backfill would each draw it."""
    jobs = []

    def job(name: str, assets: Sequence[str], about: str, **more: Any) -> None:
        selection = dg.AssetSelection.assets(*(asset_key(study, asset) for asset in assets))
        tags = {"contextcliff/study": study.name, **RETRY_FAILED, **more.pop("tags", {})}
        jobs.append(dg.define_asset_job(name, selection, tags=tags, description=about, **more))

    for experiment in partitioned(study):
        asking, of = measuring_assets(study, experiment), f"{experiment.name} of `{study.name}`"
        job(job_name(study, experiment), asking, f"The missing calls of {of}.")
        documents = experiment.document_assets()
        if documents:
            tags = document_range_tags(study, experiment)
            about = f"Documents of {of}; no call."
            job(documents_job_name(study, experiment), documents[:1], about, tags=tags)
        if study.schedule or study.targeted:
            before = [*(PREPARATION if study.has_corpus else ()), *documents[1:]]
            about = f"The sample of {of}, if it is not drawn, and the missing calls."
            job(measure_job_name(study, experiment), [*before, *asking], about)
        if experiment.name == "length_profile":
            pilot = study.targeted.pilot if study.targeted else study.sampling.pilot_per_bin
            config = run_config(study, {name: {"samples_per_bin": pilot} for name in asking})
            about = f"Calls for {pilot} examples per bin: a cheap first look."
            job(f"pilot_{group(study)}", asking, about, config=config)
    return jobs


def broken_study_asset(broken: BrokenStudy, number: int) -> dg.AssetsDefinition:
    """Return the asset `study_file` of a broken study; materializing it fails with the reason.

    ``number`` distinguishes studies whose names differ only in punctuation.
    """
    plain = re.sub(r"\W", "_", broken.name, flags=re.ASCII)[:60] or "study"

    @dg.asset(
        name="study_file",
        key_prefix=[*key_prefix(), f"{plain}_{number}" if plain != broken.name else plain],
        group_name=plain,
        description=f"This study cannot be loaded. {broken.error}",
        metadata={"error": broken.error, "file": dg.MetadataValue.path(str(broken.path))},
        kinds={"yaml"},
    )
    def study_file() -> None:
        raise dg.Failure(broken.error, allow_retries=False)

    return study_file
