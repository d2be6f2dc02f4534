"""Files of a report: report.html, report.md, report.json, report.png and more pictures.

Each file is written atomically, under another name first. A report may also consist of sections or
a page, without a length profile.

Absolute paths of this machine are reduced to file names: ``/home/jo/scores.csv`` becomes
``scores.csv``. Server addresses keep their paths.
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
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.contracts import RESULT_VERSION, DataError, package_version
from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
from contextcliff_dagster.redaction import secrets_of, without_secrets
from contextcliff_dagster.reporting.html.payload import NO_EVIDENCE, Evidence, profile_page
from contextcliff_dagster.reporting.html.render import blocks_html, html_page, sections_html
from contextcliff_dagster.reporting.length_profile.page import (
    MANY,
    OWN_BASELINE,
    all_pictures,
    overview_page,
    report_page,
    summary_sections,
)
from contextcliff_dagster.reporting.markdown import as_json, as_page
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
from contextcliff_dagster.reporting.wording import comparison, deciding_cap, labels
from contextcliff_dagster.store import Store, slug, write_atomic, write_result

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.reporting.html.metric_chart import MetricChart

_NAME_END = r"\s\"'`<>|*?,;()\[\]{}=/\\"
"""Regex class of the characters that end a name within a path."""
_PATH_FORMS = (
    rf"(?:file:/+)?[A-Za-z]:(?:[\\/]+[^{_NAME_END}]+)+[\\/]?",  # C:\Users\jo
    rf"\\\\[^{_NAME_END}]+(?:\\+[^{_NAME_END}]+)+\\?",  # \\server\share
    rf"file:/+[^{_NAME_END}]+(?:/+[^{_NAME_END}]+)*/?",
    rf"~?(?!/+(?:v\d+|api)/)(?:/+[^{_NAME_END}]+){{2,}}/?",  # a server endpoint is not a path
)
_ANY_PATH = re.compile(rf"(?<![\w.~/:*?\\-])(?:{'|'.join(_PATH_FORMS)})")
_SHORTEST = 5
"""A folder with at most this many characters is too short to hide (``/``, ``/tmp``)."""


def for_readers() -> Callable[[Any], Any]:
    """Return a function that removes secrets and this machine's paths from a JSON-like value."""
    secrets, folders = secrets_of(os.environ), known_folders()
    return lambda value: without_paths(without_secrets(value, secrets), folders)


def known_folders() -> tuple[str, ...]:
    """Return the working, home and store folders, in which spaces would defeat a pattern."""
    folders = {str(Path.cwd()), str(Store.default().root)}
    with suppress(RuntimeError):  # no home folder
        folders.add(str(Path.home()))
    return tuple(sorted((path for path in folders if len(path) > _SHORTEST), key=len, reverse=True))


def without_paths(value: Any, folders: Sequence[str] = ()) -> Any:
    """Return a copy of a JSON-like ``value`` with each absolute path reduced to its last part.

    ``folders``: known folders, removed wherever they occur, even if their names contain spaces.
    """
    if isinstance(value, str):
        for folder in folders:
            value = value.replace(f"{folder}/", "").replace(folder, Path(folder).name)
        return _ANY_PATH.sub(_last_part, value)
    if isinstance(value, dict):
        return {
            without_paths(key, folders): without_paths(item, folders) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_paths(item, folders) for item in value]
    return value


def _last_part(match: re.Match[str]) -> str:
    parts = [part for part in re.split(r"[\\/]+", match[0]) if part]
    ending = re.search(r"[.:!]+$", match[0])
    return (parts[-1].rstrip(".:!") or "path") + (ending[0] if ending else "")


class ReportFiles(NamedTuple):
    """Paths of a report's files; ``png`` is None for a study without a length profile.

    Pictures of `all_pictures` that have data are in the same folder.
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

    ``cliffs``: one contract result per model, in the report's order. ``records``: EVAL_RECORDS for
    the single answers in the picture, or None. ``sections``: sections of the study's other
    experiments, shown at the end. ``evidence``: further data for report.html (its records are
    replaced by ``records``). Same input, same bytes.

    With more than `MANY` models, each gets its own page in ``models/``, and report.md, report.html
    and report.png give the overview; otherwise report.md is the short version. None of the files
    contains secrets of the environment or absolute paths of this machine.

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
    for old_folder in (directory / "models").glob("*"):
        if old_folder.name not in folders:
            shutil.rmtree(old_folder, ignore_errors=True)
    if not folders:
        return _write_page(results, directory, title, notes, sections, shown)
    for name, folder, result in zip(labels(results), folders, results, strict=True):
        path = directory / "models" / folder
        _write_page([result], path, f"{name}: {title}", (), (), shown, f"All {len(results)} models")
    return _write_overview(results, folders, directory, title, notes, sections)


PICTURES = ("png", "pdf", "svg")
FORMATS = (*PICTURES, "csv", "parquet", "json", "html", "md")


def format_of(target: str | Path, formats: Sequence[str] = FORMATS) -> str | None:
    """Return which of ``formats`` the suffix of ``target`` names; None for a folder.

    Raises:
        DataError: it names none, and ``target`` is no folder, ends with no slash and has a suffix.
    """
    path = Path(target)
    if path.is_dir() or str(target).endswith("/") or not (path.suffix or path.exists()):
        return None
    if (kind := path.suffix[1:].lower()) in formats:
        return kind
    raise DataError(
        f"{target} is no folder and ends with none of .{', .'.join(formats)}; choose one of these, "
        "or end the name of a folder with a slash."
    )


def write_file(
    file: Path,
    kind: str,
    cliffs: Sequence[Cliffs],
    records: pd.DataFrame | None,
    *,
    title: str,
    notes: Sequence[str] = (),
    width: float = 6.5,
) -> None:
    """Write one ``file`` of ``kind``, a picture ``width`` inches wide; else as `write_report`.

    Who may read a picture is left to the umask, because papers are written together.

    Raises:
        StoreError: the file cannot be written.
    """
    from contextcliff_dagster.reporting.figures.report_figure import plot_scores

    redact, shown = for_readers(), as_shown(cliffs)
    title, notes = redact(title), redact(list(notes))
    if kind == "json":
        write_result(file, cliffs[0] if len(cliffs) == 1 else list(cliffs))
        return
    if kind == "csv":
        content = results_frame(cliffs).to_csv(index=False).encode()
    elif kind == "parquet":
        content = results_frame(cliffs).to_parquet(index=False)
    elif kind == "html":
        evidence = NO_EVIDENCE._replace(records=records)
        with TemporaryDirectory() as folder:
            files = _write_page(shown, Path(folder), title, notes, (), evidence)
            content = files.html.read_bytes()
    elif kind == "md":
        head, *others = summary_sections(shown, title=title, notes=notes)
        # Without the picture, and the note on the files next to it.
        content = as_page([replace(head, blocks=head.blocks[:-2]), *others]).encode()
    else:
        content = plot_scores(cliffs, records, kind, width)
    write_atomic(file, content, private=kind not in PICTURES)


_COLUMNS = dict(
    pair.split("=")
    for pair in (
        "model=model study=study campaign=campaign task=task score.name=score verdict=verdict "
        "safe_cap_tokens=safe_cap_tokens confidence=confidence tolerance=tolerance "
        "baseline.mean=baseline baseline.ci_low=baseline_ci_low baseline.ci_high=baseline_ci_high "
        "cliff.location_tokens=midpoint_tokens cliff.ci_low=midpoint_ci_low "
        "cliff.ci_high=midpoint_ci_high cliff.drop=drop cliff.drop_ci_low=drop_ci_low "
        "cliff.drop_ci_high=drop_ci_high n=n n_documents=n_documents missing=missing "
        "length_unit=length_unit"
    ).split()
)
"""Field of ``cliffs.json`` -> column of `results_frame`."""


def results_frame(cliffs: Sequence[Cliffs]) -> pd.DataFrame:
    """Return one row per model: verdict, cap, and baseline, midpoint and drop with intervals."""
    import pandas as pd

    rows = [
        {
            **to_json(r),
            "model": name,
            "safe_cap_tokens": deciding_cap(r),
            "missing": r.missing.total,
        }
        for name, r in zip(labels(cliffs), cliffs, strict=True)
    ]
    frame = pd.json_normalize(rows).reindex(columns=list(_COLUMNS)).rename(columns=_COLUMNS)
    whole = "safe_cap_tokens midpoint_tokens midpoint_ci_low midpoint_ci_high n_documents".split()
    return frame.astype(dict.fromkeys(whole, "Int64"))


def _write_page(
    results: Sequence[Cliffs],
    directory: Path,
    title: str,
    notes: Sequence[str],
    sections: Sequence[Section],
    evidence: Evidence,
    overview: str | None = None,
) -> ReportFiles:
    """Write the full and the short page, the numbers and the pictures of ``results``.

    ``overview``: text of the link back to the page of all models, two folders up.
    """
    from contextcliff_dagster.reporting.figures.report_figure import plot_report

    images = {picture.file: picture.draw(results) for picture in all_pictures()}
    pictures = {file: content for file, content in images.items() if content is not None}
    page = report_page(results, title=title, notes=notes, pictures=pictures, sections=sections)
    # A path in a document or an answer is evidence: only secrets are hidden there.
    hide: Any = partial(without_secrets, secrets=secrets_of(os.environ))
    head, *summary = summary_sections(results, title=title, notes=notes)
    first = [section for section in sections if section.first]
    others = [section for section in sections if not section.first]
    above, short = "", [head, *summary, *others]
    if first:
        own = Section(OWN_BASELINE, head.blocks)
        short = [replace(head, blocks=()), *first, own, *summary, *others]
    if overview:
        above = blocks_html([Paragraph(Link(overview, "../../report.html"))])
        lead = [Paragraph(Link(overview, "../../report.md")), *short[0].blocks]
        short[0] = replace(short[0], blocks=lead)
    html = profile_page(
        results, page, evidence, title=title, pictures=pictures, redact=hide, above=above
    )
    images |= {"report.png": plot_report(results, evidence.records), **pictures_of(sections)}
    return _write(directory, short, html, _machine_text(results, title, notes), images)


def _write_overview(
    results: Sequence[Cliffs],
    folders: Sequence[str],
    directory: Path,
    title: str,
    notes: Sequence[str],
    sections: Sequence[Section],
) -> ReportFiles:
    """Write the overview of many models; each has its own page in ``models/FOLDER``."""

    def page(kind: str) -> Page:
        linked = [
            [Link(name, f"models/{folder}/report.{kind}")]
            for name, folder in zip(labels(results), folders, strict=True)
        ]
        return overview_page(results, linked, title=title, notes=notes, sections=sections)

    from contextcliff_dagster.reporting.figures.report_figure import plot_small_multiples

    overview, png = page("html"), plot_small_multiples(results)
    first, *others = overview.head
    head = blocks_html(first.blocks, {"report.png": png})
    head += sections_html([s for s in others if s.first], {"report.png": png})
    folds = as_folds([section for section in others if not section.first])
    html = html_page(title, head, [*folds, *overview.folds])
    pictures = {picture.file: None for picture in all_pictures()} | {"report.png": png}
    pictures |= pictures_of(sections)
    machine = _machine_text(results, title, notes)
    return _write(directory, page("md").flat(), html, machine, pictures)


def _write(
    directory: Path,
    page: Sequence[Section],
    html: str,
    machine: str,
    pictures: Mapping[str, bytes | None],
) -> ReportFiles:
    """Write all files, starting with the linked ones, and delete pictures without content."""
    files = ReportFiles(*(directory / f"report.{kind}" for kind in ReportFiles._fields))
    for name, content in pictures.items():
        if content is not None:
            write_atomic(directory / name, content)
        else:  # one of an earlier report would be taken for this one's
            (directory / name).unlink(missing_ok=True)
    write_atomic(files.json, f"{machine}\n".encode())
    write_atomic(files.html, html.encode())
    write_atomic(files.md, as_page(page).encode())
    return files


def _machine_text(results: Sequence[Cliffs], title: str, notes: Sequence[str]) -> str:
    machine = machine_report(results, title=title, notes=notes)
    return json.dumps(machine, indent=1, ensure_ascii=False, allow_nan=False)


def as_shown(cliffs: Sequence[Cliffs]) -> list[Cliffs]:
    """Return ``cliffs`` as a report shows them, without secrets and local paths."""
    clean = for_readers()
    return [from_json(Cliffs, clean(to_json(result))) for result in cliffs]


def model_folders(results: Sequence[Cliffs]) -> list[str]:
    """Return each model's folder in ``models/``; empty for `MANY` models or fewer.

    The names stay distinct on file systems that ignore case.
    """
    folders: list[str] = []
    for name in labels(results) if len(results) > MANY else ():
        folder = slug(name)
        if folder.casefold() in map(str.casefold, folders):
            folder = f"{folder}-{len(folders)}"
        folders.append(folder)
    return folders


def point_latest(folder: Path) -> None:
    """Make ``latest``, next to ``folder``, point to it: a link or, if refused, a text file.

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
    """Return the machine-readable report as one object of plain JSON values.

    ``models``: the results as in ``cliffs.json``. ``quantile_to_tokens``: per model and bin, the
    token edges, ``[min, median, max]`` tokens and the number of samples, so that a reader can check
    which documents a statement rests on. ``created_at``: time of the newest result; no clock is
    read. ``versions``: of the software that rendered the report; each result's provenance has the
    versions that measured it.
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
            name: package_version(name)
            for name in ("contextcliff-dagster", "matplotlib", "numpy", "pillow")
        },
        "models": to_json(cliffs),
    }


def write_sections(sections: Sequence[Section], directory: Path, *, title: str) -> ReportFiles:
    """Write ``sections`` as a report: report.html, report.md and report.json.

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
    """Write ``page`` as a report: report.html, report.md, report.json, and ``pictures``.

    The head's first section gives the title. ``pictures``: PNG by file name, as shown on the
    page. ``markdown``: sections of report.md, if they differ from the page. ``results``:
    JSON-ready values for report.json. ``chart``: interactive chart in report.html, after the head.

    Raises:
        StoreError: the folder cannot be written.
    """
    from contextcliff_dagster.reporting.html.metric_chart import (
        metric_chart_html,
        metric_chart_interactive,
    )

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
    # The title has its own field, so a section with nothing but the title is left out.
    sections = flat[1:] if markdown is not None and not flat[0].blocks else flat
    machine = {"title": title, "sections": as_json(sections)}
    if results:
        machine["results"] = redact(list(results))
    html = html_page(title, html, folds, interactive, pictures)
    text = json.dumps(machine, indent=1, ensure_ascii=False, default=str)
    return _write(directory, flat, html, text, pictures or {})._replace(png=None)
