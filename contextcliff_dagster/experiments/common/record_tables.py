"""The evaluation records of a campaign, as they lie in the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EVAL_RECORDS, StoreError
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pandas as pd


def read_records(study: Study, store: Store, campaign: str) -> pd.DataFrame:
    """Return all evaluation records of the campaign.

    Raises:
        StoreError: there are none, or a table is damaged.
    """
    import pyarrow as pa

    paths = partition_files(store.campaign_dir("eval_records", study.name, campaign))
    if not paths:
        raise StoreError(
            f"Study {study.name!r} has no evaluation records in campaign {campaign} yet; "
            "materialize `eval_records` first."
        )
    records: pd.DataFrame = pa.concat_tables(read_table(p, EVAL_RECORDS) for p in paths).to_pandas()
    return records


def record_rows(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows with None where nothing is known: pandas has NaN there in columns of numbers."""
    known = records.astype(object).where(records.notna(), None)
    return [dict(zip(known.columns, row, strict=True)) for row in known.itertuples(index=False)]


def partition_files(folder: Path) -> list[Path]:
    """Return the files of a campaign's table, one a model and bin (layout: ``Store``)."""
    return sorted(folder.glob("model=*/bin=*/*.parquet"))
