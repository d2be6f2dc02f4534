"""Verbatim recall: questions on how a sentence or line continues, built and verified here.

Such a question measures whether a model can still copy from a document of this length, without
reasoning or knowledge of the world. Beginning and rest each occur once in the whole document by
letters and digits alone (no blanks, punctuation, articles or case), so that no other place answers
it, however an answer is normalised before it is compared.

Building it needs no knowledge of the language: sentences end at the marks of many scripts, or else
lines are asked about; parts are cut at blanks, or between two characters of Chinese and Japanese.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

from contextcliff_dagster.contracts import Document, Example
from contextcliff_dagster.corpora.corpus import EVIDENCE_SPANS

TASK = "verbatim_recall"

SIZES = (40, 160)
"""Minimum and maximum `size` of a statement; longer ones would require more copying in some texts.
"""
LEAST_PART = 14
"""Minimum `size` of the beginning and of the rest."""
_WIDE_SIZE = 3
_TRIES = 60
"""Maximum number of statements that are tried for one question."""

_BLANKS = re.compile(r"\s+")
_UNTOLD = re.compile(r"[\W_]+")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WORD = re.compile(r"\w+")
_PARAGRAPH = re.compile(
    # A blank line, or a line that begins as headings, items, quotations and rows of tables do.
    r"\n[^\S\n]*(?:\n\s*|(?=(?:[#>|*+\-\u2022]|\d{1,3}[.)])\s?))"
)
_END = re.compile(
    # Only from a run's first mark, and never back: lines of a million dots must not take forever.
    r"(?<![.!?\u2026])[.!?\u2026\u061f\u06d4\u0964\u0965\u1362]++"
    r"[\"'\u2019\u201d\u00bb)\]]*+(?=\s|$)"
    r"|[\u3002\uff01\uff1f]++[\u300d\u300f\u201d\u2019\uff09]*+"
)
_MARKERS = re.compile(r"(?:[#>|*+\-\u2022]|\d{1,3}[.)])*\s*")
_LINE = re.compile(r"[^\n]+")
_BROKEN_WORD = re.compile(r"\w[-\u00ad]\n")


class Recall(NamedTuple):
    """One statement from a text, cut into a beginning and a rest.

    ``unit``: ``sentence`` or ``line``. ``beginning`` and ``rest`` have runs of blanks collapsed;
    ``start``, ``end`` and ``place``: where the statement begins and ends and its rest begins, in
    characters of the text.
    """

    unit: str
    statement: str
    beginning: str
    rest: str
    start: int
    end: int
    place: int


class _Whole:
    """A text in two forms; each part of a question must be unique in both forms."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._letters = letters(text)
        self._blanks_as_one = _BLANKS.sub(" ", text)

    def holds_once(self, part: str) -> bool:
        pairs = ((letters(part), self._letters), (part, self._blanks_as_one))
        return all(form and 0 <= text.find(form) == text.rfind(form) for form, text in pairs)


class _Span(NamedTuple):
    start: int
    end: int
    unit: str


def recall_questions(
    text: str, *, code: bool, most: int, order: Callable[[int], bytes]
) -> list[Recall]:
    """Return at most ``most`` questions, spread over the text and ordered by position.

    The text is divided into ``most`` equal stretches. Each yields one question if possible; missing
    questions are taken from anywhere. ``order`` maps the position of a statement's first character
    to its sort key. ``code``: ask only about lines, never about sentences.
    """
    whole = _Whole(text)
    spans = [] if code else list(_sentences(text))
    questions = _spread(whole, spans, most, order, [])
    if len(questions) < most:
        lines = (_trimmed(text, *line.span(), "line") for line in _LINE.finditer(text))
        questions = _spread(whole, [line for line in lines if line], most, order, questions)
    return sorted(questions, key=lambda question: question.start)


def recall_example(document: Document, asked: Recall, *, bare: bool) -> Example:
    """Return the question as an example; with ``bare``, it is only the statement's beginning."""
    instruction = f"Complete the {asked.unit} of the text above, word for word, that begins with: "
    return Example(
        example_id=f"{document.document_id[:16]}-recall-{asked.start}",
        document_id=document.document_id,
        question=asked.beginning if bare else instruction + asked.beginning,
        answers=(asked.rest, asked.statement),
        task=TASK,
        metadata={
            "evidence_position": asked.place / len(document.text),
            EVIDENCE_SPANS: [[asked.start, asked.end]],
            "level": 1,
            "unit": asked.unit,
        },
    )


def letters(text: str) -> str:
    """Return the text's letters and digits, case-folded, without articles.

    Texts that a lenient comparison of answers takes for equal are equal in this form.
    """
    lowered = unicodedata.normalize("NFC", text).casefold()
    return _UNTOLD.sub("", _ARTICLES.sub(" ", lowered))


def size(text: str) -> int:
    """Count characters; a Chinese, Japanese or Korean one counts as three."""
    if text.isascii():
        return len(text)
    return sum(_WIDE_SIZE if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _spread(
    whole: _Whole,
    spans: list[_Span],
    most: int,
    order: Callable[[int], bytes],
    questions: list[Recall],
) -> list[Recall]:
    """Return ``questions`` plus as many as are still missing, one stretch after the other."""
    stretches: list[list[_Span]] = [[] for _ in range(most)]
    for span in spans:
        stretches[span.start * most // len(whole.text)].append(span)
    used_stretches = {question.start * most // len(whole.text) for question in questions}
    chosen = list(questions)
    unused: list[_Span] = []
    for number, stretch in enumerate(stretches):
        stretch.sort(key=lambda span: order(span.start))
        if number not in used_stretches and len(chosen) < most:
            _take(whole, stretch, 1, chosen)
        unused += stretch[:_TRIES]
    unused.sort(key=lambda span: order(span.start))
    _take(whole, unused, most - len(chosen), chosen)
    return chosen


def _take(whole: _Whole, spans: list[_Span], wanted: int, chosen: list[Recall]) -> None:
    n_tried = 0
    for span in spans:
        if wanted <= 0 or n_tried >= _TRIES * wanted:
            return
        if any(span.start < recall.end and recall.start < span.end for recall in chosen):
            continue
        n_tried += 1
        if question := _cut(whole, span):
            chosen.append(question)
            wanted -= 1


def _sentences(text: str) -> Iterator[_Span]:
    """Yield whole sentences, which may cross line ends but not paragraphs."""
    start = 0
    for gap in [*_PARAGRAPH.finditer(text), None]:
        end = gap.start() if gap else len(text)
        at = start
        for mark in _END.finditer(text, start, end):
            if (span := _trimmed(text, at, mark.end(), "sentence")) is not None:
                first = text[span.start]
                # A lower-case letter comes first: no sentence ended before it ("e.g. this").
                if not first.islower() and not _BROKEN_WORD.search(text, span.start, span.end):
                    yield span
            at = mark.end()
        start = gap.end() if gap else end


def _trimmed(text: str, start: int, end: int, unit: str) -> _Span | None:
    """Trim the span of surrounding blanks and leading list marks; None if nothing is left."""
    if end - start > 4 * SIZES[1]:  # blanks between words may be many, but not that many
        return None
    while start < end and text[start].isspace():
        start += 1
    if unit == "sentence" and (mark := _MARKERS.match(text, start, end)):
        start = mark.end()
    while end > start and text[end - 1].isspace():
        end -= 1
    return _Span(start, end, unit) if end - start > 8 else None


def _cut(whole: _Whole, span: _Span) -> Recall | None:
    """Cut the statement where both parts are unique, nearest its middle; None if impossible."""
    raw = whole.text[span.start : span.end]
    statement = _BLANKS.sub(" ", raw)
    if not SIZES[0] <= size(statement) <= SIZES[1] or not _says_something(statement):
        return None
    for offset in _cuts(statement):
        beginning, rest = statement[:offset].rstrip(), statement[offset:]
        if min(size(beginning), size(rest)) < LEAST_PART or not _says_something(rest):
            continue
        if whole.holds_once(beginning) and whole.holds_once(rest):
            place = span.start + _raw_place(raw, offset)
            return Recall(span.unit, statement, beginning, rest, span.start, span.end, place)
    return None


def _says_something(part: str) -> bool:
    """Return whether the part has words, not only punctuation and digits."""
    wide = sum(map(_is_wide, part))
    n_letters = sum(character.isalpha() for character in part)
    filled = len(part) - part.count(" ")
    return 2 * n_letters > filled and (wide >= 5 or len(_WORD.findall(part)) >= 2)


def _cuts(statement: str) -> list[int]:
    """Return the possible starts of the rest: first after blanks, then others, middle first."""
    blanks, within = [], []
    for at in range(1, len(statement) - 1):
        before, after = statement[at - 1], statement[at]
        if before == " ":
            if after.isalnum():
                blanks.append(at)
        elif (_is_wide(before) and _is_wide(after)) or (
            before in "([{,;:=./" and after.isascii() and after.isalnum()
        ):
            within.append(at)
    middle = len(statement) / 2
    return [
        *sorted(blanks, key=lambda at: (abs(at - middle), at))[:8],
        *sorted(within, key=lambda at: (abs(at - middle), at))[:8],
    ]


def _is_wide(character: str) -> bool:
    """Return whether a character is Chinese or Japanese; such texts may be cut anywhere."""
    return "\u3041" <= character <= "\u30fe" or "\u3400" <= character <= "\u9fff"


def _raw_place(raw: str, at: int) -> int:
    """Return the position, before blanks were collapsed, of the ``at``-th character."""
    seen = 0
    for gap in _BLANKS.finditer(raw):
        removed = gap.end() - gap.start() - 1
        if gap.start() - seen >= at:
            break
        seen += removed
    return at + seen
