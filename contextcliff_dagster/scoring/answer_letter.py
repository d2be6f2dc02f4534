"""Which lettered option, or options, an answer chooses."""

from __future__ import annotations

import re

from contextcliff_dagster.scoring.normalize import fold_forms

_OPEN, _CLOSE = r"[\s\"'*_`(\[{$「【]*(?:\\boxed\{)?", r"[)\]}*_`\"'.,:;!?，。、」】]"
_END = r"(?!['A-Za-z0-9_])"
_ALONE = re.compile(rf"{_OPEN}([A-Za-z])(?:{_CLOSE}|\$|\s)*")
_LEADING = re.compile(rf"{_OPEN}([A-Z])(?:{_CLOSE}|\s*[\n\u2013\u2014-]|\s*$)")
_ANNOUNCED = (
    r"(?:\b(?i:(?:answer|option|choice|choose|chose|select|pick)(?:ed|s)?)\b"
    r"(?:\s+(?i:is|are|was|were|would be|must be|should be|letters?|options?|choices?))*"
    r"|答案(?:应该|應該)?[是为為选選]?|[选選](?:择|擇|项|項)?|正解は|答えは|정답은)"
    rf"\s*[:=]?{_OPEN}"
)
"""A word that announces a choice. "A" and "I" are words as well: see `_is_word`."""
_STATED = re.compile(rf"{_ANNOUNCED}([A-Z]){_END}")
_ANOTHER = re.compile(
    r"[)\]}*_`\"'.]*\s*(?:,|/|&|，|、|\bor\b|\band\b|[或和与])[\s\"'*_(\[]*[A-Z]" + _END
)
_GOES_ON = re.compile(r"\s+(?!because\b|since\b|as\b|for\b|due\b|\()[a-z]")

_BETWEEN = r"(?:[\s,;/&+，、和与及)\](\[*_.]|\band\b)*"
_SEVERAL = rf"[A-H](?:{_BETWEEN}[A-H]{_END}|[A-H])*"
_ONLY_LETTERS = re.compile(rf"{_OPEN}({_SEVERAL})(?:{_CLOSE}|\$|\s)*")
_STATED_LETTERS = re.compile(rf"{_ANNOUNCED}({_SEVERAL}){_END}")
_LEADING_LETTERS = re.compile(rf"(?i:both\s)?{_OPEN}([A-H](?:{_BETWEEN}[A-H]{_END})+)")


def chosen_letter(answer: str) -> str | None:
    """The letter (A-Z) that ``answer`` chooses; None where it names none, or two at once.

    Read are a letter alone (``b``), a letter that begins the answer (``B) Paris``), and the last
    that the answer announces (``I first thought of A, but the answer is B``).

    >>> [chosen_letter(answer) for answer in ("b", "B) Paris", "A or B", "the answer is C.")]
    ['B', 'B', None, 'C']
    """
    answer = fold_forms(answer)
    if whole := _ALONE.fullmatch(answer):
        return whole[1].upper()
    stated = [match for match in _STATED.finditer(answer) if not _is_word(answer, match)]
    match = stated[-1] if stated else _LEADING.match(answer)
    if match is None or _ANOTHER.match(answer, match.end(1)):
        return None
    return match[1]


def chosen_letters(answer: str) -> frozenset[str]:
    """All letters (A-H) that ``answer`` chooses, where several may be right; empty: none.

    >>> [sorted(chosen_letters(one)) for one in ("BD", "B, D", "B and D", "B) yes", "B or D")]
    [['B', 'D'], ['B', 'D'], ['B', 'D'], ['B'], []]
    """
    answer = fold_forms(answer)
    lines = [_LEADING.match(line) for line in answer.splitlines() if line.strip()]
    if len(lines) > 1 and all(lines):
        return frozenset(match[1] for match in lines if match)
    if match := _ONLY_LETTERS.fullmatch(answer):
        return frozenset(re.findall(r"[A-H]", match[1]))
    stated = list(_STATED_LETTERS.finditer(answer))
    for match in [*stated[-1:], _LEADING_LETTERS.match(answer)]:
        letters = re.findall(r"[A-H]", match[1]) if match else []
        if match and len(letters) > 1 and not _ANOTHER.match(answer, match.end(1)):
            return frozenset(letters)
    one = chosen_letter(answer)
    return frozenset((one,)) if one else frozenset()


def _is_word(answer: str, match: re.Match[str]) -> bool:
    return match[1] in "AI" and _GOES_ON.match(answer, match.end(1)) is not None
