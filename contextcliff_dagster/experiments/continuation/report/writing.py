"""The report of a study that asks for continuations and no length profile: its page, written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.experiments.continuation.report.page import (
    continuation_page,
    draw_pictures,
)
from contextcliff_dagster.reporting.sections import Page, as_folds

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.experiments.continuation.results import ContinuationResult
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section


def write_continuation_report(
    run: StudyRun, results: Sequence[ContinuationResult], others: Sequence[Section]
) -> ReportFiles:
    """Write the page, with ``others`` at its end.

    Raises:
        StoreError: it cannot be written.
    """
    from contextcliff_dagster.reporting.plain_report import write_page

    pictures = draw_pictures(results)
    title = run.study.description or run.study.name
    page = continuation_page(results, title=title, pictures=pictures)
    return write_page(
        Page(page.head, [*page.folds, *as_folds(others)]),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=pictures,
        results=[to_json(result) for result in results],
    )
