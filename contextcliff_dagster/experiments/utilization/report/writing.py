"""The report of a study that asks for utilization and no length profile: its page, written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.experiments.utilization.report.page import (
    WrongAnswer,
    draw_pictures,
    utilization_page,
)
from contextcliff_dagster.reporting.sections import Page, as_folds

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts import Example
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.experiments.utilization.results import UtilizationResult
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section


def write_utilization_report(
    run: StudyRun,
    results: Sequence[UtilizationResult],
    wrong: Sequence[WrongAnswer],
    others: Sequence[Section],
) -> ReportFiles:
    """Write the page, with ``others`` at its end.

    Raises:
        StoreError: it cannot be written.
    """
    from contextcliff_dagster.reporting.plain_report import write_page

    pictures = draw_pictures(results)
    title = run.study.description or run.study.name
    page = utilization_page(results, wrong, title=title, pictures=pictures)
    return write_page(
        Page(page.head, [*page.folds, *as_folds(others)]),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=pictures,
        results=[to_json(result) for result in results],
    )


def wrong_answers(records: pd.DataFrame, examples: Mapping[str, Example]) -> list[WrongAnswer]:
    """Return the wrong answers: the first one of each cell, then the second ones, and so on."""
    wrong = records[records["score"] == 0].sort_values(["model", "bin", "seed", "example_id"])
    turn = wrong.groupby(["model", "bin"]).cumcount()
    ordered = wrong.assign(turn=turn).sort_values("turn", kind="stable")
    columns = ["model", "bin", "expected", "raw_output", "failure", "needed", "evidence_position"]
    names = ordered["example_id"]
    return [
        WrongAnswer(
            row["model"],
            row["bin"],
            _question(examples.get(name)),
            row["expected"],
            row["raw_output"],
            row["failure"],
            row["needed"],
            row["evidence_position"],
        )
        for name, row in zip(names, ordered[columns].to_dict("records"), strict=True)
    ]


def _question(example: Example | None) -> str:
    return "" if example is None else example.question.partition("\n")[0]
