"""One study as one asset group with its jobs."""

from __future__ import annotations

import dagster as dg

from contextcliff_dagster.defs.asset_specs import group
from contextcliff_dagster.defs.assets.control_predictions import control_assets
from contextcliff_dagster.defs.assets.predictions import measuring_assets
from contextcliff_dagster.defs.assets.preparation import preparation_assets
from contextcliff_dagster.defs.assets.profiles import judging_assets
from contextcliff_dagster.defs.partitions import range_tags
from contextcliff_dagster.studies import Study


def study_assets(study: Study) -> list[dg.AssetsDefinition]:
    """The whole chain of one study, corpus to report."""
    return [
        *preparation_assets(study),
        *measuring_assets(study),
        *control_assets(study),
        *judging_assets(study),
    ]


def study_jobs(study: Study) -> list[dg.UnresolvedAssetJobDefinition]:
    """`profile_<study>` measures all the study asks for, `pilot_<study>` a few examples a bin.

    One job for all studies is not possible: a job's assets share one set of partitions.
    """
    selection = dg.AssetSelection.groups(group(study))
    # The tags make a plain launch take every model and bin in one run.
    tags = range_tags(study)
    pilot = study.targeted.pilot if study.targeted else study.sampling.pilot_per_bin
    return [
        dg.define_asset_job(
            f"profile_{group(study)}",
            selection,
            description=f"Corpus to report of `{study.name}`; asks only what was not asked before.",
            tags=tags,
        ),
        dg.define_asset_job(
            f"pilot_{group(study)}",
            selection,
            description=f"The same with {pilot} examples a bin: a cheap first look.",
            tags=tags,
            config={
                "ops": {
                    f"{group(study)}__{op}": {"config": {"samples_per_bin": pilot}}
                    for op in ("predictions", *(("control_predictions",) if study.controls else ()))
                }
            },
        ),
    ]
