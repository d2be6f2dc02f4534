"""Tables of a campaign, read from the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EVAL_RECORDS, StoreError, Table
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def table_files(
    store: Store, table: Table, study: str, campaign: str, model: str = "*"
) -> list[Path]:
    """Return the files of one table and campaign, of every cell; ``model``: a slug."""
    folder = store.campaign_dir(table.name, study, campaign)
    return sorted(folder.glob(f"model={model}/bin=*/*.parquet"))


def read_record_table(table: Table, study: Study, store: Store, campaign: str) -> pa.Table:
    """Return all records of a campaign; raises like `Experiment.read_record_table`."""
    import pyarrow as pa

    files = table_files(store, table, study.name, campaign)
    if not files:
        raise StoreError(
            f"Study {study.name!r} has no {table.name.replace('_', ' ')} in campaign {campaign} "
            f"yet; run `contextcliff report {study.name}`."
        )
    return pa.concat_tables(read_table(file, table) for file in files)


def read_records(study: Study, store: Store, campaign: str) -> pd.DataFrame:
    """Return the evaluation records of a campaign; raises like `read_record_table`."""
    records: pd.DataFrame = read_record_table(EVAL_RECORDS, study, store, campaign).to_pandas()
    return records


def record_rows(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows with None where nothing is known: pandas has NaN there in columns of numbers."""
    known = records.astype(object).where(records.notna(), None)
    return [dict(zip(known.columns, row, strict=True)) for row in known.itertuples(index=False)]
