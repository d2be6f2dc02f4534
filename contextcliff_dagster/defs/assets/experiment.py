"""The assets of any experiment, predictions, records and result."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from contextcliff_dagster.defs import checks
from contextcliff_dagster.defs.alerts.channels import alert
from contextcliff_dagster.defs.asset_specs import (
    FOLLOW_RECORDS,
    asset_key,
    described,
    group,
    single_run,
    study_asset,
)
from contextcliff_dagster.defs.assets.documents import document_assets
from contextcliff_dagster.defs.dagster_internals import (
    SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION,
)
from contextcliff_dagster.defs.executors.device_tags import device_tags
from contextcliff_dagster.defs.partitions import (
    cells_by_model,
    experiment_partitions,
    partition_key,
    tagged_partitions,
)
from contextcliff_dagster.defs.resources import CampaignConfig, StoreResource, Watch
from contextcliff_dagster.defs.ui import calls, results
from contextcliff_dagster.defs.ui.progress_log import Narrator
from contextcliff_dagster.experiments.common.code_version import experiment_version
from contextcliff_dagster.experiments.common.experiment import Experiment, Rows
from contextcliff_dagster.experiments.common.lost_answers import require_known_answers
from contextcliff_dagster.experiments.common.measurement import (
    Asked,
    measure_cells,
    write_predictions,
)
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import guests
from contextcliff_dagster.freed_memory import return_freed_memory
from contextcliff_dagster.inference.execution.run_control import RunControl, deadline_after
from contextcliff_dagster.inference.requests.shared_document import forget_shared_texts
from contextcliff_dagster.inference.spending.budget import Budget
from contextcliff_dagster.inference.telemetry.progress import Progress
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.experiment_table import load_experiment


class MeasureConfig(CampaignConfig):
    """What to measure; everything empty means as the study says."""

    samples_per_bin: int | None = None
    """Examples per bin. More than last time tops up: only what is new is asked."""
    samples: dict[str, int] = {}  # noqa: RUF012 (Dagster copies a config's defaults)
    """Examples by bin, as a targeted round asks for; bins not named are left as they are."""
    why: str | None = None
    """What a targeted round is for, shown with each bin it measures."""
    budget_usd: float | None = None
    """Hard limit of the campaign in USD; the study's own when empty."""
    deadline_s: float | None = None
    """Seconds after which this run sends nothing more; the study's own when empty."""
    from_ledger_only: bool = False
    """Write the tables again from the call ledger and make no call."""


_RESULT = "What follows from the records."


def experiment_assets(study: Study, experiment: Experiment) -> list[dg.AssetsDefinition]:
    """Return the assets of ``experiment`` in ``study``; a guest has its predictions alone."""
    assets = [*document_assets(study, experiment), _predictions(study, experiment)]
    if experiment.host is None:
        assets += [_records(study, experiment), _result(study, experiment)]
    return assets


def _predictions(study: Study, experiment: Experiment) -> dg.AssetsDefinition:
    (name,) = experiment.asset_names("predictions")
    deps = _sample(study, experiment)
    if experiment.host is not None:
        # After its host: where the budget ends, it ends there.
        deps += load_experiment(experiment.host).asset_names("predictions")
    code_version = experiment_version(study, experiment, "predictions")

    @study_asset(
        study,
        name,
        experiment.description,
        deps=deps,
        kinds={"python", "parquet"},
        table=experiment.predictions,
        code_version=code_version,
        partitions_def=experiment_partitions(study, experiment),
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
        def on_wait(sentence: str) -> None:
            context.log.info(sentence)
            if watch.on_wait is not None:
                watch.on_wait(sentence)

        budget = Budget(usd=config.budget_usd) if config.budget_usd is not None else watch.budget
        deadline_s = config.deadline_s or watch.deadline_s or study.calls.deadline_s
        control = RunControl(budget, deadline_after(deadline_s), watch.should_stop, on_wait=on_wait)
        # Not `partition_keys` alone: a backfill of a job tags each run with its range and with the
        # dimensions of the range's first partition, which is then all that they hold.
        partitions = tagged_partitions(context.run.tags, study, experiment)
        cells_of = cells_by_model(study, partitions or context.partition_keys)
        with StudyRun.open(study, store.open(), config.campaign) as run:
            require_known_answers(run, experiment, cells_of)
            measuring = _Measuring(context, config, watch, run, experiment, code_version)
            for model, cells in cells_of.items():
                measuring.measure(model, cells, control)
        forget_shared_texts()
        return_freed_memory()  # the analysis takes its own room, and so does the report
        # Each finished cell has logged its own materialization, so that a crash keeps those before
        # it. Downstream steps of this run wait for an output, but a plain one would record every
        # cell a second time: the mark tells Dagster that the events are out already.
        yield dg.Output(None, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})

    return predictions


@dataclass(frozen=True)
class _Measuring:
    """A step that measures, and what it reports to Dagster meanwhile."""

    context: dg.AssetExecutionContext
    config: MeasureConfig
    watch: Watch
    run: StudyRun
    experiment: Experiment
    code_version: str

    def measure(self, model: str, cells: list[str], control: RunControl) -> None:
        """Measure one model, or write what the ledger has; one event a finished cell."""
        config, run, experiment = self.config, self.run, self.experiment
        cells = [cell for cell in cells if not config.samples or cell in config.samples]
        if config.from_ledger_only:
            for cell in cells:
                if rows := write_predictions(run, experiment, model, cell):
                    self._finished(model, cell, rows, None)
            return

        def observe(metadata: dict[str, Any]) -> None:
            shown = {**metadata, "campaign": run.campaign}
            self.context.log_event(dg.AssetObservation(self.context.asset_key, metadata=shown))

        narrator = Narrator(model, self.context.log.info, observe, self.watch.on_progress)
        summary = measure_cells(
            run,
            experiment,
            Asked(model, cells, config.samples_per_bin, config.samples or None),
            replace(control, on_progress=narrator),
            lambda cell, rows: self._finished(model, cell, rows, narrator.last),
        )
        before = self.watch.calls.get(model)
        self.watch.calls[model] = summary if before is None else before.plus(summary)
        narrator.end(summary)

    def _finished(self, model: str, cell: str, rows: Rows, progress: Progress | None) -> None:
        run, experiment = self.run, self.experiment
        table = experiment.predictions.name
        metadata = calls.bin_metadata(
            run.campaign,
            rows,
            run.store.table_file(table, run.study.name, run.campaign, model, cell),
            experiment.merged_cells(run).get(cell),
            maybe_paid=run.ledger.maybe_paid(row["call_key"] for row in rows),
            progress=progress,
        )
        if self.config.why:
            metadata["round"] = self.config.why
        self.context.log_event(
            dg.AssetMaterialization(
                self.context.asset_key,
                partition=partition_key(experiment, model, cell),
                metadata=metadata,
                tags=calls.version_tags(rows, self.code_version, self._sources()),
            )
        )

    def _sources(self) -> dict[dg.AssetKey, str]:
        """The samples that the predictions are made of, with their versions."""
        run, experiment = self.run, self.experiment
        versions = {"manifest": run.manifest.sha256} if run.study.has_corpus else {}
        if experiment.documents and (made := experiment.documents.frozen(run.study, run.store)):
            versions |= dict.fromkeys(experiment.document_assets()[1:], made.sha256)
        return {asset_key(run.study, name): version for name, version in versions.items()}


def _records(study: Study, experiment: Experiment) -> dg.AssetsDefinition:
    (name,) = experiment.asset_names("records")
    asked = [one for one in (experiment, *guests(experiment)) if one.is_asked(study)]

    @study_asset(
        study,
        name,
        experiment.records_description,
        deps=[asset for one in asked for asset in one.asset_names("predictions")],
        kinds={"python", "parquet"},
        table=experiment.records,
        automation_condition=FOLLOW_RECORDS,
        code_version=experiment_version(study, experiment, "records"),
        check_specs=checks.specs(study, name, (c for c in experiment.checks if c.of == "records")),
    )
    def records(config: CampaignConfig, store: StoreResource) -> dg.MaterializeResult:
        with StudyRun.open(study, store.open(), config.campaign) as run:
            table = experiment.score_campaign(run)
            for guest in guests(experiment):
                guest.score_campaign(run)
            outcomes = experiment.check_records(run, table)
        return dg.MaterializeResult(
            metadata=results.records_metadata(run, experiment, table),
            check_results=checks.results(study, name, outcomes),
        )

    return records


def _result(study: Study, experiment: Experiment) -> dg.AssetsDefinition:
    names = experiment.asset_names("result")
    described_by = experiment.result_descriptions
    options: dict[str, Any] = {
        "deps": [*experiment.asset_names("records"), *_sample(study, experiment)],
        "kinds": {"python", "json"},
        "automation_condition": FOLLOW_RECORDS,
        "code_version": experiment_version(study, experiment, "result"),
    }

    @single_run(
        dg.multi_asset,
        name=f"{group(study)}__{experiment.op_of_result()}",
        specs=[
            dg.AssetSpec(**described(study, name, described_by.get(name, _RESULT), **options))
            for name in names
        ],
        check_specs=checks.specs(
            study, names[-1], (c for c in experiment.checks if c.of == "result")
        ),
    )
    def result(
        context: dg.AssetExecutionContext, config: CampaignConfig, store: StoreResource
    ) -> Iterator[dg.MaterializeResult]:
        # One analysis gives all results: nothing is estimated twice.
        with StudyRun.open(study, store.open(), config.campaign) as run:
            records = experiment.read_records(run)
            of_guests = {guest.name: guest for guest in guests(experiment)}
            analysis = experiment.analyse(run, records, of_guests)
            experiment.write_results(run, analysis)
        for channel in alert(study, run.store, analysis.alarm, context.log.warning):
            context.log.info(f"Alert sent to {channel}.")
        outcomes = checks.results(study, names[-1], analysis.checks)
        return_freed_memory()
        for name, metadata in results.result_metadata(run, experiment, analysis).items():
            yield dg.MaterializeResult(
                asset_key(study, name),
                metadata=metadata,
                check_results=outcomes if name == names[-1] else [],
            )

    return result


def _sample(study: Study, experiment: Experiment) -> list[str]:
    return [*(["manifest"] if study.has_corpus else []), *experiment.document_assets()[1:]]
