"""Extraction of the number or value from a reply, by strict rules shared by all formats.

1. Closed reasoning blocks, end markers and a repeated answer prefix are removed first
   (`scoring.parse`). If lines begin with ``Answer:``, only the text after the last such marker
   counts; the text before it is the thought.
2. Both forms of an identifier are the same name: ``WH-0042`` is ``Warehouse 42``. Digits in
   identifiers, dates and times do not count as numbers.
3. Numbers are written in digits, optionally with a sign and with thousands separated by commas,
   spaces, apostrophes or underscores: ``1,234``; ``57.0`` is 57. A reply that is a single word from
   zero to twenty is that number. Units, sentences and Markdown around a number are ignored.
4. A value is one of the question's choices, as a whole word in upper or lower case.
5. The same number or value repeated is one answer. Different ones make the reply ambiguous, in
   whatever order they come.

An exported copy of this file runs on its own: it imports nothing from this project.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

MARKER = "Answer:"
"""Start of the last line if reasons come before the answer."""

EXTRACTION_VERSION = "1"
"""Increase it if the same reply gives another answer."""

Problem = Literal["none", "ambiguous"]
_IDENTIFIERS = {"warehouse": "WH", "entity": "E", "node": "N"}
_NAMED = re.compile(r"\b(warehouse|entity|node)\s+#?(\d{1,9})\b", re.IGNORECASE)
_CODED = re.compile(r"\b(WH|SKU|E|N)-(\d{1,9})\b", re.IGNORECASE)

_MARKED = re.compile(
    rf"^[\s>#*_`-]*(?:final\s+)?{MARKER[:-1]}[*_`]*\s*:", re.IGNORECASE | re.MULTILINE
)

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"

_TIMES = re.compile(
    rf"\b\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?Z?)?\b|\b\d{{1,2}}:\d\d(?::\d\d)?\b"
    rf"|\b(?:{_MONTHS})\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?\b",
    re.IGNORECASE,
)

_SPACES = ",_'\u2019 \u00a0\u2009\u202f"

_NUMBER = re.compile(
    rf"(?<![\w.])([-\u2212\u2013+]?)(\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?!\d)|\d+)(\.\d+)?(?!\w)"
)

_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
).split()


class Extracted(NamedTuple):
    """The answer in a reply, or the ``problem``; ``thought`` is the text before the marker."""

    answer: str | None
    thought: str | None = None
    problem: Problem | None = None


def extract_answer(
    reply: str, form: Literal["number", "value"], choices: Sequence[str] = ()
) -> Extracted:
    """Return the answer in a reply, in the form that the benchmarks use.

    Args:
        reply: the model's text, without closed reasoning blocks.
        form: whether to look for a number (in digits) or for one of ``choices``.
        choices: the possible values: names, identifiers, or numbers in digits.
    """
    thought, text = _split(reply)
    if form == "number":
        answers = set(numbers_in(text))
    elif choices and all(_CODED.fullmatch(choice) for choice in choices):
        # Only the requested kind, because the question also names other kinds.
        kinds = {choice.partition("-")[0].upper() for choice in choices}
        answers = {name for name in identifiers_in(text) if name.partition("-")[0] in kinds}
    elif choices and all(choice.isdecimal() for choice in choices):
        answers = set(numbers_in(text))
    else:
        answers = set(_named(text, choices))
    if len(answers) == 1:
        return Extracted(answers.pop(), thought)
    return Extracted(None, thought, "ambiguous" if answers else "none")


def identifiers_in(text: str) -> list[str]:
    """Return the identifiers in a text as records write them, including repetitions.

    >>> identifiers_in("Warehouse 42 (wh-0042), node 7")
    ['WH-0042', 'WH-0042', 'N-0007']
    """
    identifiers = [
        (match.start(), _IDENTIFIERS[match[1].lower()], match[2]) for match in _NAMED.finditer(text)
    ]
    identifiers += [(match.start(), match[1].upper(), match[2]) for match in _CODED.finditer(text)]
    return [f"{kind}-{int(number):04d}" for _, kind, number in sorted(identifiers)]


def numbers_in(text: str) -> Iterator[str]:
    """Yield the numbers in a text as digits, except those in identifiers, dates and times.

    >>> list(numbers_in("At 12:00:00 SKU-0017 had 1,234 units, later -3.50"))
    ['1234', '-3.5']
    """
    if (word := text.strip(" \t\n.!*`\"'").lower()) in _WORDS:
        yield str(_WORDS.index(word))
        return
    for pattern in (_CODED, _NAMED, _TIMES):
        text = pattern.sub(" ; ", text)
    for sign, integer, fraction in _NUMBER.findall(text):
        digits = int(re.sub(rf"[{_SPACES}]", "", integer))
        minus = (
            "-" if sign in ("-", "\u2212", "\u2013") and (digits or fraction.strip(".0")) else ""
        )
        yield f"{minus}{digits}{fraction.rstrip('0').rstrip('.')}"


def _split(reply: str) -> tuple[str | None, str]:
    markers = list(_MARKED.finditer(reply))
    if not markers:
        return None, reply
    last = markers[-1]
    return reply[: last.start()].strip() or None, reply[last.end() :]


def _named(text: str, choices: Sequence[str]) -> Iterator[str]:
    for pattern in (_CODED, _NAMED):
        text = pattern.sub(" ; ", text)
    for choice in choices:
        if re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", text, re.IGNORECASE):
            yield choice
