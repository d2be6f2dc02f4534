"""The number or the value in a reply, by strict rules that are the same for every format.

1. Closed reasoning blocks, end markers and an answer prefix that is repeated are no part of the
   reply (`scoring.parse`). Where a line begins with ``Answer:``, only what follows the last such
   line's marker counts; what is before it is the thought.
2. Identifiers are read as one name in either form: ``WH-0042`` is ``Warehouse 42``. Their digits
   are no numbers, nor are those of dates and times.
3. Numbers are written in digits, with a sign, with thousands separated by commas, spaces,
   apostrophes or underscores: ``1,234``; ``57.0`` is 57. A reply that is one word from zero to
   twenty is that number. A unit, a sentence or Markdown around it changes nothing.
4. A value is one of those that the question can have, as a whole word, in any case of letters.
5. One and the same number or value several times is one answer. Different ones are none: the reply
   is ambiguous, whichever comes first or last.

An exported copy of this file runs alone: it imports nothing of this project.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    pass


MARKER = "Answer:"
"""Where reasons come first, the last line begins with it."""


EXTRACTION_VERSION = "1"
"""Raise it when the same reply would give another answer."""


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
    """The answer in a reply, or the ``problem``; ``thought``: what comes before its marker."""

    answer: str | None
    thought: str | None = None
    problem: Problem | None = None


def extract_answer(
    reply: str, form: Literal["number", "value"], choices: Sequence[str] = ()
) -> Extracted:
    """Return the answer of a reply in the benchmarks' form.

    Args:
        reply: what the model wrote, without closed reasoning blocks.
        form: a number (in digits) or one of ``choices``.
        choices: values that the question can have: names, identifiers, or numbers in digits.
    """
    thought, text = _split(reply)
    if form == "number":
        answers = set(numbers_in(text))
    elif choices and all(_CODED.fullmatch(choice) for choice in choices):
        # Only the kind that is asked for: the question names other kinds, too.
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
    """Return the identifiers of a text in the records' form, with repetitions.

    >>> identifiers_in("Warehouse 42 (wh-0042), node 7")
    ['WH-0042', 'WH-0042', 'N-0007']
    """
    identifiers = [
        (match.start(), _IDENTIFIERS[match[1].lower()], match[2]) for match in _NAMED.finditer(text)
    ]
    identifiers += [(match.start(), match[1].upper(), match[2]) for match in _CODED.finditer(text)]
    return [f"{kind}-{int(number):04d}" for _, kind, number in sorted(identifiers)]


def numbers_in(text: str) -> Iterator[str]:
    """Yield the numbers of a text in digits, except in identifiers, dates and times.

    >>> list(numbers_in("At 12:00:00 SKU-0017 had 1,234 units, later -3.50"))
    ['1234', '-3.5']
    """
    if (word := text.strip(" \t\n.!*`\"'").lower()) in _WORDS:
        yield str(_WORDS.index(word))
        return
    for other in (_CODED, _NAMED, _TIMES):
        text = other.sub(" ; ", text)
    for sign, whole, fraction in _NUMBER.findall(text):
        digits = int(re.sub(rf"[{_SPACES}]", "", whole))
        minus = (
            "-" if sign in ("-", "\u2212", "\u2013") and (digits or fraction.strip(".0")) else ""
        )
        yield f"{minus}{digits}{fraction.rstrip('0').rstrip('.')}"


def _split(reply: str) -> tuple[str | None, str]:
    marked = list(_MARKED.finditer(reply))
    if not marked:
        return None, reply
    last = marked[-1]
    return reply[: last.start()].strip() or None, reply[last.end() :]


def _named(text: str, choices: Sequence[str]) -> Iterator[str]:
    for other in (_CODED, _NAMED):
        text = other.sub(" ; ", text)
    for choice in choices:
        if re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", text, re.IGNORECASE):
            yield choice
