"""Judging predictions: rows of the ledger to scored records, written by model and cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.experiments.common.measurement import (
    EVERYTHING,
    ledger_rows,
    recipe_of,
    sources_of,
)
from contextcliff_dagster.store import write_table

if TYPE_CHECKING:
    from contextcliff_dagster.contracts import Example
    from contextcliff_dagster.experiments.common.experiment import Experiment, Rows, Source
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.scoring.evaluate import ScoringRules
    from contextcliff_dagster.studies import Study


def score_by_answers(experiment: Experiment, run: StudyRun, source: Source, rows: Rows) -> Rows:
    """Return `EVAL_RECORDS` of prediction rows: each answer against the accepted ones.

    Raises:
        StudyError: the study's scorer is unknown.
    """
    from contextcliff_dagster.scoring.evaluate import score_rows

    if not rows:
        return []
    scored = score_rows(
        rows,
        examples_of(source, experiment.cells(run.study)),
        source.samples.document_text,
        scoring_rules(run.study, recipe_of(experiment, source, run.study)),
    )
    return [{**record, **source.columns} for record in scored]


def scoring_rules(study: Study, recipe: Recipe) -> ScoringRules:
    """Return how answers to requests of ``recipe`` are scored in ``study``."""
    from contextcliff_dagster.scoring.evaluate import ScoringRules

    return ScoringRules(
        study.scoring.primary,
        study.scoring.scorer,
        recipe.output_schema,
        recipe.max_output_tokens,
        recipe.answer_prefix or "",
        study.scoring.labels or (),
        study.scoring.thought_tags or (),
    )


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
    sources = sources_of(run, experiment, known=True)
    cells = experiment.cells(study)
    for model in run.identified_models():
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
