"""Write the report of a study: report.md, report.json, report.png and the pictures beside it.

Each temp-then-rename.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
from contextcliff_dagster.redaction import secrets_of, without_secrets
from contextcliff_dagster.reporting.json_report import machine_report
from contextcliff_dagster.reporting.length_profile.page import report_sections
from contextcliff_dagster.reporting.sections import Section, map_texts
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    import pandas as pd

SENSITIVITY_PICTURE, QUESTIONS_PICTURE = "sensitivity.png", "questions.png"
BESIDE = (SENSITIVITY_PICTURE, QUESTIONS_PICTURE)
"""Pictures that are there where a result has what they show."""


class ReportFiles(NamedTuple):
    """Where the files lie; ``png`` is None for a study without a length profile.

    In the same folder: ``sensitivity.png``, where a result varied its choices, and
    ``questions.png``, where records say more of the questions than their length.
    """

    md: Path
    json: Path
    png: Path | None


def write_report(
    cliffs: Sequence[Cliffs],
    records: pd.DataFrame | None,
    directory: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
    sections: Sequence[Section] = (),
) -> ReportFiles:
    """Render and write all files into ``directory``; what is linked is written first.

    ``cliffs``: one result of the contract per model, in the order of the report. ``records``:
    EVAL_RECORDS for the single answers in the picture, or None. ``sections``: of other experiments
    of the study, at the end of the page. Same input, same bytes.

    Raises:
        StoreError: the folder cannot be written (full, read-only).
    """
    from contextcliff_dagster.reporting.figures.confounds import plot_questions
    from contextcliff_dagster.reporting.figures.report_figure import plot_report
    from contextcliff_dagster.reporting.figures.sensitivity import plot_sensitivity
    from contextcliff_dagster.reporting.markdown.render import as_page

    secrets = secrets_of(os.environ)
    results = [from_json(Cliffs, without_secrets(to_json(c), secrets)) for c in cliffs]
    title, notes = without_secrets(title, secrets), without_secrets(list(notes), secrets)
    # The answers are matched to the results by names as they were measured, so before redaction.
    png = plot_report(results, _renamed(records, cliffs, results))
    sensitivity, questions = plot_sensitivity(results), plot_questions(results)
    page = report_sections(
        results,
        title=title,
        notes=notes,
        picture="report.png",
        sensitivity_picture=SENSITIVITY_PICTURE if sensitivity else None,
        questions_picture=QUESTIONS_PICTURE if questions else None,
    )
    own = map_texts(sections, partial(without_secrets, secrets=secrets))
    machine = json.dumps(
        machine_report(results, title=title, notes=notes),
        indent=1,
        ensure_ascii=False,
        allow_nan=False,
    )
    files = ReportFiles(
        directory / "report.md", directory / "report.json", directory / "report.png"
    )
    write_atomic(directory / "report.png", png)
    for name, picture in zip(BESIDE, (sensitivity, questions), strict=True):
        if picture is not None:
            write_atomic(directory / name, picture)
        else:  # one of an earlier report would be taken for this one's
            (directory / name).unlink(missing_ok=True)
    write_atomic(files.json, f"{machine}\n".encode())
    write_atomic(files.md, as_page([*page, *own]).encode())
    return files


def write_sections(sections: Sequence[Section], directory: Path, *, title: str) -> ReportFiles:
    """Write a report that consists of ``sections`` alone: report.md and report.json.

    Raises:
        StoreError: the folder cannot be written.
    """
    from contextcliff_dagster.reporting.markdown.render import as_json, as_page

    secrets = secrets_of(os.environ)
    sections = map_texts(sections, partial(without_secrets, secrets=secrets))
    title = without_secrets(title, secrets)
    files = ReportFiles(directory / "report.md", directory / "report.json", None)
    machine = {"title": title, "sections": as_json(sections)}
    write_atomic(
        files.json, f"{json.dumps(machine, indent=1, ensure_ascii=False, default=str)}\n".encode()
    )
    write_atomic(files.md, as_page([Section(title, level=1), *sections]).encode())
    return files


def point_latest(folder: Path) -> None:
    """Make ``latest`` beside ``folder`` a link to it; where links are refused, a text file.

    Raises:
        StoreError: neither can be written.
    """
    latest, temporary = folder.parent / "latest", folder.parent / f".latest.{os.getpid()}.tmp"
    try:
        if latest.is_dir() and not latest.is_symlink():
            shutil.rmtree(latest)  # the store was copied without its links: this is a report's copy
        temporary.symlink_to(folder.name, target_is_directory=True)
        temporary.replace(latest)
    except OSError:
        temporary.unlink(missing_ok=True)
        write_atomic(latest, folder.name.encode())


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
