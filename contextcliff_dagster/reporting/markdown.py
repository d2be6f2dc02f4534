"""Sections of a report as Markdown, as text for a terminal, and as JSON for programs.

Text is made safe for Markdown: a user's name or a model's answer must not become markup.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Code,
    DataTable,
    Figure,
    Item,
    Lines,
    Link,
    Paragraph,
    Section,
    Span,
    Strong,
    Text,
    cell_words,
    spans,
)
from contextcliff_dagster.reporting.wording import columns_of, isolated, isolated_whole, padded

_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~$#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#A-Za-z])|:(?=//)|(?<=www)\."
)
_PIPE, _ESCAPED_PIPE = re.compile(r"(?<!\\)\|"), r"\\|"
_LINE_START = re.compile(r"^([-+=]|\d+(?=[.)]))")


def plain(text: Any) -> str:
    """Return ``text`` on one line with all Markdown and HTML markup escaped.

    Addresses do not become links: ``http\\://`` stays text.
    """
    return line_start(escaped(text))


def escaped(text: Any) -> str:
    """Return ``text`` escaped as by `plain`, for use inside a line, such as a table cell."""
    marked = _SPECIAL.sub(lambda m: "&lt;" if m[0] == "<" else "\\" + m[0], one_line(text))
    return isolated(marked)


def line_start(line: str) -> str:
    """Escape the first characters of ``line`` that would start a list, heading or rule."""
    return _LINE_START.sub(lambda m: m[0] + "&#8203;" if m[0].isdigit() else "\\" + m[0], line)


def one_line(text: Any) -> str:
    """Return ``text`` as printable characters with single spaces; None and NaN as "not stated"."""
    if text is None or (isinstance(text, float) and not math.isfinite(text)):
        return "not stated"
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def code(text: Any) -> str:
    """Return ``text`` as a code span that no backtick inside it can close."""
    if text is None or not (line := one_line(text)):
        return "not stated"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line[0] == "`" or line[-1] == "`" else ""
    return isolated_whole(f"{fence}{pad}{line}{pad}{fence}")


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()
) -> list[str]:
    """Return the lines of a table of Markdown cells; ``right``: right-aligned columns.

    Pipes are written as ``\\|``, because a pipe ends its cell even inside code.
    """
    numeric = set(right)
    marks = ["---:" if i in numeric else "---" for i in range(len(head))]
    return [
        f"| {' | '.join(_PIPE.sub(_ESCAPED_PIPE, cell) for cell in cells)} |"
        for cells in (head, marks, *rows)
    ]


_INTERVAL = re.compile(r"\\\[([\w ,.%+?-]*)\\\](?!\\?[(\[:])")
"""Escaped brackets around words and numbers that cannot become a link."""


def as_page(sections: Sequence[Section]) -> str:
    """Return ``sections`` as a Markdown file (GitHub-flavoured, ends with a newline)."""
    return "\n".join(as_markdown(sections)[1:]) + "\n"


def as_markdown(sections: Sequence[Section]) -> list[str]:
    """Return the lines of ``sections``, with a blank line before each heading and block."""
    lines: list[str] = []
    for section in sections:
        lines += ["", f"{'#' * section.level} {_line(section.title)}"]
        for block in section.blocks:
            lines += ["", *_lines(block)]
    return lines


def as_text(sections: Sequence[Section], width: int = 80) -> list[str]:
    """Return the lines of ``sections`` for a terminal of ``width`` columns, without markup.

    Tables are set in columns. A line exceeds the width only if a single word does.
    """
    lines: list[str] = []
    for section in sections:
        title = "".join(
            s.upper() if isinstance(s, str) else one_line(s.text) for s in spans(section.title)
        )
        lines += [*([""] if lines else []), title]
        for block in section.blocks:
            match block:
                case Paragraph(text):
                    lines += ["", *_wrapped(_words(text), width)]
                case Lines(items):
                    lines += ["", *(line for i in items for line in _wrapped(_words(i), width))]
                case Bullets(items):
                    bullets = _bullets(items, _words)
                    lines += ["", *(line for bullet in bullets for line in _wrapped(bullet, width))]
                case DataTable(columns, rows, caption):
                    lines += ["", *(_wrapped(caption, width) if caption else ())]
                    cells = [[cell_words(cell, _words) for cell in row] for row in (columns, *rows)]
                    lines += _in_columns(cells, width)
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap ``text`` to ``width``; a bullet's further lines are indented to its text."""
    indent = len(text) - len(text.lstrip(" -")) if text.lstrip().startswith("- ") else 0
    lines = textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return [isolated(line) for line in lines]


def _in_columns(cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table; cells too wide for ``width`` break between words."""
    columns = list(zip(*cells, strict=True))
    least = [max(columns_of(w) for c in column for w in c.split() or [""]) for column in columns]
    full_widths = [max(1, *map(columns_of, column)) for column in columns]
    # The head is broken first, then the widest column, a column of the screen at a time.
    widths = [
        max(narrow, *map(columns_of, column[1:]), 1)
        for narrow, column in zip(least, columns, strict=True)
    ]
    room = width - 2 * (len(widths) - 1)
    while sum(widths) > room and (wider := [i for i, w in enumerate(widths) if w > least[i]]):
        widths[max(wider, key=widths.__getitem__)] -= 1
    while sum(widths) < room and (short := [i for i, w in enumerate(widths) if w < full_widths[i]]):
        widths[max(short, key=lambda i: full_widths[i] / widths[i])] += 1
    lines = []
    for row in cells:
        parts = [
            textwrap.wrap(cell, wide, break_long_words=False, break_on_hyphens=False)
            for cell, wide in zip(row, widths, strict=True)
        ]
        for place in range(max(map(len, parts), default=0)):
            line = [isolated(part[place]) if place < len(part) else "" for part in parts]
            lines.append("  ".join(map(padded, line, widths)).rstrip())
    return lines


def as_json(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return ``sections`` as JSON objects; each block names its ``kind``, texts are strings."""
    return [
        {
            "title": _words(section.title),
            "level": section.level,
            "blocks": [
                {"kind": type(block).__name__.lower(), **_block_json(block)}
                for block in section.blocks
            ],
        }
        for section in sections
    ]


def _block_json(block: Block) -> dict[str, Any]:
    match block:
        case Paragraph(text):
            return {"text": _words(text)}
        case Lines(items):
            return {"items": [_words(item) for item in items]}
        case Bullets(items):
            return {"items": [_item_json(item) for item in items]}
        case DataTable(columns, rows, caption):
            cells = [
                [c if c is None or isinstance(c, int | float) else _words(c) for c in row]
                for row in rows
            ]
            return {"columns": [*map(_words, columns)], "rows": cells, "caption": caption}
        case Figure(file, alt):
            return {"file": file, "alt": alt}


def _item_json(item: Text | Item) -> Any:
    if isinstance(item, Item):
        return {"text": _words(item.text), "parts": [_words(part) for part in item.parts]}
    return _words(item)


def _lines(block: Block) -> list[str]:
    match block:
        case Paragraph(text):
            return [_line(text)]
        case Lines(items):
            return [_line(item) for item in items]
        case Bullets(items):
            return _bullets(items, _line)
        case DataTable(columns, rows, caption):
            cells = [[cell_words(value, _inline) for value in row] for row in rows]
            body = table([*map(_inline, columns)], cells, block.right_aligned)
            return [_line(caption), "", *body] if caption else body
        case Figure(file, alt):
            return [f"![{_line(alt)}]({file.name})"]


def _bullets(items: Sequence[Text | Item], write: Callable[[Text], str]) -> list[str]:
    lines = []
    for item in items:
        text, parts = (item.text, item.parts) if isinstance(item, Item) else (item, ())
        lines += [f"- {write(text)}", *(f"    - {write(part)}" for part in parts)]
    return lines


def _line(text: Text) -> str:
    return line_start(_inline(text))


def _inline(text: Text) -> str:
    return "".join(map(_span, spans(text))).strip()


def _span(span: Span) -> str:
    match span:
        case Code(text):
            return code(text)
        case Strong(text):
            return f"**{escaped(text)}**"
        case Link(text, href):
            return f"[{escaped(text)}]({href})"
        case Bracketed(text):
            return _INTERVAL.sub(r"[\1]", _span(text))
        case _:
            before, after = " " * span[:1].isspace(), " " * span[-1:].isspace()
            return f"{before}{escaped(span)}{after}"


def _words(text: Text) -> str:
    return "".join(s if isinstance(s, str) else one_line(s.text) for s in spans(text))
