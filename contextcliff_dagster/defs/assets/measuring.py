"""The measuring step: its config, its progress reports, and its handling of refusals."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.asset_specs import asset_key
from contextcliff_dagster.defs.partitions import partition_key
from contextcliff_dagster.defs.resources import CampaignConfig, Watch
from contextcliff_dagster.defs.ui import calls
from contextcliff_dagster.defs.ui.calls import StepProgress
from contextcliff_dagster.defs.ui.results import DIMENSION, range_of
from contextcliff_dagster.experiments.common.experiment import Experiment, Rows
from contextcliff_dagster.experiments.common.measurement import (
    Asked,
    measure_cells,
    write_predictions,
)
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.inference.execution.measure import RunControl
from contextcliff_dagster.inference.telemetry import Progress

# No `from __future__ import annotations` here: Dagster reads a config's fields off its annotations.


CODE_VERSION_TAG = "dagster/code_version"


class MeasureConfig(CampaignConfig):
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
            asset_partitions=[partition_key(self.experiment, model, cell)],
        )
        for record in self.context.instance.fetch_materializations(of, limit=1).records:
            made = record.asset_materialization
            return made is not None and (made.tags or {}).get(CODE_VERSION_TAG) == self.code_version
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
        summary = measure_cells(
            run,
            experiment,
            Asked(model, cells, config.samples_per_bin, config.samples or None),
            replace(control, on_progress=self.progress.of(model)),
            lambda cell, rows: self._finished(model, cell, rows, self.progress.last),
        )
        before = self.watch.calls.get(model)
        self.watch.calls[model] = summary if before is None else before.plus(summary)
        self.progress.ended(model, summary)

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
        if experiment.dimension == DIMENSION:
            metadata = {"tokens": range_of(run.manifest.bins, cell), **metadata}
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
        """Return the sample assets that the predictions depend on, mapped to their versions."""
        run, experiment = self.run, self.experiment
        versions = {"manifest": run.manifest.sha256} if run.study.has_corpus else {}
        if experiment.documents and (made := experiment.documents.frozen(run.study, run.store)):
            versions |= dict.fromkeys(experiment.document_assets()[1:], made.sha256)
        return {asset_key(run.study, name): version for name, version in versions.items()}
