"""Files of a report: report.html, report.md, report.json, report.png and more pictures.

Each file is written whole, under another name first. A report may also be sections or a page,
without a length profile.

Absolute paths of this machine are kept out of the files: a report names files alone.
``/home/jo/scores.csv`` reads ``scores.csv``. Addresses of servers keep their paths.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.contracts import RESULT_VERSION
from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
from contextcliff_dagster.redaction import secrets_of, without_secrets
from contextcliff_dagster.reporting.html.payload import NO_EVIDENCE, Evidence
from contextcliff_dagster.reporting.length_profile.page import (
    MANY,
    all_pictures,
    overview_page,
    report_page,
    summary_sections,
)
from contextcliff_dagster.reporting.sections import (
    Fold,
    Link,
    Page,
    Paragraph,
    Section,
    as_folds,
    map_texts,
    pictures_of,
)
from contextcliff_dagster.reporting.wording import comparison, labels
from contextcliff_dagster.store import slug, write_atomic

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.reporting.html.metric_chart import MetricChart

_NOT = r"\s\"'`<>|*?,;()\[\]{}=/\\"
"""Characters that end a name within a path."""
_FORMS = (
    rf"(?:file:/+)?[A-Za-z]:(?:[\\/]+[^{_NOT}]+)+[\\/]?",  # C:\Users\jo
    rf"\\\\[^{_NOT}]+(?:\\+[^{_NOT}]+)+\\?",  # \\server\share
    rf"file:/+[^{_NOT}]+(?:/+[^{_NOT}]+)*/?",
    rf"~?(?!/+(?:v\d+|api)/)(?:/+[^{_NOT}]+){{2,}}/?",  # an endpoint of a server is no path
)
_ANY = re.compile(rf"(?<![\w.~/:*?\\-])(?:{'|'.join(_FORMS)})")
_SHORTEST = 5
"""A known folder of fewer characters (``/``, ``/tmp``) is no name worth hiding."""


def for_readers() -> Callable[[Any], Any]:
    """Return a function that removes secrets and this machine's paths from a JSON-like value."""
    secrets, folders = secrets_of(os.environ), known_folders()
    return lambda value: without_paths(without_secrets(value, secrets), folders)


def known_folders() -> tuple[str, ...]:
    """The working folder, the home folder and the store: they may hold spaces, so no pattern."""
    from contextcliff_dagster.store import Store

    folders = {str(Path.cwd()), str(Store.default().root)}
    with suppress(RuntimeError):  # no home folder
        folders.add(str(Path.home()))
    return tuple(sorted((path for path in folders if len(path) > _SHORTEST), key=len, reverse=True))


def without_paths(value: Any, folders: Sequence[str] = ()) -> Any:
    """Return a copy of a JSON-like ``value`` in which each absolute path reads as its last part.

    ``folders``: known ones, cut off wherever they occur, also where they hold spaces.
    """
    if isinstance(value, str):
        for folder in folders:
            value = value.replace(f"{folder}/", "").replace(folder, Path(folder).name)
        return _ANY.sub(_last, value)
    if isinstance(value, dict):
        return {
            without_paths(key, folders): without_paths(item, folders) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_paths(item, folders) for item in value]
    return value


def _last(match: re.Match[str]) -> str:
    parts = [part for part in re.split(r"[\\/]+", match[0]) if part]
    ending = re.search(r"[.:!]+$", match[0])
    return (parts[-1].rstrip(".:!") or "path") + (ending[0] if ending else "")


class ReportFiles(NamedTuple):
    """Where the files lie; ``png`` is None for a study without a length profile.

    Pictures of `all_pictures` that have something to show lie in the same folder.
    """

    md: Path
    json: Path
    html: Path
    png: Path | None


def write_report(
    cliffs: Sequence[Cliffs],
    records: pd.DataFrame | None,
    directory: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
    sections: Sequence[Section] = (),
    evidence: Evidence = NO_EVIDENCE,
) -> ReportFiles:
    """Render and write all files into ``directory``; linked files are written first.

    ``cliffs``: one result of the contract per model, in the order of the report. ``records``:
    EVAL_RECORDS for the single answers in the picture, or None. ``sections``: of other experiments
    of the study, at the end of the page. ``evidence``: what report.html shows besides (its records
    are ``records``). Same input, same bytes.

    Of more than `MANY` models each has a page of its own in ``models/``, and report.md, report.html
    and report.png are the page over them; else the Markdown page is the short version. Secrets of
    the environment and absolute paths of this machine enter none of the files.

    Raises:
        StoreError: the folder cannot be written (full, read-only).
    """
    redact = for_readers()
    results = as_shown(cliffs)
    # The answers are matched to the results by names as they were measured, so before redaction.
    measured = evidence._replace(records=records, how=redact(evidence.how))
    shown = measured.renamed({a.model: b.model for a, b in zip(cliffs, results, strict=True)})
    title, notes, sections = redact(title), redact(list(notes)), map_texts(sections, redact)
    folders = model_folders(results)
    for kept in (directory / "models").glob("*"):
        if kept.name not in folders:
            shutil.rmtree(kept, ignore_errors=True)
    if not folders:
        return _write_page(results, directory, title, notes, sections, shown)
    for name, folder, result in zip(labels(results), folders, results, strict=True):
        path = directory / "models" / folder
        _write_page([result], path, f"{name}: {title}", (), (), shown, f"All {len(results)} models")
    return _write_overview(results, folders, directory, title, notes, sections)


def _write_page(
    results: Sequence[Cliffs],
    directory: Path,
    title: str,
    notes: Sequence[str],
    sections: Sequence[Section],
    evidence: Evidence,
    overview: str | None = None,
) -> ReportFiles:
    """Write whole and short page, numbers and pictures of ``results``.

    ``overview``: words that lead back to the page over all models, two folders up.
    """
    from contextcliff_dagster.reporting.figures.report_figure import plot_report
    from contextcliff_dagster.reporting.html.payload import profile_page
    from contextcliff_dagster.reporting.html.render import blocks_html

    drawn = {picture.file: picture.draw(results) for picture in all_pictures()}
    there = {file: content for file, content in drawn.items() if content is not None}
    page = report_page(results, title=title, notes=notes, pictures=there, sections=sections)
    # A path in a document or an answer is evidence: only secrets are hidden there.
    hide: Any = partial(without_secrets, secrets=secrets_of(os.environ))
    head, *summary = summary_sections(results, title=title, notes=notes)
    first = [section for section in sections if section.first]
    others = [section for section in sections if not section.first]
    above, short = "", [head, *first, *summary, *others]
    if overview:
        above = blocks_html([Paragraph(Link(overview, "../../report.html"))])
        lead = [Paragraph(Link(overview, "../../report.md")), *short[0].blocks]
        short[0] = replace(short[0], blocks=lead)
    html = profile_page(
        results, page, evidence, title=title, pictures=there, redact=hide, above=above
    )
    drawn |= {"report.png": plot_report(results, evidence.records), **pictures_of(sections)}
    return _write(directory, short, html, machine_report(results, title=title, notes=notes), drawn)


def _write_overview(
    results: Sequence[Cliffs],
    folders: Sequence[str],
    directory: Path,
    title: str,
    notes: Sequence[str],
    sections: Sequence[Section],
) -> ReportFiles:
    """Write the page over many models, each of which has its own in ``models/FOLDER``."""
    from contextcliff_dagster.reporting.figures.house import plot_small_multiples
    from contextcliff_dagster.reporting.html.render import blocks_html, html_page, sections_html

    def page(kind: str) -> Page:
        linked = [
            [Link(name, f"models/{folder}/report.{kind}")]
            for name, folder in zip(labels(results), folders, strict=True)
        ]
        return overview_page(results, linked, title=title, notes=notes, sections=sections)

    whole, png = page("html"), plot_small_multiples(results)
    first, *others = whole.head
    head = blocks_html(first.blocks, {"report.png": png})
    head += sections_html([section for section in others if section.first])
    folds = as_folds([section for section in others if not section.first])
    html = html_page(title, head, [*folds, *whole.folds])
    pictures = {picture.file: None for picture in all_pictures()} | {"report.png": png}
    pictures |= pictures_of(sections)
    machine = machine_report(results, title=title, notes=notes)
    return _write(directory, page("md").flat(), html, machine, pictures)


def _write(
    directory: Path,
    page: Sequence[Section],
    html: str,
    machine: Mapping[str, Any],
    pictures: Mapping[str, bytes | None],
) -> ReportFiles:
    """Write all files; what is linked is written first."""
    from contextcliff_dagster.reporting.markdown import as_page

    files = ReportFiles(*(directory / f"report.{kind}" for kind in ReportFiles._fields))
    for name, content in pictures.items():
        if content is not None:
            write_atomic(directory / name, content)
        else:  # one of an earlier report would be taken for this one's
            (directory / name).unlink(missing_ok=True)
    text = json.dumps(machine, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(files.json, f"{text}\n".encode())
    write_atomic(files.html, html.encode())
    write_atomic(files.md, as_page(page).encode())
    return files


def as_shown(cliffs: Sequence[Cliffs]) -> list[Cliffs]:
    """The results as a report shows them, without secrets and paths of this machine."""
    clean = for_readers()
    return [from_json(Cliffs, clean(to_json(result))) for result in cliffs]


def model_folders(results: Sequence[Cliffs]) -> list[str]:
    """Of more than `MANY` models the folder of each in ``models/``; else none.

    None of them is another's on any file system.
    """
    folders: list[str] = []
    for name in labels(results) if len(results) > MANY else ():
        folder = slug(name)
        if folder.casefold() in map(str.casefold, folders):
            folder = f"{folder}-{len(folders)}"
        folders.append(folder)
    return folders


def point_latest(folder: Path) -> None:
    """Make ``latest`` next to ``folder`` a link to it; where links are refused, a text file.

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


def machine_report(
    cliffs: Sequence[Cliffs], *, title: str, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The report for programs, as one object of plain JSON values.

    ``models``: the results as they are in ``cliffs.json``. ``quantile_to_tokens``: per model and
    bin the token edges, ``[min, median, max]`` tokens and the number of samples, so that a reader
    can check which documents a statement rests on. ``created_at``: the newest result's; no
    clock is read here. ``versions``: of what rendered the report; a result's provenance has those
    of the measurement.
    """
    return {
        "schema_version": RESULT_VERSION,
        "created_at": max((result.created_at for result in cliffs), default=None),
        "title": title,
        "notes": list(notes),
        "comparison": comparison(cliffs) or None,
        "quantile_to_tokens": [
            {
                "label": label,
                "model": result.model,
                "campaign": result.campaign,
                "tokenizer": result.tokenizer,
                "bins": [
                    {
                        "bin": b.bin,
                        "token_range": [b.edge_low, b.edge_high],
                        "min_median_max_tokens": [b.min_tokens, b.median_tokens, b.max_tokens],
                        "n_samples": b.n,
                        "n_documents": b.n_documents,
                    }
                    for b in result.bins
                ],
            }
            for label, result in zip(labels(cliffs), cliffs, strict=True)
        ],
        "versions": {
            name: _version(name)
            for name in ("contextcliff-dagster", "matplotlib", "numpy", "pillow")
        },
        "models": to_json(cliffs),
    }


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


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
    from contextcliff_dagster.reporting.html.render import blocks_html, html_page, sections_html
    from contextcliff_dagster.reporting.markdown import as_json, as_page

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
