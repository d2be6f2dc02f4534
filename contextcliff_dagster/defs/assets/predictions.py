"""Cost estimate and predictions: what measuring would cost, and measuring."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import PREDICTIONS
from contextcliff_dagster.defs.asset_specs import (
    FOLLOW_RECORDS,
    asset_key,
    described,
    single_run_asset,
)
from contextcliff_dagster.defs.dagster_internals import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from contextcliff_dagster.defs.executors.device_tags import device_tags
from contextcliff_dagster.defs.partitions import (
    asked_partitions,
    bins_by_model,
    partition_key,
    study_partitions,
)
from contextcliff_dagster.defs.resources import StoreResource, Watch
from contextcliff_dagster.defs.ui import calls as show
from contextcliff_dagster.defs.ui.progress_log import Narrator
from contextcliff_dagster.experiments.common import measurement as steps
from contextcliff_dagster.experiments.common.preparation import load_frozen
from contextcliff_dagster.inference.spending.budget import Budget
from contextcliff_dagster.studies import Study


class MeasureConfig(dg.Config):
    """What to measure; everything empty means as the study says."""

    samples_per_bin: int | None = None
    """Examples per bin. More than last time tops up: only what is new is asked."""
    samples: dict[str, int] = {}  # noqa: RUF012 (Dagster copies a config's defaults)
    """Examples by bin, as a targeted round asks for; bins not named are left as they are."""
    why: str | None = None
    """What a targeted round is for, shown with each bin it measures."""
    campaign: str | None = None
    """A dated measurement; the current one when empty."""
    budget_usd: float | None = None
    """Hard limit of the campaign in USD; the study's own when empty."""
    deadline_s: float | None = None
    """Seconds after which this run sends nothing more; the study's own when empty."""
    from_ledger_only: bool = False
    """Write the tables again from the call ledger and make no call."""


class EstimateConfig(dg.Config):
    """Which calls count as made already."""

    campaign: str | None = None
    """A dated measurement; the current one when empty."""


def measuring_assets(study: Study) -> list[dg.AssetsDefinition]:
    """`cost_estimate` and `predictions` of ``study``."""

    @single_run_asset(
        **described(
            study,
            "cost_estimate",
            "Tokens, money and time of the calls not yet made, per model and bin.",
            deps=["manifest"],
            kinds={"python"},
            automation_condition=FOLLOW_RECORDS,
        ),
    )
    def cost_estimate(config: EstimateConfig, store: StoreResource) -> dg.MaterializeResult:
        where = store.open()
        manifest = load_frozen(study, where)
        with steps.open_ledger(where) as ledger:
            campaign = steps.campaign_of(ledger, study, config.campaign)
            estimate = steps.estimate_cost(study, manifest, ledger, campaign)
        return dg.MaterializeResult(metadata=show.estimate_metadata(campaign, estimate))

    @single_run_asset(
        **described(
            study,
            "predictions",
            "What each model answered, one row per planned call; a paid call is never made twice.",
            deps=["manifest"],
            kinds={"python", "parquet"},
            table=PREDICTIONS,
        ),
        partitions_def=study_partitions(study),
        op_tags=device_tags(study),
        # Nothing passes through an IO manager: downstream reads the store.
        dagster_type=dg.Nothing,
    )
    def predictions(
        context: dg.AssetExecutionContext,
        config: MeasureConfig,
        store: StoreResource,
        watch: dg.ResourceParam[Watch],
    ) -> Iterator[Any]:
        where = store.open()
        manifest = load_frozen(study, where)
        merged = {bin.bin: bin.merged_into for bin in manifest.bins}

        def waits(sentence: str) -> None:
            context.log.info(sentence)
            if watch.on_wait is not None:
                watch.on_wait(sentence)

        budget = Budget(usd=config.budget_usd) if config.budget_usd is not None else watch.budget
        deadline_s = config.deadline_s or watch.deadline_s or study.calls.deadline_s
        until = None if deadline_s is None else time.monotonic() + deadline_s

        with steps.open_ledger(where) as ledger:
            campaign = steps.campaign_of(ledger, study, config.campaign)
            of_campaign = {"campaign": campaign}
            for model, asked in bins_by_model(study, asked_partitions(context, study)).items():
                bins = [bin for bin in asked if not config.samples or bin in config.samples]

                def observe(metadata: dict[str, Any]) -> None:
                    context.log_event(
                        dg.AssetObservation(context.asset_key, metadata={**metadata, **of_campaign})
                    )

                narrator = Narrator(model, context.log.info, observe, watch.on_progress)

                def finished(
                    bin: str, rows: steps.Rows, model: str = model, narrator: Narrator = narrator
                ) -> None:
                    path = where.predictions_file(study.name, campaign, model, bin)
                    context.log_event(
                        dg.AssetMaterialization(
                            context.asset_key,
                            partition=partition_key(model, bin),
                            metadata={
                                **show.bin_metadata(
                                    campaign,
                                    rows,
                                    path,
                                    merged.get(bin),
                                    maybe_paid=ledger.maybe_paid(row["call_key"] for row in rows),
                                    progress=narrator.last,
                                ),
                                **({"round": config.why} if config.why else {}),
                            },
                            tags=show.version_tags(
                                rows, asset_key(study, "manifest"), manifest.sha256
                            ),
                        )
                    )

                if config.from_ledger_only:
                    for bin in bins:
                        rows = steps.write_predictions(
                            study, where, manifest, ledger, campaign, model, bin
                        )
                        if rows:
                            finished(bin, rows)
                    continue
                watch.calls[model] = steps.measure_bins(
                    study,
                    where,
                    manifest,
                    ledger,
                    campaign,
                    model,
                    bins,
                    samples_per_bin=config.samples_per_bin,
                    samples=config.samples or None,
                    budget=budget,
                    progress=narrator,
                    stop=watch.stop,
                    on_bin=finished,
                    say=waits,
                    until=until,
                )
                narrator.end(watch.calls[model])
        # Each finished bin has logged its own materialization, so that a crash keeps those before
        # it. Downstream steps of this run wait for an output, but a plain one would record every
        # bin a second time: the mark tells Dagster that the events are out already.
        yield dg.Output(None, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})

    return [cost_estimate, predictions]
