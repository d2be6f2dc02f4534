"""Sections of a report as HTML, and the page around them with its style, scripts and data.

Users' names and models' answers are escaped, in HTML and in the JSON inside it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.reporting.markdown import one_line
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
    spans,
)
from contextcliff_dagster.reporting.wording import isolated

_UNSAFE_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_SUSPECT = re.compile(r"[^ -~\n\t]")


def text(value: Any) -> str:
    """Return ``value`` as one line of printable characters, with markup escaped.

    Right-to-left words are isolated, because they would display a following number in front.
    """
    return isolated(escape(one_line(value)))


def visible(value: str) -> str:
    r"""Return ``value`` with its line breaks and with invisible characters as codes: ``\u202e``.

    These are control characters, writing directions (which could reorder the displayed text), and
    lone surrogates, which no file can hold.

    >>> print(visible("a\x1b[31m\u202eb"))
    a\u001b[31m\u202eb
    """
    return _SUSPECT.sub(_code, value.replace("\r\n", "\n"))


def _code(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    if character.isspace() and character > "\x7f":  # a space or a line's end of another width
        return "\n" if character in "\x85\u2028\u2029" else " "
    return f"\\u{ord(character):04x}"


def script_json(value: Any) -> str:
    """Return ``value`` as JSON that can neither end a ``<script>`` nor begin a comment in it."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half a surrogate pair, which no file can hold, is an escape in JSON.
    storable = written.encode(errors="backslashreplace").decode()
    return storable.translate(_UNSAFE_IN_SCRIPT)


Pictures = Mapping[str, bytes]
"""PNG files by name; figures without an entry are left out."""


def fold_html(fold: Fold, pictures: Pictures | None = None) -> str:
    """Return ``fold`` as a closed ``<details>`` element titled by its question."""
    body = sections_html(fold.sections, pictures, below=2)
    return f"<details><summary><h2>{text(fold.question)}</h2></summary>\n{body}</details>"


def sections_html(
    sections: Sequence[Section], pictures: Pictures | None = None, *, below: int = 1
) -> str:
    """Return headings and blocks; ``below``: level of the heading above them.

    Heading levels never skip on the way down, because screen readers list them as a tree.
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
    """Return the HTML of ``blocks`` in order."""
    return "".join(f"{_block(block, pictures or {})}\n" for block in blocks)


_SHORT = 14
"""Maximum number of characters in a cell that is kept on one line."""


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
        case Figure(file, alt, content):
            if (png := content or pictures.get(file.name)) is None:
                return ""
            url = f"data:image/png;base64,{b64encode(png).decode()}"
            image = f'<img alt="{text(alt)}" src="{url}">'
            # On a phone it scrolls, as a table does: its words would be too small to read.
            return (
                f'<div class="picture" role="group" tabindex="0" aria-label="Picture">{image}</div>'
            )


def _item(item: Text | Item) -> str:
    if not isinstance(item, Item):
        return f"<li>{_inline(item)}</li>"
    parts = "".join(f"<li>{_inline(part)}</li>" for part in item.parts)
    return f"<li>{_inline(item.text)}<ul>{parts}</ul></li>"


def _table(table: DataTable) -> str:
    right = table.right_aligned
    marks = [' class="n"' if i in right else "" for i in range(len(table.columns))]
    head = "".join(
        _heading("col", mark or _width_class(column), _inline(column))
        for mark, column in zip(marks, table.columns, strict=True)
    )
    rows = "".join(f"<tr>{_row(row, marks)}</tr>\n" for row in table.rows)
    caption = text(table.caption) if table.caption else ""
    heading = f"<caption>{caption}</caption>" if caption else ""
    # It scrolls where it is too wide, so the keyboard must reach it.
    label = caption or f"Table: {', '.join(filter(None, map(_plain, table.columns[:4])))}"
    return (
        f'<div class="table" role="group" tabindex="0" aria-label="{label}"><table>{heading}'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _row(row: Sequence[Cell], marks: Sequence[str]) -> str:
    marks = [mark or _width_class(cell) for mark, cell in zip(marks, row, strict=True)]
    first, *others = [cell_words(cell, _inline) for cell in row]
    return _heading("row", marks[0], first) + "".join(
        f"<td{mark}>{cell}</td>" for mark, cell in zip(marks[1:], others, strict=True)
    )


def _width_class(cell: Cell | Text) -> str:
    """Return the class that keeps a short text cell on one line and lets a long one wrap."""
    if not isinstance(cell, str | Code):
        return ""
    length = len(one_line(cell if isinstance(cell, str) else cell.text))
    return ' class="short"' if length <= _SHORT else ' class="long"'


def _heading(scope: str, mark: str, words: str) -> str:
    """Return a header cell for a row or column, or an empty data cell if there are no words."""
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


_ASSETS = Path(__file__).parent / "assets"
_STYLES = ("page.css", "chart.css")
_SCRIPTS = ("page.js",)
DRAWING = ("scales.js", "marks.js", "pointing.js")
"""Scripts required by every interactive picture."""


class Interactive(NamedTuple):
    """Interactive part of a page: its data as JSON values, and its files in ``assets``."""

    payload: Mapping[str, Any] | None
    scripts: tuple[str, ...] = (*DRAWING, "chart.js", "answers.js", "controls.js")
    style: str = ""


def html_page(
    title: str,
    head: str,
    folds: Sequence[Fold],
    interactive: Interactive | None = None,
    pictures: Pictures | None = None,
) -> str:
    """Return the page: ``head`` unchanged, then each fold as a question that opens.

    ``title``: title of the page, shown above the head. ``head``: HTML; text of users and models
    must already be escaped. ``interactive``: data and scripts of a picture or table in ``head``.
    ``pictures``: PNG files shown in the folds.

    The content security policy allows only the page's own style and scripts, by hash, so a browser
    neither runs anything in an answer nor fetches anything for it.
    """
    extras = interactive or Interactive(None, ())
    style = _joined((*_STYLES, *filter(None, [extras.style])))
    files = (*_SCRIPTS, *extras.scripts)
    script = f'\n"use strict";\n(() => {{{_joined(files)}}})();\n'
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    data = ""
    if extras.payload is not None:
        payload = script_json(extras.payload)
        data = f'<script type="application/json" id="data">{payload}</script>\n'
    questions = "\n".join(fold_html(fold, pictures) for fold in folds)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{text(title)}</title>
<style>{style}</style>
</head>
<body>
<header class="bar"><p class="brand">ContextCliff</p>
<div id="theme" hidden></div></header>
<main>
<h1>{text(title)}</h1>
{head}
<section class="folds" aria-label="Details">
{questions}
</section>
</main>
{data}<script>{script}</script>
</body>
</html>
"""


@cache
def _joined(names: tuple[str, ...]) -> str:
    return "\n" + "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in names)


@cache
def _hash(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"
