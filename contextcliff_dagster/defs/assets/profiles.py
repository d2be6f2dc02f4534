"""Evaluation records, metrics, cliffs and report: cheap, and made again whenever records change."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

from collections.abc import Iterator

import dagster as dg

from contextcliff_dagster.contracts import EVAL_RECORDS
from contextcliff_dagster.defs import checks
from contextcliff_dagster.defs.alerts import alert
from contextcliff_dagster.defs.asset_specs import (
    FOLLOW_RECORDS,
    asset_key,
    described,
    group,
    single_run_asset,
    single_run_multi_asset,
)
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.defs.schedules import report_freshness
from contextcliff_dagster.defs.ui import results
from contextcliff_dagster.experiments.common.measurement import campaign_of, open_ledger
from contextcliff_dagster.experiments.common.preparation import load_frozen
from contextcliff_dagster.experiments.controls.preparation_and_measurement import score_controls
from contextcliff_dagster.experiments.length_profile.adaptive_rounds import next_rounds
from contextcliff_dagster.experiments.length_profile.profile_and_report import (
    profile_campaign,
    report_campaign,
    score_campaign,
)
from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs
from contextcliff_dagster.experiments.length_profile.regression import judge_regression
from contextcliff_dagster.studies import Study


class CampaignConfig(dg.Config):
    """Which measurement to judge."""

    campaign: str | None = None
    """A dated measurement; the current one when empty."""


def judging_assets(study: Study) -> list[dg.AssetsDefinition]:
    """`eval_records`, `metrics`, `cliffs` and `report` of ``study``."""

    @single_run_asset(
        **described(
            study,
            "eval_records",
            "Every prediction scored: exact match, token F1, containment, and why it failed.",
            deps=["predictions", *(["control_predictions"] if study.controls else [])],
            kinds={"python", "parquet"},
            table=EVAL_RECORDS,
            automation_condition=FOLLOW_RECORDS,
        ),
        check_specs=checks.record_checks(study),
    )
    def eval_records(config: CampaignConfig, store: StoreResource) -> dg.MaterializeResult:
        where = store.open()
        with open_ledger(where) as ledger:
            campaign = campaign_of(ledger, study, config.campaign)
            manifest = load_frozen(study, where)
            records = score_campaign(study, where, manifest, ledger, campaign)
            score_controls(study, where, manifest, ledger, campaign)
        return dg.MaterializeResult(
            metadata=results.records_metadata(study, where, campaign, records),
            check_results=checks.check_records(study, records),
        )

    @single_run_multi_asset(
        name=f"{group(study)}__profile",
        specs=[
            dg.AssetSpec(
                **described(
                    study,
                    "metrics",
                    "Per length bin: mean, variance, instability, failure rate, latency.",
                    deps=["eval_records", "manifest"],
                    kinds={"python", "json"},
                    automation_condition=FOLLOW_RECORDS,
                )
            ),
            dg.AssetSpec(
                **described(
                    study,
                    "cliffs",
                    "Verdict, safe context cap and cliff of each model, with what supports them.",
                    deps=["eval_records", "manifest"],
                    kinds={"python", "json"},
                    automation_condition=FOLLOW_RECORDS,
                )
            ),
        ],
        check_specs=checks.cliff_checks(study),
    )
    def profile(
        context: dg.AssetExecutionContext, config: CampaignConfig, store: StoreResource
    ) -> Iterator[dg.MaterializeResult]:
        # One analysis gives both results: the bootstrap is not run twice.
        where = store.open()
        with open_ledger(where) as ledger:
            campaign = campaign_of(ledger, study, config.campaign)
            manifest = load_frozen(study, where)
            profiles = profile_campaign(study, where, manifest, ledger, campaign)
        regression = judge_regression(study, where, manifest, campaign)
        for told in alert(study, where, regression, context.log.warning):
            context.log.info(f"{told[0].upper()}{told[1:]} was told that a model has shrunk.")
        cliffs = [profile.cliffs for profile in profiles]
        rounds = next_rounds(study, where, manifest, campaign)
        yield dg.MaterializeResult(
            asset_key(study, "metrics"),
            metadata=results.metrics_metadata(study, where, campaign, cliffs),
        )
        yield dg.MaterializeResult(
            asset_key(study, "cliffs"),
            metadata={
                **results.cliffs_metadata(study, where, campaign, cliffs),
                **results.rounds_metadata(rounds),
            },
            check_results=[
                *checks.check_cliffs(study, cliffs),
                checks.check_regression(study, regression),
            ],
        )

    @single_run_asset(
        **described(
            study,
            "report",
            "The report to read: Markdown, JSON and the picture of all models.",
            deps=["cliffs", "eval_records"],
            kinds={"markdown", "matplotlib"},
            automation_condition=FOLLOW_RECORDS,
            freshness_policy=report_freshness(study),
        ),
    )
    def report(config: CampaignConfig, store: StoreResource) -> dg.MaterializeResult:
        where = store.open()
        with open_ledger(where) as ledger:
            campaign = campaign_of(ledger, study, config.campaign)
            files = report_campaign(study, where, load_frozen(study, where), ledger, campaign)
        cliffs = read_cliffs(study, where, campaign)
        return dg.MaterializeResult(metadata=results.report_metadata(campaign, files, cliffs))

    return [eval_records, profile, report]
