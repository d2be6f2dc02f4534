"""The asset `report`, over all experiments of a study."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

from dataclasses import replace

import dagster as dg

from contextcliff_dagster.defs.asset_specs import FOLLOW_RECORDS, study_asset
from contextcliff_dagster.defs.automation.schedules import report_freshness
from contextcliff_dagster.defs.resources import ReportConfig, StoreResource
from contextcliff_dagster.defs.run_tags import tagged_run
from contextcliff_dagster.defs.ui import results
from contextcliff_dagster.experiments.common.code_version import experiment_version
from contextcliff_dagster.experiments.lookup import partitioned
from contextcliff_dagster.experiments.study_report import write_study_report
from contextcliff_dagster.freed_memory import return_freed_memory
from contextcliff_dagster.studies import Study


def report_asset(study: Study) -> dg.AssetsDefinition:
    """Return `report`: one page over all experiments of the study."""
    asked = partitioned(study)
    judged = [one.asset_names("result")[-1] for one in asked]
    records = [name for one in asked for name in one.asset_names("records")]
    versions = [experiment_version(study, one, "report") for one in asked]

    @study_asset(
        study,
        "report",
        "The report to read: HTML, Markdown, JSON and the picture of all models.",
        deps=[*judged, *records],
        kinds={"markdown", "matplotlib"},
        automation_condition=FOLLOW_RECORDS,
        freshness_policy=report_freshness(study),
        code_version="-".join(versions),
    )
    def report(
        context: dg.AssetExecutionContext, config: ReportConfig, store: StoreResource
    ) -> dg.MaterializeResult:
        with tagged_run(study, store, config.campaign) as run:
            shown = replace(run, with_answers=config.with_answers)
            files = write_study_report(shown, context.log.warning)
            return_freed_memory()  # the picture for the UI takes its own room
            return dg.MaterializeResult(metadata=results.report_metadata(run, files))

    return report
