"""The report of a study that asks for visibility and no length profile: its page, written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.experiments.visibility.report.page import draw_pictures, visibility_page
from contextcliff_dagster.experiments.visibility.report.trajectory import trajectories_of
from contextcliff_dagster.reporting.sections import Page, as_folds

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.experiments.visibility.results import VisibilityResult
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section


def write_visibility_report(
    run: StudyRun,
    results: Sequence[VisibilityResult],
    records: pd.DataFrame,
    others: Sequence[Section],
) -> ReportFiles:
    """Write the page, with ``others`` at its end.

    Args:
        records: `tables.VISIBILITY_RECORDS` of all models, for the runs step by step.

    Raises:
        StoreError: it cannot be written.
    """
    from contextcliff_dagster.reporting.plain_report import write_page

    trajectories = trajectories_of(records)
    pictures = draw_pictures(results, trajectories)
    page = visibility_page(
        results,
        title=run.study.description or run.study.name,
        trajectories=trajectories,
        pictures=pictures,
    )
    return write_page(
        Page(page.head, [*page.folds, *as_folds(others)]),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=pictures,
        results=[to_json(result) for result in results],
    )
