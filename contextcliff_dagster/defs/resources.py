"""What assets are handed: the store, who watches the run, and DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import dagster as dg
from dagster_duckdb import DuckDBResource

from contextcliff_dagster.inference.progress import Progress, RunSummary
from contextcliff_dagster.store import Store, store_root


class StoreResource(dg.ConfigurableResource[Store]):
    """The store of results; ``root`` empty means CONTEXTCLIFF_HOME or its default."""

    root: str = ""

    def open(self) -> Store:
        from pathlib import Path

        return Store(Path(self.root)) if self.root else Store.default()


@dataclass
class Watch:
    """Who looks on while calls run: the command line's progress bar, or nobody.

    Assets report to ``on_progress`` (model, progress), ask ``stop`` between calls, and leave each
    model's summary in ``calls``.
    """

    on_progress: Callable[[str, Progress], None] | None = None
    stop: Callable[[], bool] | None = None
    calls: dict[str, RunSummary] = field(default_factory=dict)


def default_resources() -> dict[str, object]:
    """Resources of the code location."""
    store = Store(store_root())
    return {
        "store": StoreResource(),
        "watch": Watch(),
        "duckdb": DuckDBResource(database=str(store.duckdb_path)),
    }
