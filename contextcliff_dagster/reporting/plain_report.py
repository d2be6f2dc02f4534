"""Write a report that is sections or a page, without a length profile.

Each file is written whole, under another name first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.local_paths import for_readers
from contextcliff_dagster.reporting.report_files import ReportFiles
from contextcliff_dagster.reporting.sections import Fold, Page, Section, as_folds, map_texts
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.reporting.html.metric_chart import MetricChart


def write_sections(sections: Sequence[Section], directory: Path, *, title: str) -> ReportFiles:
    """Write a report that consists of ``sections`` alone: report.html, report.md, report.json.

    Raises:
        StoreError: the folder cannot be written.
    """
    page = Page([Section(title, level=1)], as_folds(sections))
    return write_page(page, directory, markdown=[*page.head, *sections])


def write_page(
    page: Page,
    directory: Path,
    *,
    pictures: Mapping[str, bytes] | None = None,
    markdown: Sequence[Section] | None = None,
    results: Sequence[Any] = (),
    chart: MetricChart | None = None,
) -> ReportFiles:
    """Write a report that is ``page``: report.html, report.md, report.json, and ``pictures``.

    The first section of the page's head is its title. ``pictures``: PNG by file name, those that
    the page shows. ``markdown``: sections of report.md, where they are not those of the page.
    ``results``: JSON-ready, for report.json. ``chart``: to explore in report.html, after the head.

    Raises:
        StoreError: the folder cannot be written.
    """
    from contextcliff_dagster.reporting.html.metric_chart import (
        metric_chart_html,
        metric_chart_interactive,
    )
    from contextcliff_dagster.reporting.html.page import html_page
    from contextcliff_dagster.reporting.html.render import blocks_html, sections_html
    from contextcliff_dagster.reporting.markdown.render import as_json, as_page

    redact = for_readers()
    first, *others = map_texts(page.head, redact)
    folds = [Fold(redact(fold.question), map_texts(fold.sections, redact)) for fold in page.folds]
    flat = map_texts(markdown if markdown is not None else page.flat(), redact)
    title = str(first.title)
    html = blocks_html(first.blocks, pictures) + sections_html(others, pictures)
    interactive = None
    if chart is not None:
        chart = map_texts(chart, redact)
        html += metric_chart_html(chart)
        interactive = metric_chart_interactive(chart)
    md, machine_file, html_file = (directory / f"report.{kind}" for kind in ("md", "json", "html"))
    # The title is a field of its own: a section with nothing else in it is left out.
    sections = flat[1:] if markdown is not None and not flat[0].blocks else flat
    machine = {"title": title, "sections": as_json(sections)}
    if results:
        machine["results"] = redact(list(results))
    text = json.dumps(machine, indent=1, ensure_ascii=False, default=str)
    for name, content in (pictures or {}).items():
        write_atomic(directory / name, content)
    write_atomic(machine_file, f"{text}\n".encode())
    write_atomic(html_file, html_page(title, html, folds, interactive, pictures).encode())
    write_atomic(md, as_page(flat).encode())
    return ReportFiles(md, machine_file, html_file, None)
