"""The files of a comparison: Markdown, HTML, JSON and a picture of the shifted cliff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results import Cliffs, Comparison, from_json, to_json
from contextcliff_dagster.contracts.results.comparison import Differing, DifferingBin, LossShift
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.figures.comparison import plot_shift
from contextcliff_dagster.reporting.html.payload import NO_EVIDENCE, payload_of
from contextcliff_dagster.reporting.html.picture import difference_html, picture_html
from contextcliff_dagster.reporting.html.render import (
    Interactive,
    blocks_html,
    html_page,
    sections_html,
)
from contextcliff_dagster.reporting.kv import kv_sections, kv_sentences
from contextcliff_dagster.reporting.markdown import as_page
from contextcliff_dagster.reporting.report_files import for_readers
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Figure,
    Fold,
    Page,
    Paragraph,
    Section,
)
from contextcliff_dagster.store import write_atomic, write_result


class ComparisonFiles(NamedTuple):
    """Paths of the files of a written comparison."""

    md: Path
    json: Path
    html: Path
    png: Path


def write_comparison(
    comparison: Comparison, folder: Path, cliffs: Sequence[Cliffs | None]
) -> ComparisonFiles:
    """Write ``comparison.md``, ``.json``, ``.html`` and ``.png``, each atomically.

    ``cliffs``: the results of A and B for their curves, each may be None. None of the files
    contains secrets of the environment or absolute paths of this machine.

    Raises:
        StoreError: a file cannot be written.
    """
    kinds = ComparisonFiles._fields
    files = ComparisonFiles(*(folder / f"comparison.{kind}" for kind in kinds))
    comparison = from_json(Comparison, for_readers()(to_json(comparison)))
    write_atomic(files.png, plot_shift(comparison, cliffs))
    write_result(files.json, comparison)
    write_atomic(files.html, comparison_html(comparison, cliffs).encode())
    write_atomic(files.md, comparison_markdown(comparison).encode())
    return files


def comparison_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown; it links comparison.png next to it."""
    return as_page(comparison_page(comparison).flat())


def comparison_html(comparison: Comparison, cliffs: Sequence[Cliffs | None]) -> str:
    """Return the comparison as one HTML file: both interactive curves and the difference."""
    page = comparison_page(comparison)
    (first, *others), folds = page
    above = [block for block in first.blocks if not isinstance(block, Figure)]
    warnings = sections_html(others)
    curves, picture = curves_html(cliffs, [comparison.a.name, comparison.b.name])
    head = blocks_html(above) + warnings + difference_html(comparison) + curves
    return html_page(str(first.title), head, folds, picture)


def curves_html(
    cliffs: Sequence[Cliffs | None], names: Sequence[str]
) -> tuple[str, Interactive | None]:
    """Return the interactive picture of ``cliffs``, labelled by ``names``, and its data."""
    clean = for_readers()
    results = [
        from_json(Cliffs, clean(to_json(replace(result, model=name))))
        for name, result in zip(names, cliffs, strict=True)
        if result is not None
    ]
    if not results:
        return "", None
    return picture_html(results), Interactive(payload_of(results, NO_EVIDENCE, str))


def comparison_page(comparison: Comparison) -> Page:
    """Return the page: a sentence, a picture, a table of both sides, then folds with the bins."""
    a, b, caps, overall = comparison.a, comparison.b, comparison.caps, comparison.overall
    relation = "the same" if comparison.paired else "different ones"
    rows: list[list[Cell]] = [
        ["name", Code(a.name), Code(b.name), ""],
        [
            "examples (documents)",
            *(f"{side.n:,} ({side.n_documents:,})" for side in (a, b)),
            relation,
        ],
        ["verdict", a.verdict or "none", b.verdict or "none", ""],
        [
            "mean score" if comparison.paired else "mean score at the same lengths",
            wording.score(overall.mean_a),
            wording.score(overall.mean_b),
            Bracketed(difference_words(overall) + _p(overall.p_value, ", p = ")),
        ],
        [
            "safe cap, tokens",
            wording.tokens(caps.a_tokens, "none"),
            wording.tokens(caps.b_tokens, "none"),
            "" if caps.ratio is None else f"x {caps.ratio:.2f}",
        ],
        [
            f"score {wording.level(comparison.tolerance)} below the baseline at, tokens",
            *_loss_shift(comparison),
        ],
    ]
    if comparison.midpoint_shift is not None:
        name = "half of the whole drop (its midpoint) at, tokens"
        rows.append([name, *_shift(comparison.midpoint_shift)])
    bins: list[list[Cell]] = [
        [
            Code(bin.bin),
            f"{bin.edge_low:,} to {bin.edge_high:,}",
            f"{bin.n_a}" if bin.n_a == bin.n_b else f"{bin.n_a} / {bin.n_b}",
            wording.score(bin.mean_a),
            wording.score(bin.mean_b),
            Bracketed(difference_words(bin)),
            _p(bin.p_value),
        ]
        for bin in comparison.bins
    ]
    note = (
        f"Intervals at {wording.level(comparison.confidence)}, by bootstrap over documents. The "
        "p-values are adjusted for all bins and the overall difference together; the intervals are "
        "not, but hold 0 where the test finds nothing. A safe cap is a confidence bound and moves "
        "with n, so its ratio has no interval; the length at which the drop is reached has one."
    )
    head: list[Block] = [
        Paragraph(Bracketed(comparison.sentence)),
        Figure(Path("comparison.png"), "The shifted cliff"),
        DataTable(["", "A", "B", "B vs. A"], rows, right=()),
    ]
    columns = ["bin", "tokens", "n", "mean A", "mean B", "difference", "p (adjusted)"]
    by_bin = Section("Bins", [DataTable(columns, bins, right=()), Paragraph(note)], 3)
    warnings = [Section("Warnings", [Bullets(list(comparison.warnings))])]
    first = Section(f"{b.name} vs. {a.name}", head, 1)
    others = warnings if comparison.warnings else []
    folds = [Fold("How sure is it?", [by_bin])]
    if comparison.kv is not None:
        head[1:1] = [Paragraph(sentence) for sentence in kv_sentences(comparison)]
        folds.insert(0, Fold("What does the cache save?", kv_sections(comparison.kv)))
    return Page([first, *others], folds)


def difference_words(row: Differing | DifferingBin) -> str:
    """Return the difference of a row with its interval."""
    return wording.with_limits(row.difference, row.ci_low, row.ci_high)


def _loss_shift(comparison: Comparison) -> list[Cell]:
    if Verdict.FLOOR.value in (comparison.a.verdict, comparison.b.verdict):
        return [wording.NOT_MEASURED, wording.NOT_MEASURED, "nothing to drop from"]
    return _shift(comparison.loss_shift)


def _shift(shift: LossShift) -> list[Cell]:
    a, b = (wording.tokens(at, "not within the range") for at in (shift.a_tokens, shift.b_tokens))
    return [a, b, Bracketed(wording.ratio_words(shift))]


def _p(value: float | None, before: str = "") -> str:
    return "" if value is None else f"{before}{value:.2g}"
