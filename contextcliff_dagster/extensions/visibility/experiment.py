"""The experiment: how the information shown to an agent affects its search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.experiments.common.experiment import (
    Analysis,
    Experiment,
    Rows,
    Source,
    Step,
)
from contextcliff_dagster.experiments.common.records import RECORD_CHECKS
from contextcliff_dagster.experiments.common.study_run import StudyRun, context_of, in_order
from contextcliff_dagster.extensions.visibility.kept_landscapes import LANDSCAPES
from contextcliff_dagster.extensions.visibility.section import (
    PlannedRun,
    VisibilitySection,
    runs_of,
    section_of,
)
from contextcliff_dagster.extensions.visibility.tables import (
    VISIBILITY_PREDICTIONS,
    VISIBILITY_RECORDS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from contextcliff_dagster.extensions.visibility.results import VisibilityResult
    from contextcliff_dagster.extensions.visibility.runs.traces import Trace
    from contextcliff_dagster.extensions.visibility.runs.tuning import Benches
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section
    from contextcliff_dagster.studies import Study


class Visibility(Experiment):
    """The visibility experiment: a model tunes hyper-parameters, given varying information."""

    name = "visibility"
    version = "2"  # of the shared contrast
    section = VisibilitySection
    example: ClassVar[Any] = {"benchmarks": ["toy"]}
    makes_documents = True
    writes_page = True
    documents = LANDSCAPES
    predictions = VISIBILITY_PREDICTIONS
    records = VISIBILITY_RECORDS
    description = "Replies of an agent: every run and step, one row per call."
    records_description = (
        "Every step: proposed and trained configuration, its scores, and the regret so far."
    )
    result_descriptions: ClassVar[Mapping[str, str]] = {
        "visibility_result": "Effect of each axis of shown information on regret and behaviour.",
    }
    checks = RECORD_CHECKS

    def cells(self, study: Study) -> tuple[str, ...]:
        return tuple(run.key for run in runs_of(section_of(study)))

    def samples_per_cell(self, study: Study) -> int:
        return 1

    def recipe(self, study: Study) -> Recipe:
        """Return the recipe of the first source."""
        from contextcliff_dagster.extensions.visibility.runs.tuning import recipe_of

        section = section_of(study)
        seed = section.first_seed if section.temperature > 0 else None
        return recipe_of(
            study, seed, section.benchmarks[0] if section.replies == "schema" else None
        )

    def sources(self, run: StudyRun) -> Sequence[Source]:
        from contextcliff_dagster.extensions.visibility.runs.tuning import sources_of

        return sources_of(run.study, _benches(run))

    def expected_sources(self, run: StudyRun) -> Sequence[Source]:
        from contextcliff_dagster.extensions.visibility.runs.tuning import Benches, sources_of

        if LANDSCAPES.frozen(run.study, run.store) is not None:
            return super().expected_sources(run)
        return sources_of(run.study, Benches(run.store, {}))

    def before_first_call(self, run: StudyRun) -> Sequence[str]:
        from contextcliff_dagster.extensions.visibility.kept_landscapes import landscapes_left

        return [work.sentence for work in landscapes_left(run.study, run.store)]

    def score(self, run: StudyRun, source: Source, rows: Rows) -> Rows:
        from contextcliff_dagster.extensions.visibility.runs.traces import score_rows

        return score_rows(rows, _runs(run), _benches(run), section_of(run.study).steps)

    def traces(self, run: StudyRun, model: str) -> Iterator[Trace]:
        """Yield the trace of each of a model's runs; see `runs.traces.traces_of` for errors."""
        from contextcliff_dagster.extensions.visibility.runs.traces import traces_of

        return traces_of(run, self, model, _runs(run), _benches(run))

    def analyse(
        self, run: StudyRun, records: pd.DataFrame, contributions: Mapping[str, Experiment]
    ) -> Analysis:
        from contextcliff_dagster.extensions.visibility.analysis.model import (
            analyse_model,
            headroom_notes,
        )
        from contextcliff_dagster.extensions.visibility.runs.tuning import (
            search_curves,
            without_headroom,
        )

        study, section = run.study, section_of(run.study)
        searches = search_curves(_runs(run), _benches(run), section.steps)
        without: list[tuple[str, int]] = []
        with suppress(DataError):  # older archives lack trainings, and this machine their data
            without = without_headroom(section, _benches(run))
        notes = headroom_notes(section, without)
        results = []
        for model in in_order(study, records["model"].unique()):
            model_records = records[records["model"] == model]
            context = context_of(run, model_records, model, study.tokenizer_name)
            context = replace(context, warnings=[*context.warnings, *notes])
            results.append(
                analyse_model(
                    model_records,
                    section,
                    settings=study.analysis_settings(),
                    context=context,
                    baselines=searches,
                )
            )
        return Analysis(results)

    def read_results(self, run: StudyRun) -> Sequence[Any]:
        from contextcliff_dagster.experiments.common.experiment import read_results
        from contextcliff_dagster.extensions.visibility.results import VisibilityResult

        return read_results(run, self, VisibilityResult)  # not imported with every study

    def overview(self, result: VisibilityResult) -> Mapping[str, Any]:
        from contextcliff_dagster.extensions.visibility.report.tables import overview

        return overview(result)

    def sections(self, run: StudyRun, results: Sequence[Any]) -> Sequence[Section]:
        from contextcliff_dagster.extensions.visibility.report.page import visibility_page
        from contextcliff_dagster.reporting.sections import deeper

        page = visibility_page(results, title="What an agent does with what it is shown")
        return deeper(page.head)

    def write_report(self, run: StudyRun, others: Sequence[Section]) -> ReportFiles:
        from contextcliff_dagster.extensions.visibility.report.page import write_visibility_report

        return write_visibility_report(run, self.read_results(run), self.read_records(run), others)

    def depends_on(self, study: Study, step: Step) -> Mapping[str, Any]:
        from contextcliff_dagster.extensions.visibility.runs.traces import SCORING_VERSION

        section = section_of(study)
        if step == "predictions":
            return {
                "cells": list(self.cells(study)),
                "recipe": self.recipe(study).hash,
                "steps": section.steps,
                "replies": section.replies,
            }
        if step == "records":
            return {"scoring": SCORING_VERSION}
        if step == "result":
            return {**super().depends_on(study, step), "margin": section.margin}
        return super().depends_on(study, step)


def _runs(run: StudyRun) -> Mapping[str, PlannedRun]:
    return run.once(
        "visibility runs", lambda: {one.key: one for one in runs_of(section_of(run.study))}
    )


def _benches(run: StudyRun) -> Benches:
    """Return the study's benchmarks with their landscapes; tabulate those that a grid lacks."""
    from contextcliff_dagster.extensions.visibility.kept_landscapes import grounds_of
    from contextcliff_dagster.extensions.visibility.runs.tuning import Benches

    return run.once(
        "visibility benches", lambda: Benches(run.store, grounds_of(run.study, run.store))
    )


VISIBILITY = Visibility()
