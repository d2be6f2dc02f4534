"""The experiment: how does a model's prose change as its context grows?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from contextcliff_dagster.experiments.common.documents import tokenizer_name
from contextcliff_dagster.experiments.common.experiment import (
    Analysis,
    Experiment,
    Rows,
    Source,
    Step,
)
from contextcliff_dagster.experiments.common.records import RECORD_CHECKS
from contextcliff_dagster.extensions.continuation.documents import (
    DOCUMENTS,
    listed,
    part_file,
    part_of,
    passages,
    plan_of,
    require_texts,
    section_of,
)
from contextcliff_dagster.extensions.continuation.prompts import instruction_of, recipe_of
from contextcliff_dagster.extensions.continuation.section import (
    BASE,
    Cell,
    ContinuationSection,
    cells_of,
)
from contextcliff_dagster.extensions.continuation.tables import (
    CONTINUATION_PREDICTIONS,
    CONTINUATION_RECORDS,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.continuation.noise import Authors
    from contextcliff_dagster.extensions.continuation.results import ContinuationResult
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section
    from contextcliff_dagster.studies import Study


class Continuation(Experiment):
    """Experiment that continues texts at every context size and compares the prose with the
    author's own."""

    name = "continuation"
    version = "2"  # of the shared contrast
    section = ContinuationSection
    example: ClassVar[Any] = {"texts": ["novel.txt"]}
    makes_documents = True
    writes_page = True
    documents = DOCUMENTS
    predictions = CONTINUATION_PREDICTIONS
    records = CONTINUATION_RECORDS
    description = "Continuations of texts at every point, size and round; one row per call."
    records_description = (
        "Measurements of every continuation: prose metrics, score against the author's prose, "
        "kind of collapse, words shared with the author's text, coherence."
    )
    result_descriptions: ClassVar[Mapping[str, str]] = {
        "continuation_result": "Context sizes at which prose declines or collapses, and how "
        "the arms differ.",
    }
    checks = RECORD_CHECKS

    def cells(self, study: Study) -> tuple[str, ...]:
        return tuple(cell.key for cell in cells_of(section_of(study)))

    def samples_per_cell(self, study: Study) -> int:
        section, plan = section_of(study), study.sampling
        n = section.passages * len(section.texts)
        return min(n, plan.samples_per_bin) if "samples_per_bin" in plan.model_fields_set else n

    def recipe(self, study: Study) -> Recipe:
        """Return the recipe of the first temperature."""
        section = section_of(study)
        return recipe_of(study, section, section.temperature[0])

    def sources(self, run: StudyRun) -> Sequence[Source]:
        rows = listed(run.study, run.store)
        files = {
            row["document_id"]: part_file(run.store, run.study.name, row["source"], part_of(row))
            for row in rows
            if row["kind"] == "context"
        }
        return _sources(run.study, rows, files)

    def expected_sources(self, run: StudyRun) -> Sequence[Source]:
        if DOCUMENTS.frozen(run.study, run.store) is not None:
            return super().expected_sources(run)
        require_texts(run.study)
        return _sources(run.study, _expected(run.study), {})

    def score(self, run: StudyRun, source: Source, rows: Rows) -> Rows:
        from contextcliff_dagster.experiments.common.records import examples_of
        from contextcliff_dagster.extensions.continuation.scoring import CoherenceMeter, score_rows

        return score_rows(
            rows,
            examples_of(source, self.cells(run.study)),
            None if section_of(run.study).compat else _authors(run),
            (source.recipe or self.recipe(run.study)).answer_prefix or "",
            run.once("continuation coherence", lambda: CoherenceMeter.of_run(run)),
        )

    def analyse(
        self, run: StudyRun, records: pd.DataFrame, contributions: Mapping[str, Experiment]
    ) -> Analysis:
        from contextcliff_dagster.contracts.results.json_form import Missing
        from contextcliff_dagster.experiments.common.study_run import context_of, in_order
        from contextcliff_dagster.extensions.continuation.analysis.metric_means import with_metrics
        from contextcliff_dagster.extensions.continuation.analysis.model import analyse_model
        from contextcliff_dagster.extensions.continuation.scoring import missing_sentence
        from contextcliff_dagster.inference.models.models_file import load_models
        from contextcliff_dagster.reporting.wording import unanswered_sentence

        study = run.study
        models = in_order(study, records["model"].unique())
        if section_of(study).compat:
            from contextcliff_dagster.extensions.continuation.compat.report import result_of

            return Analysis([result_of(run, self, model) for model in models])
        entry = load_models().get(models[0])
        window = entry.window_tokens if entry else None
        context = context_of(
            run, records, ", ".join(models), tokenizer_name(study, "continuation"), window
        )
        unanswered = Missing.of(records["failure"])
        answered = len(records) - unanswered.total
        remarks = [unanswered_sentence(unanswered, answered), missing_sentence(study, records)]
        context = replace(context, warnings=[*context.warnings, *filter(None, remarks)])
        heats = section_of(study).temperature
        labelled = records.assign(
            arm=[
                _arm_label(model, arm, models, heats)
                for model, arm in zip(records["model"], records["arm"], strict=True)
            ]
        )
        arms = list(dict.fromkeys(cell.arm for cell in cells_of(section_of(study))))
        present = set(labelled["arm"])
        labels = [_arm_label(model, arm, models, heats) for model in models for arm in arms]
        result = analyse_model(
            labelled,
            section_of(study).margin,
            settings=study.analysis_settings(),
            context=context,
            arms=[label for label in labels if label in present],
            asked=section_of(study).sizes,
            human=_authors(run).human_scores(),
        )
        result = replace(result, embedder=next(iter(records["embedder"].dropna()), None))
        return Analysis([with_metrics(result, labelled, _authors(run), study.analysis_settings())])

    def overview(self, result: ContinuationResult | dict[str, Any]) -> Mapping[str, Any]:
        from contextcliff_dagster.extensions.continuation.report.page import overview

        return {} if isinstance(result, dict) else overview(result)

    def read_results(self, run: StudyRun) -> Sequence[Any]:
        from contextcliff_dagster.experiments.common.experiment import read_results
        from contextcliff_dagster.extensions.continuation.results import ContinuationResult

        return read_results(run, self, dict if section_of(run.study).compat else ContinuationResult)

    def sections(self, run: StudyRun, results: Sequence[Any]) -> Sequence[Section]:
        from contextcliff_dagster.extensions.continuation.compat.report import compat_page
        from contextcliff_dagster.extensions.continuation.report.page import continuation_page
        from contextcliff_dagster.reporting.sections import deeper

        if section_of(run.study).compat:
            page = compat_page(results, "Prose by context size, as Context-Tester measures it")
            return deeper(page.flat())
        page = continuation_page(results, title="Prose by context size")
        return deeper(page.head)

    def write_report(self, run: StudyRun, others: Sequence[Section]) -> ReportFiles:
        from contextcliff_dagster.extensions.continuation.compat.report import write_compat_report
        from contextcliff_dagster.extensions.continuation.report.page import (
            write_continuation_report,
        )

        write = write_compat_report if section_of(run.study).compat else write_continuation_report
        return write(run, self.read_results(run), others)

    def depends_on(self, study: Study, step: Step) -> Mapping[str, Any]:
        from contextcliff_dagster.extensions.continuation.scoring import (
            SCORING_VERSION,
            embedder_name,
            is_required,
        )

        section = section_of(study)
        if step == "predictions":
            cells = cells_of(section)
            recipes = {recipe_of(study, section, cell.temperature).hash for cell in cells}
            further = {"further": section.further_rounds} if section.further_rounds else {}
            return {"cells": [cell.key for cell in cells], "recipes": sorted(recipes), **further}
        if step == "records":
            embedder = embedder_name(study) if is_required(study) else None
            return {"scoring": SCORING_VERSION, "embedder": embedder}
        if step == "result":
            word_list = {"word_list": section.word_list} if section.compat else {}
            return {**super().depends_on(study, step), "margin": section.margin, **word_list}
        return super().depends_on(study, step)


def _authors(run: StudyRun) -> Authors:
    from contextcliff_dagster.extensions.continuation.noise import Authors

    return run.once("continuation authors", lambda: Authors.of(passages(run.study, run.store)))


def _arm_label(model: str, arm: str, models: Sequence[str], heats: Sequence[float]) -> str:
    """Return an arm's name in the result: its temperature, and the model if there are several."""
    if arm == BASE:
        arm = f"temperature {heats[0]:g}" if len(heats) > 1 else ""
    return ", ".join([*([model] if len(models) > 1 else ()), *([arm] if arm else ())]) or model


def _expected(study: Study) -> list[dict[str, Any]]:
    """Return rows with the columns `documents.LISTED` for contexts that do not exist yet."""
    plan, section = plan_of(study), section_of(study)
    return [
        {
            "document_id": hashlib.sha256(f"{text} {number} {size}".encode()).hexdigest(),
            "kind": "context",
            "source": text,
            "passage": f"{text}-{number:02d}",
            "context_tokens": size,
            "length_tokens": size - plan.reserved,
        }
        for text in section.text_names
        for number in range(section.passages)
        for size in plan.sizes
    ]


def _sources(
    study: Study, rows: Sequence[Mapping[str, Any]], files: Mapping[str, Path]
) -> list[Source]:
    """Return a source for each temperature and number of rounds; sources run one after another."""
    from contextcliff_dagster.extensions.continuation.documents import ContinuationSamples

    section = section_of(study)
    cells_by_run: dict[tuple[float, int], list[Cell]] = {}
    for cell in cells_of(section):
        cells_by_run.setdefault((cell.temperature, section.rounds_at(cell.tokens)), []).append(cell)
    instruction = instruction_of(section)
    return [
        Source(
            ContinuationSamples(cells, rows, instruction, files),
            recipe=recipe_of(study, section, heat, rounds),
        )
        for (heat, rounds), cells in cells_by_run.items()
    ]


CONTINUATION = Continuation()
