"""The report of a study that asks for utilization and no length profile: its page, written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.experiments.utilization.report.answers import examples_shown, withheld
from contextcliff_dagster.experiments.utilization.report.page import (
    draw_pictures,
    utilization_page,
)
from contextcliff_dagster.reporting.sections import Page, as_folds

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.experiments.utilization.report.answers import WrongAnswer
    from contextcliff_dagster.experiments.utilization.results import UtilizationResult
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section


def write_utilization_report(
    run: StudyRun,
    results: Sequence[UtilizationResult],
    wrong: Sequence[WrongAnswer] | None,
    others: Sequence[Section],
) -> ReportFiles:
    """Write the page, with ``others`` at its end.

    ``wrong``: None where the report may hold no answers; they are in report.html alone.

    Raises:
        StoreError: it cannot be written.
    """
    from contextcliff_dagster.reporting.plain_report import write_page

    how = f"contextcliff report {run.study.name} --campaign {run.campaign} --with-answers"
    pictures = draw_pictures(results)
    title = run.study.description or run.study.name

    def page(answers: Sequence[Section]) -> Page:
        made = utilization_page(results, answers, title=title, pictures=pictures)
        return Page(made.head, [*made.folds, *as_folds(others)])

    public = page(withheld(how))
    return write_page(
        public if wrong is None else page(examples_shown(wrong)),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=pictures,
        markdown=public.flat(),
        results=[to_json(result) for result in results],
    )
