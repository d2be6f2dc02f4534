"""Text made safe for HTML and for JSON inside it: what a user named or a model answered is text."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

from contextcliff_dagster.reporting.markdown.escaping import one_line
from contextcliff_dagster.reporting.wording.direction import isolated

_UNSAFE_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_SUSPECT = re.compile(r"[^ -~\n\t]")


def text(value: Any) -> str:
    """``value`` on one line of printable characters, none of which is markup.

    Words written from right to left are isolated: they would put the number after them in front.
    """
    return isolated(escape(one_line(value)))


def visible(value: str) -> str:
    r"""``value`` with its line breaks; what could not be seen is written as a code: ``\u202e``.

    Control characters, directions of writing (which could show a text in another order than it is
    in), and halves of surrogate pairs, which no file can hold.

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
    """``value`` as JSON that ends no ``<script>`` and begins no comment in one."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half a surrogate pair, which no file can hold, is an escape in JSON.
    storable = written.encode(errors="backslashreplace").decode()
    return storable.translate(_UNSAFE_IN_SCRIPT)
