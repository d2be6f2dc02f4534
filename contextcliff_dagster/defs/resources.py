"""Resources of the assets: the store, the run's watcher, a campaign, and DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from contextcliff_dagster.contracts import BatchesOpenError
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import Progress, RunSummary
from contextcliff_dagster.store import Store, store_root

if TYPE_CHECKING:
    from contextcliff_dagster.inference.execution.cost_estimate import CostEstimate
    from contextcliff_dagster.inference.execution.run_control import Batching


@dataclass
class Watch:
    """Callbacks, limits and results of an in-process run.

    Assets report progress to ``on_progress`` (model, progress) and reasons for waiting to
    ``on_wait``, and call ``should_stop`` between calls. ``budget``, ``deadline_s`` and ``batching``
    apply if an asset's config sets none. Assets store each model's summary in ``calls``, and the
    cost estimate in ``estimate``.
    """

    on_progress: Callable[[str, Progress], None] | None = None
    should_stop: Callable[[], bool] | None = None
    budget: Budget | None = None
    on_wait: Callable[[str], None] | None = None
    deadline_s: float | None = None
    batching: Batching | None = None
    calls: dict[str, RunSummary] = field(default_factory=dict)
    estimate: CostEstimate | None = None

    @property
    def in_batches(self) -> dict[str, int]:
        """Number of calls that wait for a batch's answers, by model."""
        return {name: done.in_batches for name, done in self.calls.items() if done.in_batches}

    def require_answers(self, study: str, campaign: str) -> None:
        """Raise BatchesOpenError if calls wait for a batch's answers."""
        if waiting := self.in_batches:
            raise BatchesOpenError(study, campaign, waiting)


class StoreResource(dg.ConfigurableResource[Store]):
    """The store of results; an empty ``root`` means CONTEXTCLIFF_HOME or its default."""

    root: str = ""

    def open(self) -> Store:
        return Store(Path(self.root)) if self.root else Store.default()


class CampaignConfig(dg.Config):
    """Config that selects a campaign."""

    campaign: str | None = None
    """Name of the campaign; the current one if empty."""


class ReportConfig(dg.Config):
    """Config of the report: its contents."""

    with_answers: bool = False
    """Whether report.html includes questions and answers; documents are often private."""


STORE, WATCH, DUCKDB = "contextcliff_store", "contextcliff_watch", "contextcliff_duckdb"
ALERTS = "contextcliff_alerts"
"""Keys of the resources: the names of the parameters that take them. `ALERTS` holds `Senders`."""


def run_resources(root: Path | str = "", watch: Watch | None = None) -> dict[str, object]:
    """Return the resources of a study's assets: the store at ``root`` (empty: its default)."""
    return {STORE: StoreResource(root=str(root)), WATCH: watch or Watch(), ALERTS: {}}


def default_resources(root: Path | str = "") -> dict[str, object]:
    """Return the resources of a code location: those of `run_resources`, and the store's DuckDB."""
    from dagster_duckdb import DuckDBResource  # not needed by the command line

    database = Store(Path(root or store_root())).duckdb_path
    return {**run_resources(root), DUCKDB: DuckDBResource(database=str(database))}
