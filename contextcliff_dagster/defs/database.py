"""The asset `database`: the DuckDB file `contextcliff.duckdb`, rebuilt whole."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

import glob
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
from dagster_duckdb import DuckDBResource

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.defs.asset_specs import DATABASE, asset_key, decorated, key_prefix
from contextcliff_dagster.defs.resources import DUCKDB, StoreResource
from contextcliff_dagster.defs.ui.rendering import table
from contextcliff_dagster.experiments.lookup import asked_experiments
from contextcliff_dagster.experiments.sql_tables import contents, fill, shown_tables
from contextcliff_dagster.private_files import folder_lock, make_folder, private_umask
from contextcliff_dagster.store import atomic_path
from contextcliff_dagster.studies import Study


def _rebuild(resource: DuckDBResource, root: Path) -> tuple[str, list[dict[str, Any]]]:
    """Rebuild the resource's database; return its path and contents.

    A file is replaced, once the new one has been read; a process that has the old one open keeps
    it. What is no file (memory, MotherDuck) is filled in place. Raises StoreError.
    """
    if re.match(r":memory:|\w\w+:|$", resource.database):
        with resource.get_connection() as connection:
            fill(connection, root)
            return resource.database.partition("?")[0], contents(connection)  # ?: a token
    path = Path(resource.database).expanduser().resolve()
    make_folder(path.parent)
    try:
        with folder_lock(path.parent), atomic_path(path) as new:
            # The empty file, which DuckDB would refuse, and what killed runs have left.
            for file in path.parent.glob(f".{glob.escape(path.name)}.{'?' * 32}.tmp*"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            there = resource.model_copy(update={"database": str(new)})
            with private_umask(), there.get_connection() as connection:
                fill(connection, root)
            with duckdb.connect(new, read_only=True, config=resource.connection_config) as built:
                found = contents(built)
            # Changes that a process made to the old file: the new one would not open beside them.
            for end in (".wal", ".wal.checkpoint", ".wal.recovery"):
                path.with_name(path.name + end).unlink(missing_ok=True)
    except duckdb.Error as error:
        raise StoreError(
            f"{path} was not rebuilt and stays as it was: {str(error).splitlines()[0]} (if a "
            "Parquet file is at fault, delete it and run its study again: no call is made)."
        ) from error
    return str(path), found


def database_asset(studies: Sequence[Study], *parents: str) -> dg.AssetsDefinition:
    """Return the asset ``database``, downstream of all studies; its key is below ``parents``."""

    @decorated(
        dg.asset,
        key=dg.AssetKey([*key_prefix(), *parents, DATABASE]),
        deps=[
            asset_key(study, name)
            for study in studies
            for experiment in asked_experiments(study)
            for name in (*experiment.asset_names("records"), *experiment.asset_names("result")[-1:])
        ],
        description=(
            "contextcliff.duckdb, rebuilt whole: views over the Parquet files of all experiments "
            f"({', '.join(f'`{t.name}`' for t in shown_tables())}), tables `cliffs`, `bins` and "
            "`bin_ranges`, and the view `partitions`; comments describe them and their columns."
        ),
        group_name="database",
        kinds={"duckdb"},
        pool=DUCKDB,
    )
    def database(
        contextcliff_store: StoreResource, contextcliff_duckdb: DuckDBResource
    ) -> dg.MaterializeResult:
        path, found = _rebuild(contextcliff_duckdb, contextcliff_store.open().root)
        return dg.MaterializeResult(
            metadata={"path": dg.MetadataValue.path(path), "contents": table(found)}
        )

    return database
