"""The little that is done to every text, and the note on it."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def tidied(text: str, notes: list[str]) -> str:
    """Line ends as ``\\n``, no NUL, no lone surrogate; nothing else changes."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("line ends made \\n")
    if "\0" in text:
        notes.append(f"NUL characters removed: {text.count(chr(0)):,}")
        text = text.replace("\0", "")
    if not text.isascii() and (n := len(_SURROGATE.findall(text))):
        notes.append(f"halves of surrogate pairs replaced by U+FFFD: {n:,}")
        text = _SURROGATE.sub("\ufffd", text)
    return text
