"""Judging predictions: rows of the ledger to scored records, written by model and cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.experiments.common.measurement import EVERYTHING, ledger_rows
from contextcliff_dagster.store import read_table, write_table

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from contextcliff_dagster.contracts import Example, Table
    from contextcliff_dagster.experiments.common.experiment import Experiment, Rows, Source
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


def score_by_answers(experiment: Experiment, run: StudyRun, source: Source, rows: Rows) -> Rows:
    """Return `EVAL_RECORDS` of prediction rows: each answer against the accepted ones.

    Raises:
        StudyError: the study's scorer is unknown.
    """
    from contextcliff_dagster.scoring.evaluate import score_rows

    if not rows:
        return []
    study, recipe = run.study, experiment.recipe(run.study)
    scored = score_rows(
        rows,
        examples_of(source, experiment.cells(study)),
        source.samples.document_text,
        primary=study.scoring.primary,
        scorer=study.scoring.scorer,
        output_schema=recipe.output_schema,
        max_output_tokens=recipe.max_output_tokens,
        answer_prefix=recipe.answer_prefix or "",
    )
    return [{**record, **source.columns} for record in scored]


def examples_of(source: Source, cells: tuple[str, ...]) -> dict[str, Example]:
    """Return the examples of a source by their id."""
    return {
        sample.example.example_id: sample.example
        for cell in cells
        for sample in source.samples.planned(cell, EVERYTHING)
    }


def score_campaign(run: StudyRun, experiment: Experiment) -> None:
    """Score all that the ledger has of the campaign, of every model, and write the records.

    Sources that the study asks no longer are scored, too. Records whose outputs were pruned stay as
    they were judged.

    Raises:
        StoreError: a table cannot be written.
    """
    study, store = run.study, run.store
    sources = experiment.known_sources(run)
    cells = experiment.cells(study)
    for model in run.measured_models():
        by_cell: dict[str, list[dict[str, Any]]] = {}
        try:
            for source in sources:
                rows = ledger_rows(run, experiment, source, model, cells)
                for record in experiment.score(run, source, rows):
                    by_cell.setdefault(record["bin"], []).append(record)
        except StoreError:  # pruned
            continue
        for cell in cells:
            name = experiment.records.name
            file = store.table_file(name, study.name, run.campaign, model, cell)
            if cell in by_cell:
                write_table(file, by_cell[cell], experiment.records)
            else:
                file.unlink(missing_ok=True)


def table_files(store: Store, table: Table, study: str, campaign: str) -> list[Path]:
    """Return the files of one table and campaign, of every model and cell."""
    return sorted(store.campaign_dir(table.name, study, campaign).glob("model=*/bin=*/*.parquet"))


def read_record_table(table: Table, study: Study, store: Store, campaign: str) -> pa.Table:
    """Return all records of a campaign, of every model and cell.

    Raises:
        StoreError: there are none, or a table is damaged.
    """
    import pyarrow as pa

    files = table_files(store, table, study.name, campaign)
    if not files:
        raise StoreError(
            f"Study {study.name!r} has no {table.name.replace('_', ' ')} in campaign {campaign} "
            f"yet; run `contextcliff report {study.name}`."
        )
    return pa.concat_tables(read_table(file, table) for file in files)


def record_rows(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows; None where nothing is known (pandas has NaN there in columns of numbers)."""
    known = records.astype(object).where(records.notna(), None)
    return [dict(zip(known.columns, row, strict=True)) for row in known.itertuples(index=False)]
