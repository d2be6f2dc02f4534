"""Resources of the assets: the store, the run's watcher, a campaign, and DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import Progress, RunSummary
from contextcliff_dagster.store import Store, store_root

if TYPE_CHECKING:
    from contextcliff_dagster.inference.execution.cost_estimate import CostEstimate


@dataclass
class Watch:
    """Notifications to the caller of an in-process run, and the caller's requests.

    Assets report to ``on_progress`` (model, progress), say to ``on_wait`` what keeps them from
    beginning, ask ``should_stop`` between calls, keep to ``budget`` and ``deadline_s`` where their
    config names none, and leave each model's summary in ``calls``, what calls would cost in
    ``estimate``.
    """

    on_progress: Callable[[str, Progress], None] | None = None
    should_stop: Callable[[], bool] | None = None
    budget: Budget | None = None
    on_wait: Callable[[str], None] | None = None
    deadline_s: float | None = None
    calls: dict[str, RunSummary] = field(default_factory=dict)
    estimate: CostEstimate | None = None


class StoreResource(dg.ConfigurableResource[Store]):
    """The store of results; ``root`` empty means CONTEXTCLIFF_HOME or its default."""

    root: str = ""

    def open(self) -> Store:
        return Store(Path(self.root)) if self.root else Store.default()


class CampaignConfig(dg.Config):
    """Which measurement is meant."""

    campaign: str | None = None
    """A dated measurement; the current one when empty."""


class ReportConfig(CampaignConfig):
    """Which report is meant, and what goes into it."""

    with_answers: bool = False
    """Whether questions and answers go into report.html; documents are often private."""


def default_resources() -> dict[str, object]:
    """Return the resources of the code location."""
    from dagster_duckdb import DuckDBResource  # for others than the command line

    database = str(Store(store_root()).duckdb_path)
    return {"store": StoreResource(), "watch": Watch(), "duckdb": DuckDBResource(database=database)}
