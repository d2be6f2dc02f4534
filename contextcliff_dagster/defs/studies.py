"""Dagster definitions of a study: an asset group with jobs, or an asset that reports an error."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import dagster as dg

from contextcliff_dagster.defs.asset_specs import (
    RETRY_FAILED,
    asset_key,
    documents_job_name,
    group,
    job_name,
    key_prefix,
    pilot_job_name,
)
from contextcliff_dagster.defs.assets.experiment import experiment_assets, report_asset
from contextcliff_dagster.defs.assets.preparation import cost_estimate_asset, preparation_assets
from contextcliff_dagster.defs.automation import (
    sentinel_job,
    sentinel_schedules,
    study_schedules,
    study_sensors,
)
from contextcliff_dagster.defs.partitions import document_range_tags, range_tags
from contextcliff_dagster.experiments.lookup import asked_experiments, measuring_assets, partitioned
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import BrokenStudy, Study


class StudyParts(NamedTuple):
    """The Dagster definitions of one study."""

    assets: Sequence[dg.AssetsDefinition]
    jobs: Sequence[dg.UnresolvedAssetJobDefinition | dg.JobDefinition]
    schedules: Sequence[dg.ScheduleDefinition]
    sensors: Sequence[dg.SensorDefinition]


EXAMPLES = "CONTEXTCLIFF_EXAMPLES"
_ALWAYS = "reference"
"""Shipped study that is always shown, as an example."""


def is_used_example(name: str, store: Store) -> bool:
    """Return whether the shipped study ``name`` is shown. Shown are `reference`, and studies with
    a folder in the store; all are if ``CONTEXTCLIFF_EXAMPLES`` is set to anything but 0."""
    if name == _ALWAYS or os.environ.get(EXAMPLES, "0") not in ("", "0"):
        return True
    return store.study_dir(name).is_dir()


def study_parts(study: Study) -> StudyParts:
    """Return assets, jobs, schedules and sensors of one study; raise an error if it is invalid."""
    jobs = study_jobs(study)
    schedules = study_schedules(study, jobs)
    if not study.has_corpus:
        return StudyParts(study_assets(study), jobs, schedules, [])
    sentinel = sentinel_job(study)
    return StudyParts(
        study_assets(study),
        [*jobs, sentinel],
        [*schedules, *sentinel_schedules(study, sentinel)],
        study_sensors(study, jobs[0]),
    )


def study_assets(study: Study) -> list[dg.AssetsDefinition]:
    """Return all assets of one study, from corpus to report."""
    return [
        *(preparation_assets(study) if study.has_corpus else ()),
        cost_estimate_asset(study),
        *(
            asset
            for experiment in asked_experiments(study)
            for asset in experiment_assets(study, experiment)
        ),
        report_asset(study),
    ]


def study_jobs(study: Study) -> list[dg.UnresolvedAssetJobDefinition]:
    """Return `profile_<study>`, which measures the whole study, and `pilot_<study>`, which measures
    a few examples per bin.

    An experiment with its own partitions gets its own job, `<experiment>_<study>`, because a job's
    assets share one set of partitions."""
    jobs = []
    own_tags = {"contextcliff/study": study.name, **RETRY_FAILED}
    for experiment in partitioned(study):
        # The tags make a plain launch take every model and cell in one run.
        tags = {**range_tags(study, experiment), **own_tags}
        # Assets with other partitions are left out.
        others = [
            asset_key(study, name)
            for other in partitioned(study)
            for name in (
                *other.document_assets()[:1],
                *(measuring_assets(study, other) if other.name != experiment.name else ()),
            )
        ]
        selection: dg.AssetSelection = dg.AssetSelection.key_prefixes(
            list(asset_key(study, "").path[:-1])
        )
        if others:
            selection -= dg.AssetSelection.assets(*others)
        job = partial(dg.define_asset_job, selection=selection, tags=tags)
        about = f"Experiment {experiment.name} of `{study.name}`, to its report."
        if experiment.name == "length_profile":
            about = f"Corpus to report of `{study.name}`; makes only the missing calls."
        jobs.append(job(job_name(study, experiment), description=about))
        if documents := experiment.document_assets()[:1]:
            tags = {**document_range_tags(study, experiment), **own_tags}
            assets = dg.AssetSelection.assets(*(asset_key(study, name) for name in documents))
            about = f"Documents of experiment {experiment.name} of `{study.name}`; no call."
            name = documents_job_name(study, experiment)
            jobs.append(dg.define_asset_job(name, assets, tags=tags, description=about))
        if experiment.name != "length_profile":
            continue
        pilot = study.targeted.pilot if study.targeted else study.sampling.pilot_per_bin
        config = {"config": {"samples_per_bin": pilot}}
        ops = {f"{group(study)}__{name}": config for name in measuring_assets(study, experiment)}
        about = f"The same with {pilot} examples per bin: a cheap first look."
        jobs.append(job(pilot_job_name(study), description=about, config={"ops": ops}))
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
