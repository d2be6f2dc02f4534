"""Text made safe for Markdown: what a user named or a model answered must not become markup."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from contextcliff_dagster.reporting.wording.direction import isolated, isolated_whole

_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~$#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#A-Za-z])|:(?=//)|(?<=www)\."
)
_PIPE, _ESCAPED_PIPE = re.compile(r"(?<!\\)\|"), r"\\|"
_LINE_START = re.compile(r"^([-+=]|\d+(?=[.)]))")


def plain(text: Any) -> str:
    """``text`` on one line with every character that Markdown or HTML would act on escaped.

    Links are not made either: ``http\\://`` stays text.
    """
    return line_start(escaped(text))


def escaped(text: Any) -> str:
    """`plain` for text that begins no line: in a table's cell, or behind other text."""
    marked = _SPECIAL.sub(lambda m: "&lt;" if m[0] == "<" else "\\" + m[0], one_line(text))
    return isolated(marked)


def line_start(line: str) -> str:
    """``line`` so that its first characters make no list, heading or rule."""
    return _LINE_START.sub(lambda m: m[0] + "&#8203;" if m[0].isdigit() else "\\" + m[0], line)


def one_line(text: Any) -> str:
    """``text`` in printable characters with single spaces; what is no text is not stated."""
    if text is None or (isinstance(text, float) and not math.isfinite(text)):
        return "not stated"
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def code(text: Any) -> str:
    """``text`` as a code span that no backtick in it can close."""
    if text is None or not (line := one_line(text)):
        return "not stated"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line[0] == "`" or line[-1] == "`" else ""
    return isolated_whole(f"{fence}{pad}{line}{pad}{fence}")


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()
) -> list[str]:
    """Lines of a table; cells are markup already. ``right``: columns aligned to the right.

    A pipe would end its cell, also inside code: tables read ``\\|`` as one.
    """
    numeric = set(right)
    marks = ["---:" if i in numeric else "---" for i in range(len(head))]
    return [
        f"| {' | '.join(_PIPE.sub(_ESCAPED_PIPE, cell) for cell in cells)} |"
        for cells in (head, marks, *rows)
    ]
