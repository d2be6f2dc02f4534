"""Sections of a report as Markdown, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from contextcliff_dagster.reporting.markdown.escaping import plain, table
from contextcliff_dagster.reporting.sections import (
    Block,
    Bullets,
    Cell,
    DataTable,
    Figure,
    Paragraph,
    Section,
)


def as_markdown(sections: Sequence[Section]) -> list[str]:
    """Return the lines of ``sections``, each block after a blank line."""
    lines: list[str] = []
    for section in sections:
        lines += ["", f"{'#' * section.level} {plain(section.title)}"]
        for block in section.blocks:
            lines += ["", *_lines(block)]
    return lines


def as_text(sections: Sequence[Section]) -> list[str]:
    """Return the lines of ``sections`` for a terminal: tables in columns, no markup."""
    lines: list[str] = []
    for section in sections:
        lines += [*([""] if lines else []), section.title.upper()]
        for block in section.blocks:
            match block:
                case Paragraph(text):
                    lines += ["", text]
                case Bullets(items):
                    lines += ["", *(f"- {item}" for item in items)]
                case DataTable(columns, rows, caption):
                    cells = [list(columns), *([_cell_text(value) for value in r] for r in rows)]
                    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
                    lines += ["", *([caption] if caption else ())]
                    lines += [
                        "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip()
                        for r in cells
                    ]
    return lines


def as_json(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return ``sections`` as JSON objects; each block names its ``kind``."""
    return [
        {
            "title": section.title,
            "level": section.level,
            "blocks": [
                {"kind": type(block).__name__.lower(), **asdict(block)} for block in section.blocks
            ],
        }
        for section in sections
    ]


def _lines(block: Block) -> list[str]:
    match block:
        case Paragraph(text):
            return [plain(text)]
        case Bullets(items):
            return [f"- {plain(item)}" for item in items]
        case DataTable(columns, rows, caption):
            numeric = [
                i for i in range(len(columns)) if all(_is_number(row[i]) for row in rows) and rows
            ]
            head = [plain(name) for name in columns]
            body = table(head, [[_cell(value) for value in row] for row in rows], numeric)
            return [plain(caption), "", *body] if caption else body
        case Figure(file, alt):
            return [f"![{plain(alt)}]({file.name})"]


def _is_number(value: Cell) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Cell) -> str:
    return plain(value) if isinstance(value, str) else _cell_text(value)


def _cell_text(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value
