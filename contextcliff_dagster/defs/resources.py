"""What assets are handed: the store, who watches the run, and DuckDB."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from dagster_duckdb import DuckDBResource

from contextcliff_dagster.defs.watch import Watch
from contextcliff_dagster.store import Store, store_root


class StoreResource(dg.ConfigurableResource[Store]):
    """The store of results; ``root`` empty means CONTEXTCLIFF_HOME or its default."""

    root: str = ""

    def open(self) -> Store:
        return Store(Path(self.root)) if self.root else Store.default()


def default_resources() -> dict[str, object]:
    """Resources of the code location."""
    store = Store(store_root())
    return {
        "store": StoreResource(),
        "watch": Watch(),
        "duckdb": DuckDBResource(database=str(store.duckdb_path)),
    }
