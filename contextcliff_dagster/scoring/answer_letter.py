"""Which lettered option an answer chooses."""

from __future__ import annotations

import re

_OPEN, _CLOSE = r"[\s\"'*_`(\[{$]*(?:\\boxed\{)?", r"[)\]}*_`\"'.,:;!?]"
_ALONE = re.compile(rf"{_OPEN}([A-Za-z])(?:{_CLOSE}|\$|\s)*")
_LEADING = re.compile(rf"{_OPEN}([A-Z])(?:{_CLOSE}|\s*[\n\u2013\u2014-]|\s*$)")
_STATED = re.compile(
    r"\b(?i:(?:answer|option|choice|choose|chose|select|pick)(?:ed|s)?)\b"
    r"(?:\s+(?i:is|was|would be|must be|should be|letter|option|choice))*"
    rf"\s*[:=]?{_OPEN}([A-Z])(?![\w'])"
)
"""After a word that announces a choice. "A" and "I" are words as well: see `_is_word`."""
_ANOTHER = re.compile(r"[)\]}*_`\"'.]*\s*(?:,|/|&|\bor\b|\band\b)[\s\"'*_(\[]*[A-Z](?![\w'])")
_GOES_ON = re.compile(r"\s+(?!because\b|since\b|as\b|for\b|due\b|\()[a-z]")


def chosen_letter(answer: str) -> str | None:
    """The letter (A-Z) that ``answer`` chooses; None where it names none, or two at once.

    Read are a letter alone (``b``), a letter that begins the answer (``B) Paris``), and the last
    that the answer announces (``I first thought of A, but the answer is B``).

    >>> [chosen_letter(answer) for answer in ("b", "B) Paris", "A or B", "the answer is C.")]
    ['B', 'B', None, 'C']
    """
    if whole := _ALONE.fullmatch(answer):
        return whole[1].upper()
    stated = [match for match in _STATED.finditer(answer) if not _is_word(answer, match)]
    match = stated[-1] if stated else _LEADING.match(answer)
    if match is None or _ANOTHER.match(answer, match.end(1)):
        return None
    return match[1]


def _is_word(answer: str, match: re.Match[str]) -> bool:
    return match[1] in "AI" and _GOES_ON.match(answer, match.end(1)) is not None
