"""Results as one block of HTML for a notebook's output, and as files.

The block is self-contained and has no script. Its text takes the notebook's own colours, light or
dark; the picture is on white in both.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.wording.number_format import level, tokens
from contextcliff_dagster.reporting.wording.sentences import (
    amount,
    deciding_cap,
    drop_clause,
    labels,
    sentence,
)

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.contracts.results import Cliffs, Comparison
    from contextcliff_dagster.notebook.results import Result
    from contextcliff_dagster.reporting.report_files import ReportFiles

_MOST_SHOWN = 12
"""Models with a paragraph of their own; of more, a table says as much."""
_CARD = "max-width:56rem;font-family:system-ui,sans-serif;line-height:1.45;overflow-wrap:anywhere"
_BIG = "font-size:1.25em;font-weight:600;margin:.2em 0"
_IMAGE = "width:100%;height:auto;background:#fff;border-radius:6px;margin:.4em 0"


def results_html(results: Sequence[Result]) -> str:
    """The caps, the verdicts, the picture, and the notes of the analysis."""
    from contextcliff_dagster.notebook.pictures import results_png

    if not results:
        return "<p>No results.</p>"
    cliffs = [one.cliffs for one in results]
    shown = [_model_html(one, name) for one, name in zip(cliffs, labels(cliffs), strict=True)]
    lines = "; ".join(f"{one.cliffs.model}: {one!r}" for one in results[:_MOST_SHOWN])
    picture = _picture(results_png(results), f"Score over document length. {lines}")
    notes = list(dict.fromkeys(note for one in cliffs for note in one.warnings))
    return _block("".join(shown) + picture + _notes(notes))


def comparison_html(comparison: Comparison, cliffs: Sequence[Cliffs | None]) -> str:
    """The comparison in one sentence, the picture, and the notes of the analysis."""
    from contextcliff_dagster.notebook.pictures import comparison_png

    names = f"{comparison.b.name} vs. {comparison.a.name}"
    how = "paired by example" if comparison.paired else "unpaired: different documents"
    return _block(
        f'<p style="{_BIG}">{escape(names)}</p>'
        f"<p>{escape(comparison.sentence)} {level(comparison.confidence)} intervals, {how}.</p>"
        + _picture(comparison_png(comparison, cliffs), comparison.sentence)
        + _notes(comparison.warnings)
    )


def written(results: Sequence[Result], folder: Path) -> ReportFiles:
    """Write the report of ``results`` and a ``cliffs.json`` for each.

    Raises:
        StoreError: the folder cannot be written.
    """
    from contextcliff_dagster.notebook.pictures import records_of_all
    from contextcliff_dagster.reporting.report_files import write_report
    from contextcliff_dagster.store import slug, write_result

    cliffs = [one.cliffs for one in results]
    title = f"Scores of {', '.join(one.model for one in cliffs[:4])}"
    files = write_report(cliffs, records_of_all(results), folder, title=title)
    for one in cliffs:
        name = "cliffs.json" if len(cliffs) == 1 else f"{slug(one.model)}.cliffs.json"
        write_result(folder / name, one)
    return files


def _model_html(cliffs: Cliffs, name: str) -> str:
    cap = deciding_cap(cliffs)
    words = "no safe cap" if cap is None else f"safe up to {tokens(cap)} tokens"
    drop = drop_clause(cliffs)
    facts = [f"{drop[0].upper()}{drop[1:]}{' tokens' if drop[-1] in ']0123456789' else ''}."]
    if cap is not None:
        facts.append(
            f"A drop of {level(cliffs.tolerance)} from the baseline is excluded up to the cap at "
            f"{level(cliffs.confidence)} confidence."
        )
    else:
        facts.append(sentence(cliffs.safe_cap_reason))
    facts.append(f"{amount(cliffs)}.")
    head = f"<bdi>{escape(name)}</bdi>: {escape(words)}"
    return f'<p style="{_BIG}">{head}</p><p>{escape(" ".join(facts))}</p>'


def _picture(png: bytes, words: str) -> str:
    source = base64.b64encode(png).decode()
    return f'<img style="{_IMAGE}" alt="{escape(words)}" src="data:image/png;base64,{source}">'


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(sentence(note))}</li>" for note in notes)
    title = f"{len(notes)} note{'s' * (len(notes) > 1)}"
    return f"<details><summary>{title}</summary><ul>{items}</ul></details>"


def _block(content: str) -> str:
    return f'<div class="contextcliff" style="{_CARD}">{content}</div>'
