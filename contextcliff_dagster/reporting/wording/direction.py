"""Texts of any script in a line: words from right to left, and columns of a terminal."""

from __future__ import annotations

import re
import unicodedata

FIRST_STRONG_ISOLATE, POP_ISOLATE = "\u2068", "\u2069"
_WORD = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
_RIGHT_TO_LEFT = re.compile(f"{_WORD}(?: {_WORD})*")


def isolated(text: str) -> str:
    """`text` with its words from right to left between Unicode's isolates (U+2068, U+2069, UAX #9):
    without them a number that follows is shown in front. Text without such words is unchanged.
    """
    return (
        text
        if text.isascii()
        else _RIGHT_TO_LEFT.sub(f"{FIRST_STRONG_ISOLATE}\\g<0>{POP_ISOLATE}", text)
    )


def isolated_whole(text: str) -> str:
    """`text` between isolates if any of it is written from right to left: for what is copied as it
    is, such as code."""
    if text.isascii() or not _RIGHT_TO_LEFT.search(text):
        return text
    return f"{FIRST_STRONG_ISOLATE}{text}{POP_ISOLATE}"


def columns_of(text: str) -> int:
    """How many columns of a terminal ``text`` takes: wide characters two, combining ones and
    isolates none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def padded(text: str, columns: int) -> str:
    """`text` with blanks after it up to so many columns."""
    return text + " " * (columns - columns_of(text))


def _columns(character: str) -> int:
    if character in (FIRST_STRONG_ISOLATE, POP_ISOLATE):
        return 0
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
