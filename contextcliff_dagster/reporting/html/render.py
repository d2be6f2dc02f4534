"""Sections of a report as HTML."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence

from contextcliff_dagster.reporting.html.escaping import text
from contextcliff_dagster.reporting.markdown.escaping import one_line
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Figure,
    Fold,
    Item,
    Lines,
    Link,
    Paragraph,
    Section,
    Strong,
    Text,
    cell_words,
    is_number,
    spans,
)

Pictures = Mapping[str, bytes]
"""PNG files by name; a figure whose file is not among them is left out."""


def fold_html(fold: Fold, pictures: Pictures | None = None) -> str:
    """``fold`` as a question that opens: ``<details>``, closed."""
    body = sections_html(fold.sections, pictures, below=2)
    return f"<details><summary><h2>{text(fold.question)}</h2></summary>\n{body}</details>"


def sections_html(
    sections: Sequence[Section], pictures: Pictures | None = None, *, below: int = 1
) -> str:
    """Headings and blocks; ``below``: level of the heading that they stand under.

    No level is left out on the way down: screen readers list headings as a tree.
    """
    parts: list[str] = []
    over: list[int] = []
    for section in sections:
        heading = ""
        if title := _inline(section.title):
            over = [*(level for level in over if level < section.level), section.level]
            rank = min(below + len(over), 6)
            heading = f"<h{rank}>{title}</h{rank}>\n"
        parts.append(heading + blocks_html(section.blocks, pictures))
    return "".join(parts)


def blocks_html(blocks: Sequence[Block], pictures: Pictures | None = None) -> str:
    """The blocks, one after the other."""
    return "".join(f"{_block(block, pictures or {})}\n" for block in blocks)


_SHORT = 14
"""Characters of a cell that is never broken."""


def _block(block: Block, pictures: Pictures) -> str:
    match block:
        case Paragraph(words):
            return f"<p>{_inline(words)}</p>"
        case Lines(items):
            return f"<p>{'<br>'.join(map(_inline, items))}</p>"
        case Bullets(items):
            return f"<ul>{''.join(map(_item, items))}</ul>"
        case DataTable():
            return _table(block)
        case Figure(file, alt, own):
            if (png := own or pictures.get(file.name)) is None:
                return ""
            image = f'<img alt="{text(alt)}" src="{data_url(png)}">'
            # On a phone it scrolls, as a table does: its words would be too small to read.
            return (
                f'<div class="picture" role="group" tabindex="0" aria-label="Picture">{image}</div>'
            )


def data_url(png: bytes) -> str:
    """A PNG as an address that holds it."""
    return f"data:image/png;base64,{b64encode(png).decode()}"


def _item(item: Text | Item) -> str:
    if not isinstance(item, Item):
        return f"<li>{_inline(item)}</li>"
    parts = "".join(f"<li>{_inline(part)}</li>" for part in item.parts)
    return f"<li>{_inline(item.text)}<ul>{parts}</ul></li>"


def _table(table: DataTable) -> str:
    numeric = [
        all(is_number(row[i]) for row in table.rows) and bool(table.rows)
        for i in range(len(table.columns))
    ]
    right = {i for i, only in enumerate(numeric) if only}
    right = right if table.right is None else set(table.right)
    marks = [' class="n"' if i in right else "" for i in range(len(table.columns))]
    head = "".join(
        _heading("col", mark or _room(column), _inline(column))
        for mark, column in zip(marks, table.columns, strict=True)
    )
    rows = "".join(f"<tr>{_row(row, marks)}</tr>\n" for row in table.rows)
    caption = text(table.caption) if table.caption else ""
    named = f"<caption>{caption}</caption>" if caption else ""
    # It scrolls where it is too wide, so the keyboard must reach it.
    label = caption or f"Table: {', '.join(filter(None, map(_plain, table.columns[:4])))}"
    return (
        f'<div class="table" role="group" tabindex="0" aria-label="{label}"><table>{named}'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _row(row: Sequence[Cell], marks: Sequence[str]) -> str:
    marks = [mark or _room(cell) for mark, cell in zip(marks, row, strict=True)]
    first, *others = [cell_words(cell, _inline) for cell in row]
    return _heading("row", marks[0], first) + "".join(
        f"<td{mark}>{cell}</td>" for mark, cell in zip(marks[1:], others, strict=True)
    )


def _room(cell: Cell | Text) -> str:
    """Words would take a line each where a table is wide: short ones stay together."""
    if not isinstance(cell, str | Code):
        return ""
    length = len(one_line(cell if isinstance(cell, str) else cell.text))
    return ' class="short"' if length <= _SHORT else ' class="long"'


def _heading(scope: str, mark: str, words: str) -> str:
    """Of a row or column; one without words heads nothing."""
    return f'<th scope="{scope}"{mark}>{words}</th>' if words else f"<td{mark}></td>"


def _plain(words: Text) -> str:
    return "".join(text(s if isinstance(s, str) else s.text) for s in spans(words))


def _inline(words: Text) -> str:
    parts = []
    for span in spans(words):
        match span:
            case Code(name):
                parts.append(f"<code>{text(name)}</code>")
            case Strong(strong):
                parts.append(f"<strong>{text(strong)}</strong>")
            case Link(shown, href):
                parts.append(f'<a href="{text(href)}">{text(shown)}</a>')
            case Bracketed(numbers):
                parts.append(f'<span class="whole">{text(numbers)}</span>')
            case _:
                before, after = " " * span[:1].isspace(), " " * span[-1:].isspace()
                parts.append(f"{before}{text(span)}{after}")
    return "".join(parts).strip()
