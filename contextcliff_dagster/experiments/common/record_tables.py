"""Tables of a campaign, read from the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    UNSCORED_TAGS,
    StoreError,
    Table,
    conform,
)
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
    """Return the evaluation records of a campaign; raises like `read_record_table`.

    Answers that an earlier version of the scorers scored are scored again, and nothing is written:
    two campaigns are compared by one rule.
    """
    from contextcliff_dagster.scoring import SCORER_VERSION

    table = read_record_table(EVAL_RECORDS, study, store, campaign)
    if set(table["scorer_version"].unique().to_pylist()) != {SCORER_VERSION}:
        table = _scored_again(table, study, store)
    records: pd.DataFrame = table.to_pandas()
    return records


def _scored_again(table: pa.Table, study: Study, store: Store) -> pa.Table:
    """The records, older ones scored by the present scorers; those whose output was pruned, or
    whose example is no longer in the sample, as they are."""
    from contextcliff_dagster.experiments.common.measurement import EVERYTHING
    from contextcliff_dagster.experiments.common.preparation import find_frozen
    from contextcliff_dagster.experiments.common.records import scoring_rules
    from contextcliff_dagster.scoring import SCORER_VERSION
    from contextcliff_dagster.scoring.evaluate import score_rows

    if (manifest := find_frozen(study, store)) is None:
        return table
    planned = [s.example for b in study.bin_keys for s in manifest.planned(b, EVERYTHING)]
    by_id = {example.example_id: example for example in planned}
    rows = table.to_pylist()
    older = [
        index
        for index, row in enumerate(rows)
        if row["scorer_version"] != SCORER_VERSION
        and row["failure"] not in UNSCORED_TAGS
        and row["raw_output"] is not None
        and row["example_id"] in by_id
    ]
    answers = [rows[index] for index in older]
    rules = scoring_rules(study, study.recipe())
    for index, row in zip(
        older, score_rows(answers, by_id, manifest.document_text, rules), strict=True
    ):
        rows[index] = row
    return conform(rows, EVAL_RECORDS)


def record_rows(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows with None where nothing is known: pandas has NaN there in columns of numbers."""
    known = records.astype(object).where(records.notna(), None)
    return [dict(zip(known.columns, row, strict=True)) for row in known.itertuples(index=False)]
