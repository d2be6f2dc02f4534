"""Which lettered option, or options, an answer chooses."""

from __future__ import annotations

import re
from string import ascii_uppercase

from contextcliff_dagster.scoring.normalize import fold_forms

_OPEN, _CLOSE = r"[\s\"'*_`(\[{$「【]*(?:\\boxed\{)?", r"[)\]}*_`\"'.,:;!?，。、」】]"
_END = r"(?!['\u2019]?[A-Za-z0-9_])"  # "I'd" and "A's" are words
_ALONE = re.compile(rf"{_OPEN}([A-Za-z])(?:{_CLOSE}|\$|\s)*")
_LEADING = re.compile(rf"{_OPEN}([A-Z]){_END}(?:{_CLOSE}|\s*[\n\u2013\u2014-]|\s*$)")
_ANNOUNCED = (
    r"(?:\b(?i:(?:answer|option|choice|choose|chose|select|pick)(?:ed|s)?)\b"
    r"(?:\s+(?i:is|are|was|were|would be|must be|should be|letters?|options?|choices?))*"
    r"|答案(?:应该|應該)?[是为為选選]?|[选選](?:择|擇|项|項)?|正解は|答えは|정답은)"
    rf"\s*[:=]?{_OPEN}"
)
"""A word that announces a choice. "A" and "I" are words as well: see `_is_word`."""
_STATED = re.compile(rf"{_ANNOUNCED}([A-Z]){_END}")
_ANOTHER = re.compile(
    r"[)\]}*_`\"'.]*\s*(?:,|/|&|，|、|\bor\b|\band\b|[或和与])[\s\"'*_(\[]*([A-Z])" + _END
)
_GOES_ON = re.compile(
    r"\s+(?!(?:because|since|as|for|due|is|are|was|may|might|and|or)\b|\()[A-Za-z]"
)
_SINGLE = re.compile(rf"(?<![A-Za-z0-9_.'\u2019&-])([A-HJ-Z]){_END}(?!\.[A-Z]|[&-])")
_SOME = r"[\"'*_(\[]*(?<![A-Za-z0-9])[A-Z](?![A-Za-z0-9])[\"'*_)\]]*"
_LIST = rf"{_SOME}(?:(?:\s*[,/&]\s*|,?\s+(?:and|or|nor)\s+){_SOME})*"
_REJECTED = re.compile(
    r"(?:(?i:\b(?:not|neither|nor|except|eliminate|reject|rule out)\b|n['\u2019]t\b)"
    rf"(?:\s+(?i:be|options?|answers?|choices?))?\s+|不[是选選]\s*){_LIST}"
    rf"|{_LIST}(?:\s+(?:is|are|was|were)(?:\s+(?:both|all|also|clearly))*(?:n['\u2019]t\b|"
    r"\s+(?:not|wrong|incorrect|false)\b)|\s*(?:不正[确確]|不[对對]|[错錯]))"
)

_BETWEEN = r"(?:[\s,;/&+，、和与及)\](\[*_.]|\band\b)*"
_SEVERAL_OF = "ABCDEFGH"
_SEVERAL = rf"[A-H](?:{_BETWEEN}[A-H]{_END}|[A-H])*"
_ONLY_LETTERS = re.compile(rf"{_OPEN}({_SEVERAL})(?:{_CLOSE}|\$|\s)*")
_STATED_LETTERS = re.compile(rf"{_ANNOUNCED}({_SEVERAL}){_END}")
_LEADING_LETTERS = re.compile(rf"(?i:both\s)?{_OPEN}([A-H](?:{_BETWEEN}[A-H]{_END})+)")


def chosen_letter(answer: str, options: str = ascii_uppercase) -> str | None:
    """The letter of ``options`` that ``answer`` chooses; None where it names none, or two at once.

    Read are a letter alone (``b``), a letter that begins the answer (``B) Paris``), and the last
    that the answer announces (``I first thought of A, but the answer is B``). One that is called
    wrong counts only where no other is chosen.

    >>> [chosen_letter(answer) for answer in ("b", "B) Paris", "A or B", "the answer is C.")]
    ['B', 'B', None, 'C']
    """
    answer = fold_forms(answer)
    left = _REJECTED.sub(" ", answer)
    return _chosen(left, options) or (None if _singles(left, options) else _chosen(answer, options))


def single_letter(answer: str, options: str = ascii_uppercase) -> str | None:
    """The only capital of ``options`` that is a word of its own in ``answer`` and not called wrong;
    None where there is none or another, and never the word "A" or "I".

    >>> [single_letter(one) for one in ("It's B", "A man", "A is wrong, C is right", "B or C")]
    ['B', None, 'C', None]
    """
    found = _singles(_REJECTED.sub(" ", fold_forms(answer)), options)
    return found.pop() if len(found) == 1 else None


def _singles(answer: str, options: str) -> set[str]:
    found = {one[1] for one in _SINGLE.finditer(answer) if not _is_word(answer, one)}
    return found & set(options)


def _chosen(answer: str, options: str) -> str | None:
    if (whole := _ALONE.fullmatch(answer)) and whole[1].upper() in options:
        return whole[1].upper()
    announced = [one for one in _STATED.finditer(answer) if not _is_word(answer, one)]
    stated = [one for one in announced if one[1] in options]
    match = stated[-1] if stated else _LEADING.match(answer)
    if match is None or match[1] not in options or _names_another(answer, match, options):
        return None
    return match[1]


def chosen_letters(answer: str) -> frozenset[str]:
    """All letters (A-H) that ``answer`` chooses, where several may be right; empty: none.

    >>> [sorted(chosen_letters(one)) for one in ("BD", "B, D", "B and D", "B) yes", "B or D")]
    [['B', 'D'], ['B', 'D'], ['B', 'D'], ['B'], []]
    """
    answer = _REJECTED.sub(" ", whole := fold_forms(answer))
    lines = [_LEADING.match(line) for line in answer.splitlines() if line.strip()]
    if len(lines) > 1 and all(lines):
        return frozenset(match[1] for match in lines if match)
    if match := _ONLY_LETTERS.fullmatch(answer):
        return frozenset(re.findall(r"[A-H]", match[1]))
    stated = list(_STATED_LETTERS.finditer(answer))
    for match in [*stated[-1:], _LEADING_LETTERS.match(answer)]:
        letters = re.findall(r"[A-H]", match[1]) if match else []
        if match and len(letters) > 1 and not _names_another(answer, match, _SEVERAL_OF):
            return frozenset(letters)
    one = chosen_letter(whole, _SEVERAL_OF) or single_letter(answer, _SEVERAL_OF)
    return frozenset((one,)) if one else frozenset()


def _names_another(answer: str, match: re.Match[str], options: str) -> bool:
    other = _ANOTHER.match(answer, match.end(1))
    return other is not None and other[1] in options and not _is_word(answer, other)


def _is_word(answer: str, match: re.Match[str]) -> bool:
    return match[1] in "AI" and _GOES_ON.match(answer, match.end(1)) is not None
