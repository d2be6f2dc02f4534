"""Control predictions: the same questions without their document, where the study asks for them."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import CONTROL_PREDICTIONS
from contextcliff_dagster.defs.asset_specs import asset_key, described, single_run_asset
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
from contextcliff_dagster.experiments.common.measurement import campaign_of, open_ledger
from contextcliff_dagster.experiments.common.preparation import load_frozen
from contextcliff_dagster.experiments.controls import preparation_and_measurement as steps
from contextcliff_dagster.inference.spending.budget import Budget
from contextcliff_dagster.studies import Study


class ControlConfig(dg.Config):
    """What to ask; everything empty means as the study says."""

    samples_per_bin: int | None = None
    """Examples per bin, at most as many as the study measures."""
    campaign: str | None = None
    """A dated measurement; the current one when empty."""
    budget_usd: float | None = None
    """Hard limit of the campaign in USD, its measurement included; the study's own when empty."""
    deadline_s: float | None = None
    """Seconds after which this run sends nothing more; the study's own when empty."""


def control_assets(study: Study) -> list[dg.AssetsDefinition]:
    """`control_predictions` of ``study``; none where it asks for no control."""
    if not study.controls:
        return []

    @single_run_asset(
        **described(
            study,
            "control_predictions",
            "The same questions without their document, or over its evidence alone: never part of "
            "the measured curve.",
            # After the measurement: where the budget ends, it ends here.
            deps=["manifest", "predictions"],
            kinds={"python", "parquet"},
            table=CONTROL_PREDICTIONS,
        ),
        partitions_def=study_partitions(study),
        op_tags=device_tags(study),
        dagster_type=dg.Nothing,
    )
    def control_predictions(
        context: dg.AssetExecutionContext,
        config: ControlConfig,
        store: StoreResource,
        watch: dg.ResourceParam[Watch],
    ) -> Iterator[Any]:
        where = store.open()
        manifest = load_frozen(study, where)
        budget = Budget(usd=study.budget.usd if config.budget_usd is None else config.budget_usd)
        if config.budget_usd is None and watch.budget is not None:
            budget = watch.budget
        deadline_s = config.deadline_s or watch.deadline_s or study.calls.deadline_s
        until = None if deadline_s is None else time.monotonic() + deadline_s
        with open_ledger(where) as ledger:
            campaign = campaign_of(ledger, study, config.campaign)
            for model, bins in bins_by_model(study, asked_partitions(context, study)).items():
                narrator = Narrator(model, context.log.info, lambda _: None, watch.on_progress)
                summary = steps.measure_controls(
                    *(study, manifest, ledger, campaign, model, bins),
                    samples_per_bin=config.samples_per_bin,
                    budget=budget,
                    progress=narrator,
                    stop=watch.stop,
                    until=until,
                    say=watch.on_wait or context.log.info,
                )
                before = watch.calls.get(model)
                watch.calls[model] = summary if before is None else before.plus(summary)
                for bin in bins:
                    rows = steps.write_control_predictions(
                        study, where, manifest, ledger, campaign, model, bin
                    )
                    if not rows:
                        continue
                    path = where.control_file(
                        CONTROL_PREDICTIONS.name, study.name, campaign, model, bin
                    )
                    context.log_event(
                        dg.AssetMaterialization(
                            context.asset_key,
                            partition=partition_key(model, bin),
                            metadata=show.bin_metadata(campaign, rows, path, None),
                            tags=show.version_tags(
                                rows, asset_key(study, "manifest"), manifest.sha256
                            ),
                        )
                    )
                narrator.end(summary)
        # The events are out already, as those of `predictions` are.
        yield dg.Output(None, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})

    return [control_predictions]
