"""Assets of an experiment (documents, predictions, records, result), and a study's `report`.

The measuring step has its config, its progress reports and its handling of refusals.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError, EngineError
from contextcliff_dagster.defs import checks
from contextcliff_dagster.defs.asset_specs import (
    asset_key,
    decorated,
    described,
    group,
    study_asset,
)
from contextcliff_dagster.defs.automation import report_freshness
from contextcliff_dagster.defs.dagster_internals import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from contextcliff_dagster.defs.executors.gpu import device_tags
from contextcliff_dagster.defs.partitions import (
    Cells,
    add_campaign,
    campaign_of_run,
    campaign_partitions,
    cells_of_keys,
    document_partitions,
    every_cell,
    experiment_partitions,
    partition_key,
    tagged_cells,
    tagged_run,
)
from contextcliff_dagster.defs.places import pool_of, slot_taken
from contextcliff_dagster.defs.resources import ReportConfig, StoreResource, Watch
from contextcliff_dagster.defs.ui import calls, results
from contextcliff_dagster.defs.ui.calls import StepProgress
from contextcliff_dagster.defs.ui.results import range_of
from contextcliff_dagster.experiments.alert_channels import Senders, alert
from contextcliff_dagster.experiments.common.code_version import (
    documents_version,
    experiment_version,
)
from contextcliff_dagster.experiments.common.experiment import Experiment, Rows
from contextcliff_dagster.experiments.common.measurement import (
    Asked,
    measure_cells,
    planned_calls,
    require_known_answers,
    write_predictions,
)
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import asked_experiments, guests, partitioned
from contextcliff_dagster.experiments.study_report import write_study_report
from contextcliff_dagster.freed_memory import return_freed_memory
from contextcliff_dagster.inference.execution.measure import engines_kept, take_in_unplanned
from contextcliff_dagster.inference.execution.run_control import RunControl, deadline_after
from contextcliff_dagster.inference.ledger.batches import batches_of
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.requests.recipe import forget_shared_texts
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import Progress
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.experiment_table import load_experiment

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.


class MeasureConfig(dg.Config):
    """Config of a measuring run; empty fields take the study's values."""

    samples_per_bin: int | None = None
    """Examples per bin; a larger number than before measures only the new examples."""
    samples: dict[str, int] = {}  # noqa: RUF012 (Dagster copies a config's defaults)
    """Examples by bin for a targeted round; other bins are left unchanged."""
    why: str | None = None
    """Purpose of a targeted round, shown with each bin it measures."""
    budget_usd: float | None = None
    """Hard limit of the campaign in USD; if empty, the study's."""
    deadline_s: float | None = None
    """Seconds after which this run sends no more calls; if empty, the study's."""
    from_ledger_only: bool = False
    """Whether to rewrite the tables from the call ledger without making calls."""
    resume_batches: bool = False
    """Whether to take in the answers of open batches, and ask only what these have not answered."""


@dataclass(frozen=True)
class Measuring:
    """A measuring step, which reports to Dagster as it goes."""

    context: dg.AssetExecutionContext
    config: MeasureConfig
    watch: Watch
    run: StudyRun
    experiment: Experiment
    code_version: str
    done: set[tuple[str, str]] = field(default_factory=set)
    """Model and cell of each materialization that this step has logged."""
    progress: StepProgress = field(init=False)

    def __post_init__(self) -> None:
        progress = StepProgress(self._observe, self.watch.on_progress)
        object.__setattr__(self, "progress", progress)

    def _observe(self, text: str, metadata: dict[str, Any]) -> None:
        shown = {**metadata, "campaign": self.run.campaign}
        # A line and its numbers in one row of the event log.
        seen = dg.AssetObservation(self.context.asset_key, description=text, metadata=shown)
        self.context.log_event(seen)

    def keep(self, cells_of: Mapping[str, Sequence[str]]) -> None:
        """Record again, from the ledger, the up-to-date cells that this refused step did not reach.

        Without this, Dagster would mark every partition of a failed run as failed, even if it is
        still current. Stale partitions are left out.
        """
        for model, cells in cells_of.items():
            for cell in cells:
                if (model, cell) in self.done or not self._is_current(model, cell):
                    continue
                with suppress(ContextCliffError):  # what has refused the step is what is reported
                    if rows := write_predictions(self.run, self.experiment, model, cell):
                        self._finished(model, cell, rows, None)

    def _is_current(self, model: str, cell: str) -> bool:
        """Return whether the partition's last materialization has the current code version."""
        of = dg.AssetRecordsFilter(
            asset_key=self.context.asset_key,
            asset_partitions=[partition_key(self.run.campaign, model, cell)],
        )
        for record in self.context.instance.fetch_materializations(of, limit=1).records:
            tags = getattr(record.asset_materialization, "tags", None) or {}
            return tags.get("dagster/code_version") == self.code_version
        return False

    def measure(self, model: str, cells: list[str], control: RunControl) -> None:
        """Measure one model, or write its rows from the ledger; log one event per finished cell."""
        config, run, experiment = self.config, self.run, self.experiment
        cells = [cell for cell in cells if not config.samples or cell in config.samples]
        if config.from_ledger_only:
            for cell in cells:
                if rows := write_predictions(run, experiment, model, cell):
                    self._finished(model, cell, rows, None)
            return
        report_step(f"{'connecting to' if get_model(model).base_url else 'loading'} {model}")
        summary = measure_cells(
            run,
            experiment,
            Asked(model, cells, config.samples_per_bin, config.samples or None),
            replace(control, on_progress=self.progress.of(model)),
            lambda cell, rows: self._finished(model, cell, rows, self.progress.last),
        )
        if control.batching == "resume":
            name = (run.study.name, run.campaign)
            take_in_unplanned(name, get_model(model), run.ledger, control, self._planned)
        before = self.watch.calls.get(model)
        self.watch.calls[model] = summary if before is None else before.plus(summary)
        self.progress.ended(model, summary)
        if summary.in_batches:
            self._wait_for_batches(model, cells)

    def _planned(self, identity_hash: str) -> set[str]:
        """Return the keys of the calls that any experiment of the study plans."""
        run, every = self.run, asked_experiments(self.run.study)
        return {call.call_key for each in every for call in planned_calls(run, each, identity_hash)}

    def _wait_for_batches(self, model: str, cells: list[str]) -> None:
        """Show each cell that is not finished as waiting, with the open batches of its model."""
        of = {"study": self.run.study.name, "campaign": self.run.campaign, "model": model}
        opened = batches_of(self.run.ledger, is_open=True, **of)
        shown = {"waits for batches": ", ".join(b.remote_id or b.owner for b in opened)}
        for cell in cells:
            if (model, cell) not in self.done:
                key = partition_key(self.run.campaign, model, cell)
                text = "Waits for the answers of a batch."
                self.context.log_event(
                    dg.AssetObservation(
                        self.context.asset_key, partition=key, description=text, metadata=shown
                    )
                )

    def _finished(self, model: str, cell: str, rows: Rows, progress: Progress | None) -> None:
        self.done.add((model, cell))
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
        if experiment.by_bins:
            metadata = {"tokens": range_of(run.manifest.bins, cell), **metadata}
        if self.config.why:
            metadata["round"] = self.config.why
        self.context.log_event(
            dg.AssetMaterialization(
                self.context.asset_key,
                partition=partition_key(run.campaign, model, cell),
                metadata=metadata,
                tags=calls.version_tags(rows, self.code_version, self._sources()),
            )
        )

    def _sources(self) -> dict[dg.AssetKey, str]:
        """Return the sample assets that the predictions depend on, mapped to their versions."""
        run, experiment = self.run, self.experiment
        versions = {"manifest": run.manifest.sha256} if run.study.has_corpus else {}
        if experiment.documents and (made := experiment.documents.frozen(run.study, run.store)):
            versions |= dict.fromkeys(experiment.document_assets()[1:], made.sha256)
        return {asset_key(run.study, name): version for name, version in versions.items()}


def document_assets(study: Study, experiment: Experiment) -> list[dg.AssetsDefinition]:
    """Return the documents and manifest assets of ``experiment``, if it stores documents."""
    if (kept := experiment.documents) is None:
        return []
    documents_name, manifest_name = experiment.document_assets()
    code_version = documents_version(study, kept)
    partitions = document_partitions(study, experiment)

    @study_asset(
        study,
        documents_name,
        kept.description,
        kinds={"python", "parquet" if kept.table else "json"},
        table=kept.table,
        code_version=code_version,
        partitions_def=partitions,
        dagster_type=dg.Nothing,
    )
    def documents(
        context: dg.AssetExecutionContext, contextcliff_store: StoreResource
    ) -> Iterator[Any]:
        where = contextcliff_store.open()
        keys = [partitions.get_partition_key_from_str(key) for key in context.partition_keys]
        for done, key in enumerate(keys):
            report_step("documents", done, len(keys))
            made = kept.make(study, where, dict(key.keys_by_dimension))
            context.log_event(
                dg.AssetMaterialization(
                    context.asset_key,
                    partition=key,
                    metadata=dict(made.values),
                    tags={
                        "dagster/code_version": code_version,
                        "dagster/data_version": made.sha256,
                    },
                )
            )
        report_step("documents", len(keys), len(keys))
        # Each partition has its own event already: see `experiment_assets`.
        yield dg.Output(None, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})

    @study_asset(
        study,
        manifest_name,
        "The list of these documents with their hashes; missing documents are generated.",
        deps=[documents_name],
        kinds={"python", "json"},
        code_version=code_version,
    )
    def manifest(contextcliff_store: StoreResource) -> dg.MaterializeResult:
        listed = kept.freeze(study, contextcliff_store.open())
        return dg.MaterializeResult(
            # The hash: else an identical rerun would make everything downstream stale.
            data_version=dg.DataVersion(listed.sha256),
            metadata=dict(listed.values),
        )

    return [documents, manifest]


_RESULT = "The result of the experiment, computed from its records."


def experiment_assets(
    study: Study, experiment: Experiment, *, launched: bool = True
) -> list[dg.AssetsDefinition]:
    """Return the assets of ``experiment`` in ``study``; a guest has no records or result.

    ``launched``: whether Dagster launches the runs, which then share the limits of `places`.
    """
    assets = [*document_assets(study, experiment), _predictions(study, experiment, launched)]
    if experiment.host is None:
        assets += [_records(study, experiment), _result(study, experiment)]
    return assets


def _predictions(study: Study, experiment: Experiment, launched: bool) -> dg.AssetsDefinition:
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
        partitions_per_run=len(experiment.cells(study)),  # a backfill is one run per model
        op_tags=device_tags(study),
        pool=pool_of(study) if launched else None,
        # Nothing passes through an IO manager: downstream reads the store.
        dagster_type=dg.Nothing,
    )
    def predictions(
        context: dg.AssetExecutionContext,
        config: MeasureConfig,
        contextcliff_store: StoreResource,
        contextcliff_watch: dg.ResourceParam[Watch],
    ) -> Iterator[Any]:
        watch, step = contextcliff_watch, context.op_execution_context

        def on_wait(sentence: str) -> None:
            context.log.info(sentence)
            if watch.on_wait is not None:
                watch.on_wait(sentence)

        budget = Budget(usd=config.budget_usd) if config.budget_usd is not None else watch.budget
        deadline_s = config.deadline_s or watch.deadline_s or study.calls.deadline_s
        batching = "resume" if config.resume_batches else watch.batching
        control = RunControl(
            budget,
            deadline_after(deadline_s),
            watch.should_stop,
            on_wait=on_wait,
            batching=batching,
        )
        asked = _asked(context, study, experiment, contextcliff_store)
        for campaign, cells_of in asked.items():
            with tagged_run(study, contextcliff_store, campaign, may_begin=True) as run:
                require_known_answers(run, experiment, cells_of)
                measuring = Measuring(context, config, watch, run, experiment, code_version)
                try:
                    with engines_kept():
                        for model, cells in cells_of.items():
                            with slot_taken(step, model, control) if launched else nullcontext():
                                measuring.measure(model, cells, control)
                except ContextCliffError:
                    measuring.keep(cells_of)
                    raise
                finally:
                    measuring.progress.conclude()
        forget_shared_texts()
        return_freed_memory()  # the analysis needs memory, and so does the report
        # Each finished cell has logged its own materialization, so that a crash keeps those before
        # it. Downstream steps of this run wait for an output, but a plain one would record every
        # cell a second time: the mark tells Dagster that the events are out already.
        yield dg.Output(None, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})

    return predictions


def _asked(
    context: dg.AssetExecutionContext, study: Study, experiment: Experiment, store: StoreResource
) -> Cells:
    """Return the cells that the run measures; without partitions, all of the current campaign.

    Raises:
        StudyError: a partition is not one of this study.
    """
    if tagged_cells(context.run.tags, study, experiment):
        return cells_of_keys(study, experiment, map(str, context.partition_keys))
    with StudyRun.open(study, store.open()) as run:
        add_campaign(context.instance, study, run.campaign)
        return {run.campaign: every_cell(study, experiment)}


def _records(study: Study, experiment: Experiment) -> dg.AssetsDefinition:
    (name,) = experiment.asset_names("records")
    asked = [
        member for member in (experiment, *guests(experiment, study)) if member.is_asked(study)
    ]

    @decorated(
        dg.multi_asset,
        study,
        partitions_per_run=1,
        partitions_def=campaign_partitions(study),
        name=f"{group(study)}__{name}",
        specs=[
            dg.AssetSpec(
                **described(
                    study,
                    name,
                    experiment.records_description,
                    deps=[asset for member in asked for asset in member.asset_names("predictions")],
                    kinds={"python", "parquet"},
                    table=experiment.records,
                    code_version=experiment_version(study, experiment, "records"),
                )
            )
        ],
        check_specs=checks.specs(study, name, (c for c in experiment.checks if c.of == "records")),
        can_subset=True,  # a step need not make it, nor then its checks
    )
    def records(
        context: dg.AssetExecutionContext, contextcliff_store: StoreResource
    ) -> Iterator[dg.MaterializeResult]:
        with tagged_run(study, contextcliff_store, campaign_of_run(context)) as run:
            report_step("scoring the answers")
            table = experiment.score_campaign(run)
            for guest in guests(experiment, study):
                guest.score_campaign(run)
            own = experiment.check_records(run, table)
            outcomes = checks.of_newest(
                run, own, lambda of: experiment.check_records(of, experiment.read_record_table(of))
            )
        yield dg.MaterializeResult(
            metadata=results.records_metadata(run, experiment, table),
            check_results=_selected(context, checks.results(study, name, outcomes)),
        )
        if refused := checks.refused(experiment, own):
            raise EngineError(refused)

    return records


def _result(study: Study, experiment: Experiment) -> dg.AssetsDefinition:
    names = experiment.asset_names("result")
    described_by = experiment.result_descriptions
    options: dict[str, Any] = {
        "deps": [*experiment.asset_names("records"), *_sample(study, experiment)],
        "kinds": {"python", "json"},
        "code_version": experiment_version(study, experiment, "result"),
    }

    @decorated(
        dg.multi_asset,
        study,
        partitions_per_run=1,
        partitions_def=campaign_partitions(study),
        name=f"{group(study)}__{experiment.op_of_result()}",
        specs=[
            dg.AssetSpec(
                **described(
                    study,
                    name,
                    described_by.get(name, _RESULT),
                    table=results.result_table(name),
                    **options,
                )
            )
            for name in names
        ],
        check_specs=checks.specs(
            study, names[-1], (c for c in experiment.checks if c.of == "result")
        ),
        # Dagster lets a check without a result pass (as skipped) where a step need not make all.
        can_subset=True,
    )
    def result(
        context: dg.AssetExecutionContext,
        contextcliff_store: StoreResource,
        contextcliff_alerts: dg.ResourceParam[Senders],
    ) -> Iterator[dg.MaterializeResult]:
        report_step("analysing the scores")
        # One analysis gives all results: nothing is estimated twice.
        with tagged_run(study, contextcliff_store, campaign_of_run(context)) as run:
            records = experiment.read_records(run)
            of_guests = {guest.name: guest for guest in guests(experiment, study)}
            analysis = experiment.analyse(run, records, of_guests)
            experiment.write_results(run, analysis)
            own = experiment.check_results(run)
            outcomes = checks.of_newest(run, own, experiment.check_results)
        told = alert(study, run.store, analysis.alarm, context.log.warning, contextcliff_alerts)
        for channel in told:
            context.log.info(f"Alert sent to {channel}.")
        shown_checks = _selected(context, checks.results(study, names[-1], outcomes))
        skipped = checks.skipped(outcomes)
        for name, why in skipped.items():
            context.log.info(f"{name}: {why}")
        return_freed_memory()
        for name, metadata in results.result_metadata(run, experiment, analysis).items():
            last, key = name == names[-1], asset_key(study, name)
            if key in context.selected_asset_keys:
                shown = {**metadata, **skipped} if last else metadata
                yield dg.MaterializeResult(
                    key, metadata=shown, check_results=shown_checks if last else []
                )

    return result


def _selected(
    context: dg.AssetExecutionContext, results: Sequence[dg.AssetCheckResult]
) -> list[dg.AssetCheckResult]:
    """Return the results of the checks that the run has selected."""
    wanted = {(key.asset_key, key.name) for key in context.selected_asset_check_keys}
    return [result for result in results if (result.asset_key, result.check_name) in wanted]


def _sample(study: Study, experiment: Experiment) -> list[str]:
    return [*(["manifest"] if study.has_corpus else []), *experiment.document_assets()[1:]]


def report_asset(study: Study) -> dg.AssetsDefinition:
    """Return `report`, one page about all experiments of the study."""
    asked = partitioned(study)
    judged = [member.asset_names("result")[-1] for member in asked]
    records = [name for member in asked for name in member.asset_names("records")]
    versions = [experiment_version(study, member, "report") for member in asked]

    @study_asset(
        study,
        "report",
        "The report to read: HTML, Markdown, JSON and the picture of all models.",
        deps=[*judged, *records],
        kinds={"markdown", "matplotlib"},
        partitions_def=campaign_partitions(study),
        partitions_per_run=1,
        freshness_policy=report_freshness(study),
        code_version="-".join(versions),
    )
    def report(
        context: dg.AssetExecutionContext, config: ReportConfig, contextcliff_store: StoreResource
    ) -> dg.MaterializeResult:
        report_step("writing the report")
        with tagged_run(study, contextcliff_store, campaign_of_run(context)) as run:
            shown = replace(run, with_answers=config.with_answers)
            files = write_study_report(shown, context.log.warning)
            return_freed_memory()  # the picture for the UI needs memory
            return dg.MaterializeResult(metadata=results.report_metadata(run, files))

    return report
