"""The experiment: does structure let a model use more of its context?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from contextcliff_dagster.experiments.common.documents import tokenizer_name
from contextcliff_dagster.experiments.common.experiment import (
    Analysis,
    CheckOutcome,
    Experiment,
    Rows,
    Source,
    Step,
)
from contextcliff_dagster.experiments.common.records import RECORD_CHECKS
from contextcliff_dagster.extensions.utilization.documents import (
    DOCUMENTS,
    UtilizationSamples,
    batch_file,
    batches_of,
    expected_rows,
    left_out,
    listed,
    section_of,
)
from contextcliff_dagster.extensions.utilization.extraction import EXTRACTION_VERSION
from contextcliff_dagster.extensions.utilization.prompts import Cell, cells_of, recipe_of
from contextcliff_dagster.extensions.utilization.results import (
    PLATEAU,
    UtilizationResult,
    check_plateau,
    difference_alarm,
    overview,
)
from contextcliff_dagster.extensions.utilization.section import UtilizationSection
from contextcliff_dagster.extensions.utilization.tables import (
    UTILIZATION_PREDICTIONS,
    UTILIZATION_RECORDS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd

    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.utilization.report.page import WrongAnswer
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section
    from contextcliff_dagster.studies import Study


class Utilization(Experiment):
    """The utilization experiment: the same records as JSON lines and as prose, from short to long,
    with questions about them."""

    name = "utilization"
    version = "2"  # of the shared contrast
    section = UtilizationSection
    example: ClassVar[Any] = {"benchmarks": ["warehouse"], "scales": ["1k-8k"]}
    makes_documents = True
    writes_page = True
    documents = DOCUMENTS
    predictions = UTILIZATION_PREDICTIONS
    records = UTILIZATION_RECORDS
    result = UtilizationResult
    description = "Answers about generated documents: every format and scale, one row per call."
    records_description = "Every answer scored: right or wrong, by how much, and why."
    result_descriptions: ClassVar[Mapping[str, str]] = {
        "utilization_result": "Where the formats diverge, and how far each is reliable, by model.",
    }
    checks = (*RECORD_CHECKS, PLATEAU)

    def cells(self, study: Study) -> tuple[str, ...]:
        return tuple(cell.key for cell in cells_of(section_of(study)))

    def samples_per_cell(self, study: Study) -> int:
        section = section_of(study)
        n = section.seeds * section.questions
        plan = study.sampling
        return min(n, plan.samples_per_bin) if "samples_per_bin" in plan.model_fields_set else n

    def recipe(self, study: Study) -> Recipe:
        """Return the recipe of the base arm."""
        return _recipe(study, cells_of(section_of(study))[0])

    def sources(self, run: StudyRun) -> Sequence[Source]:
        batches = {(b.benchmark, b.scale, b.seed): b for b in batches_of(run.study, run.store)}
        documents = list(listed(run.study, run.store))
        files = {
            row["document_id"]: batch_file(
                run.store, run.study.name, batches[row["benchmark"], row["scale"], row["seed"]]
            )
            for row in documents
        }
        return _sources(run.study, documents, files)

    def expected_sources(self, run: StudyRun) -> Sequence[Source]:
        if DOCUMENTS.frozen(run.study, run.store) is not None:
            return super().expected_sources(run)
        tokenizer = tokenizer_name(run.study, "utilization")
        batches = batches_of(run.study, run.store)
        rows = [row for batch in batches for row in expected_rows(batch, tokenizer)]
        return _sources(run.study, rows, {})

    def score(self, run: StudyRun, source: Source, rows: Rows) -> Rows:
        from contextcliff_dagster.experiments.common.records import examples_of
        from contextcliff_dagster.extensions.utilization.scoring import score_rows

        return score_rows(
            rows,
            examples_of(source, self.cells(run.study)),
            source.samples.document_text,
            (source.recipe or self.recipe(run.study)).answer_prefix or "",
        )

    def analyse(
        self, run: StudyRun, records: pd.DataFrame, contributions: Mapping[str, Experiment]
    ) -> Analysis:
        from contextcliff_dagster.experiments.common.study_run import context_of, in_order
        from contextcliff_dagster.extensions.utilization.analysis.answers import Scale
        from contextcliff_dagster.extensions.utilization.analysis.model import analyse_model
        from contextcliff_dagster.extensions.utilization.scales import scale_tokens
        from contextcliff_dagster.extensions.utilization.verification import unproved_sentence
        from contextcliff_dagster.inference.models.models_file import load_models

        study, section, entries = run.study, section_of(run.study), load_models()
        base = cells_of(section)[0].arm
        results = []
        for model in in_order(study, records["model"].unique()):
            entry = entries.get(model)
            window = entry.window_tokens if entry else None
            context = context_of(run, records, model, tokenizer_name(study, "utilization"), window)
            results.append(
                analyse_model(
                    records[records["model"] == model],
                    section.margin,
                    settings=study.analysis_settings(),
                    context=context,
                    formats=section.formats,
                    match=section.match,
                    evidence=base.evidence,
                    base_levels=base.levels,
                    asked=[Scale(label, scale_tokens(label)) for label in section.scales],
                )
            )
        if left_out(study, run.store):
            missing = unproved_sentence("is left out")
            results = [replace(one, warnings=[*one.warnings, missing]) for one in results]
        return Analysis(results, alarm=difference_alarm(results, run.campaign))

    def check_results(self, run: StudyRun) -> Sequence[CheckOutcome]:
        return [check_plateau(self.read_results(run))]

    def overview(self, result: UtilizationResult) -> Mapping[str, Any]:
        return overview(result)

    def sections(self, run: StudyRun, results: Sequence[Any]) -> Sequence[Section]:
        from contextcliff_dagster.extensions.utilization.report.page import utilization_page
        from contextcliff_dagster.reporting.sections import deeper

        return deeper(utilization_page(results, title="Utilization of the context by format").head)

    def write_report(self, run: StudyRun, others: Sequence[Section]) -> ReportFiles:
        from contextcliff_dagster.extensions.utilization.report.page import write_utilization_report

        wrong = self._wrong_answers(run) if run.with_answers else None
        return write_utilization_report(run, self.read_results(run), wrong, others)

    def _wrong_answers(self, run: StudyRun) -> Sequence[WrongAnswer]:
        from contextcliff_dagster.experiments.common.measurement import sources_of
        from contextcliff_dagster.experiments.common.records import examples_of
        from contextcliff_dagster.extensions.utilization.report.page import wrong_answers

        cells = self.cells(run.study)
        examples = {
            name: example
            for source in sources_of(run, self)
            for name, example in examples_of(source, cells).items()
        }
        return wrong_answers(self.read_records(run), examples)

    def depends_on(self, study: Study, step: Step) -> Mapping[str, Any]:
        if step == "predictions":
            cells = cells_of(section_of(study))
            recipes = {_recipe(study, cell).hash for cell in cells}
            return {"cells": [cell.key for cell in cells], "recipes": sorted(recipes)}
        if step == "records":
            return {"extraction": EXTRACTION_VERSION}
        if step == "result":
            return {**super().depends_on(study, step), "margin": section_of(study).margin}
        return super().depends_on(study, step)


def _sources(
    study: Study, documents: Iterable[Mapping[str, Any]], files: Mapping[str, Path]
) -> list[Source]:
    """Return one source per recipe, because prompt arms are asked one after the other."""
    by_recipe: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells_of(section_of(study)):
        by_recipe.setdefault((cell.arm.thought, cell.arm.question_place), []).append(cell)
    documents = list(documents)
    match = section_of(study).match
    return [
        Source(UtilizationSamples(cells, documents, match, files), recipe=_recipe(study, cells[0]))
        for cells in by_recipe.values()
    ]


def _recipe(study: Study, cell: Cell) -> Recipe:
    arm, limit = cell.arm, section_of(study).thought_tokens
    return recipe_of(study, arm.thought, arm.question_place, limit)


UTILIZATION = Utilization()
