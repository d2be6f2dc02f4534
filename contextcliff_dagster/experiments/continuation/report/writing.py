"""The report of a study that asks for continuations and no length profile: its page, written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.experiments.continuation.documents.source_texts import section_of
from contextcliff_dagster.experiments.continuation.report.metric_chart import metric_chart
from contextcliff_dagster.experiments.continuation.report.page import (
    continuation_page,
    draw_pictures,
)
from contextcliff_dagster.reporting.sections import Page, as_folds
from contextcliff_dagster.reporting.wording.number_format import count, tokens

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.experiments.continuation.results import ContinuationResult
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section
    from contextcliff_dagster.studies import Study


def write_continuation_report(
    run: StudyRun, results: Sequence[ContinuationResult], others: Sequence[Section]
) -> ReportFiles:
    """Write the page, with ``others`` at its end.

    Raises:
        StoreError: it cannot be written.
    """
    from contextcliff_dagster.reporting.plain_report import write_page

    pictures = draw_pictures(results)
    about = _sampling(run.study, results)
    title = (run.study.description or run.study.name).removesuffix(".")
    page = continuation_page(results, title=title, pictures=pictures)
    return write_page(
        Page(page.head, [*page.folds, *as_folds(others)]),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=pictures,
        results=[to_json(result) for result in results],
        chart=metric_chart(results[0], about) if results and results[0].arms else None,
    )


def _sampling(study: Study, results: Sequence[ContinuationResult]) -> dict[str, list[str]]:
    """Arm -> how its continuations were sampled."""
    section = section_of(study)
    found = {}
    for arm in (arm.arm for result in results for arm in result.arms):
        heat = next(
            (t for t in section.temperature if arm.endswith(f"temperature {t:g}")),
            section.temperature[0],
        )
        found[arm] = [
            f"temperature {heat:g}, top-k {section.top_k or 'all'}, top-p {section.top_p:g}",
            f"{count(section.rounds, 'round')} from seed {section.seed}, up to "
            f"{tokens(section.max_tokens)} tokens each",
        ]
    return found
