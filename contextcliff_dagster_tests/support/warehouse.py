"""What a project of the UI's page takes from `dagster-duckdb-pandas`, where that is not installed.

Version 0.29 wants pandas 2, and the locked versions have pandas 3.
"""

from __future__ import annotations

import dagster as dg
import duckdb
import pandas as pd


class DuckDBPandasIOManager(dg.ConfigurableIOManager):
    """Writes each DataFrame as the table ``prefix.name`` of its asset's key."""

    database: str

    def handle_output(self, context: dg.OutputContext, obj: pd.DataFrame) -> None:
        schema, name = context.asset_key.path
        with duckdb.connect(self.database) as connection:
            connection.register("obj", obj)
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            connection.execute(f"CREATE OR REPLACE TABLE {schema}.{name} AS FROM obj")

    def load_input(self, context: dg.InputContext) -> pd.DataFrame:
        raise NotImplementedError
