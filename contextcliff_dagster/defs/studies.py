"""One study as one asset group with its jobs."""

from __future__ import annotations

from typing import Any

import dagster as dg

from contextcliff_dagster.defs.asset_specs import asset_key, group
from contextcliff_dagster.defs.assets.experiment import experiment_assets
from contextcliff_dagster.defs.assets.preparation import cost_estimate_asset, preparation_assets
from contextcliff_dagster.defs.assets.report import report_asset
from contextcliff_dagster.defs.partitions import range_tags
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.registry import (
    asked_experiments,
    measuring_assets,
    partitioned,
)
from contextcliff_dagster.studies import Study


def study_assets(study: Study) -> list[dg.AssetsDefinition]:
    """The whole chain of one study, corpus to report."""
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
    """`profile_<study>` measures all the study asks for, `pilot_<study>` a few examples a bin.

    An experiment with partitions of its own has a job of its own, `<experiment>_<study>`: a job's
    assets share one set of partitions.
    """
    jobs = []
    for experiment in partitioned(study):
        if experiment.name == "length_profile":
            jobs += [_profile_job(study, experiment), _pilot_job(study, experiment)]
        else:
            jobs.append(
                dg.define_asset_job(
                    job_name(study, experiment),
                    _selection(study, experiment),
                    description=f"Experiment {experiment.name} of `{study.name}`, to its report.",
                    tags=_tags(study, experiment),
                )
            )
    return jobs


def job_name(study: Study, experiment: Experiment) -> str:
    """Return the name of the job that measures ``experiment`` and what is judged with it."""
    kind = "profile" if experiment.name == "length_profile" else experiment.name.replace("-", "_")
    return f"{kind}_{group(study)}"


def _profile_job(study: Study, experiment: Experiment) -> dg.UnresolvedAssetJobDefinition:
    return dg.define_asset_job(
        job_name(study, experiment),
        _selection(study, experiment),
        description=f"Corpus to report of `{study.name}`; asks only what was not asked before.",
        tags=_tags(study, experiment),
    )


def _pilot_job(study: Study, experiment: Experiment) -> dg.UnresolvedAssetJobDefinition:
    pilot = study.targeted.pilot if study.targeted else study.sampling.pilot_per_bin
    return dg.define_asset_job(
        f"pilot_{group(study)}",
        _selection(study, experiment),
        description=f"The same with {pilot} examples a bin: a cheap first look.",
        tags=_tags(study, experiment),
        config={
            "ops": {
                f"{group(study)}__{name}": {"config": {"samples_per_bin": pilot}}
                for name in measuring_assets(study, experiment)
            }
        },
    )


def _selection(study: Study, experiment: Experiment) -> dg.AssetSelection:
    """All assets of the study but those with partitions of another experiment."""
    others = [
        asset_key(study, name)
        for other in partitioned(study)
        if other.name != experiment.name
        for name in measuring_assets(study, other)
    ]
    every = dg.AssetSelection.groups(group(study))
    return every - dg.AssetSelection.assets(*others) if others else every


def _tags(study: Study, experiment: Experiment) -> dict[str, Any]:
    """The tags make a plain launch take every model and cell in one run."""
    return {**range_tags(study, experiment), "contextcliff/study": study.name}
