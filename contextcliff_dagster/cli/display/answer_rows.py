"""Answers for other programs: JSON lines and CSV, complete, and given back exactly as they were."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_NUMBER = re.compile(r"[+-]?[\d.,]*\d%?", re.ASCII)
_BEGINS_FORMULA = frozenset("=+-@\t\r\n＝＋－＠")


def as_json_line(row: Mapping[str, Any]) -> str:
    """``row`` as one line of JSON.

    What would move a terminal's cursor, or end a line for some readers, is escaped as JSON can.
    """
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_lines(rows: Iterator[Mapping[str, Any]], names: list[str]) -> Iterator[str]:
    """The head and ``rows`` as lines of CSV (RFC 4180), without their ends.

    Null is an empty field, an empty text ``""``, a list JSON. A text that a spreadsheet would take
    for a formula gets an apostrophe in front, and so does one that begins with an apostrophe: who
    takes one leading apostrophe from each text has what was there.
    """
    yield ",".join(map(_quoted, names))
    for row in rows:
        yield ",".join(_field(row[name]) for name in names)


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return _quoted(json.dumps(value, ensure_ascii=False))
    text = str(value)
    formula = text[:1] in _BEGINS_FORMULA and not _NUMBER.fullmatch(text)
    return _quoted(f"'{text}" if text and (formula or text[0] == "'") else text)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
