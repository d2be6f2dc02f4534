"""Write the report of a study: report.md, report.json, report.png and the pictures beside it.

Each temp-then-rename.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
from contextcliff_dagster.reporting.json_report import machine_report
from contextcliff_dagster.reporting.markdown.page import markdown_report
from contextcliff_dagster.reporting.redaction import secrets_of, without_secrets
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    import pandas as pd


SENSITIVITY_PICTURE, QUESTIONS_PICTURE = "sensitivity.png", "questions.png"
BESIDE = (SENSITIVITY_PICTURE, QUESTIONS_PICTURE)
"""Pictures that are there where a result has what they show."""


class ReportFiles(NamedTuple):
    """Where the files lie; beside them ``sensitivity.png``, where a result varied its choices,
    and ``questions.png``, where records say more of the questions than their length."""

    md: Path
    json: Path
    png: Path


def write_report(
    cliffs: Sequence[Cliffs],
    records: pd.DataFrame | None,
    directory: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
) -> ReportFiles:
    """Render and write all files into ``directory``; what is linked is written first.

    ``cliffs``: one result of the contract per model, in the order of the report. ``records``:
    EVAL_RECORDS for the single answers in the picture, or None. Same input, same bytes.

    Raises:
        StoreError: the folder cannot be written (full, read-only).
    """
    from contextcliff_dagster.reporting.figures.confounds import plot_questions
    from contextcliff_dagster.reporting.figures.report_figure import plot_report
    from contextcliff_dagster.reporting.figures.sensitivity import plot_sensitivity

    secrets = secrets_of(os.environ)
    results = [from_json(Cliffs, without_secrets(to_json(c), secrets)) for c in cliffs]
    title, notes = without_secrets(title, secrets), without_secrets(list(notes), secrets)
    # The answers are matched to the results by names as they were measured, so before redaction.
    png = plot_report(results, _renamed(records, cliffs, results))
    sensitivity, questions = plot_sensitivity(results), plot_questions(results)
    page = markdown_report(
        results,
        title=title,
        notes=notes,
        picture="report.png",
        sensitivity_picture=SENSITIVITY_PICTURE if sensitivity else None,
        questions_picture=QUESTIONS_PICTURE if questions else None,
    )
    machine = json.dumps(
        machine_report(results, title=title, notes=notes),
        indent=1,
        ensure_ascii=False,
        allow_nan=False,
    )
    files = ReportFiles(
        directory / "report.md", directory / "report.json", directory / "report.png"
    )
    write_atomic(files.png, png)
    for name, picture in zip(BESIDE, (sensitivity, questions), strict=True):
        if picture is not None:
            write_atomic(directory / name, picture)
        else:  # one of an earlier report would be taken for this one's
            (directory / name).unlink(missing_ok=True)
    write_atomic(files.json, f"{machine}\n".encode())
    write_atomic(files.md, page.encode())
    return files


def _renamed(
    records: pd.DataFrame | None,
    before: Sequence[Cliffs],
    after: Sequence[Cliffs],
) -> pd.DataFrame | None:
    """``records`` with model names as the results now spell them, where redaction changed one."""
    changed = {a.model: b.model for a, b in zip(before, after, strict=True) if a.model != b.model}
    if records is None or not changed or "model" not in records.columns:
        return records
    return records.assign(model=records["model"].replace(changed))
