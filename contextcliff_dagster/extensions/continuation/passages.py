"""Continuation points of a text: the context before each point and the author's text after it.

Does not belong here: how prose is measured.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.continuation.prose.words import read_prose, sentence_ends
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

_PIECE = 20_000
"""Characters whose tokens are counted at a time; a text is counted once for all of its points."""


@dataclass(frozen=True, slots=True)
class ReadText:
    """Source text with its sentence ends and token counts at marks along it.

    Attributes:
        name: slug of the text.
        text: extracted text; contexts and author passages are unchanged pieces of it.
        ends: character position of each sentence end, before any white space.
        marks, tokens: character positions, and the tokens before them; both begin with 0 and
            end with the length of the text.
    """

    name: str
    text: str
    ends: Sequence[int]
    marks: Sequence[int]
    tokens: Sequence[int]

    @property
    def length_tokens(self) -> int:
        """Return the number of tokens in the whole text, counted in pieces."""
        return self.tokens[-1]

    def tokens_before(self, character: int) -> float:
        """Return the tokens before a character, interpolated between marks."""
        return float(np.interp(character, self.marks, self.tokens))

    def character_at(self, tokens: float) -> int:
        """Return the character preceded by ``tokens`` tokens, interpolated between marks."""
        return int(np.interp(tokens, self.tokens, self.marks))


@dataclass(frozen=True, slots=True)
class Point:
    """Continuation point ``at`` characters into ``text``, at the end of a sentence."""

    name: str
    text: ReadText
    at: int


def read_text(name: str, text: str, tokenizer: Tokenizer) -> ReadText:
    """Return a text with its sentence ends and token counts."""
    marks = [*range(0, len(text), _PIECE), len(text)]
    pieces = [text[a:b] for a, b in pairwise(marks)]
    counts = np.cumsum([0, *tokenizer.count_many(pieces)])
    return ReadText(name, text, sentence_ends(text), marks, tuple(map(int, counts)))


def choose_points(
    text: ReadText, passages: int, before: int, after: int, seed: int
) -> tuple[Point, ...]:
    """Divide the text into ``passages`` equal stretches, and draw one point in each.

    Every point has at least ``before`` tokens before it and ``after`` tokens after it, and author
    passages do not overlap.

    Raises:
        StudyError: the text is too short; it is never repeated.
    """
    # Keep 1% to spare: marks are interpolated, and token counts depend on where text is cut.
    first, last = before * 1.01 + 16, text.length_tokens - after * 1.01 - 16
    if last - first < (passages - 1) * after:
        needed = int(first + passages * after * 1.01 + 16)
        raise StudyError(
            f"Text {text.name!r} has {text.length_tokens:,} tokens; {passages} passages of "
            f"{after:,} tokens after a context of {before:,} need {needed:,}: use a longer text, "
            "fewer passages or a smaller maximum context."
        )
    rng = np.random.default_rng([seed, passages])
    bounds = np.linspace(first, last + after, passages + 1)
    points = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        at = _sentence_end(text, low, high - after, rng.random())
        if at is None:
            raise StudyError(
                f"Text {text.name!r} has no sentence end from token {int(low):,} to {int(high):,}; "
                "use prose with sentences, or fewer passages."
            )
        points.append(Point(f"{text.name}-{number:02d}", text, at))
    return tuple(points)


def _sentence_end(text: ReadText, low: float, high: float, share: float) -> int | None:
    """Return the sentence end at the fraction ``share`` of those between token bounds, or None."""
    a = bisect.bisect_left(text.ends, text.character_at(low))
    b = bisect.bisect_right(text.ends, text.character_at(high))
    if a >= b:
        return None
    return text.ends[a + int(share * (b - a))]


_CHARACTERS_A_WORD, _CHARACTERS_A_TOKEN = 12, 4


def context_before(point: Point, tokens: int, tokenizer: Tokenizer) -> str:
    """Return the whole sentences before ``point`` that fit into ``tokens`` tokens.

    All contexts of a point end with the same character. If even the last sentence does not fit, its
    beginning is cut off at white space.
    """
    text, end = point.text.text, point.at
    starts = [0, *point.text.ends[: bisect.bisect_left(point.text.ends, end)]]

    def fits(number: int) -> bool:
        return tokenizer.count(_between(text, starts[number], end)) <= tokens

    # Start where the counts along the text suggest, so that distant text is not counted.
    begin = point.text.character_at(point.text.tokens_before(end) - tokens)
    first = first_that(fits, len(starts), bisect.bisect_left(starts, begin))
    if first < len(starts):
        return _between(text, starts[first], end)
    return _cut(text[starts[-1] : end].lstrip(), tokens, tokenizer)


def first_that(holds: Callable[[int], bool], count: int, guess: int) -> int:
    """Return the first number below ``count`` for which ``holds``, or ``count`` if none.

    Once true, it must hold for all later numbers. The search starts at ``guess``, in growing steps.
    """
    low, high, step = 0, count, 1
    at = min(max(guess, 0), count - 1)
    while low <= at < high:
        if holds(at):
            high, at = at, max(at - step, low)
        else:
            low, at = at + 1, min(at + step, high - 1)
        step *= 2
        if low > 0 and high < count:
            break
    return bisect.bisect_left(range(count), True, low, high, key=holds)


def _between(text: str, begin: int, end: int) -> str:
    return text[begin:end].lstrip()


def _cut(sentence: str, tokens: int, tokenizer: Tokenizer) -> str:
    """Return the end of a sentence that fits in ``tokens``, cut at white space if possible."""

    def fits(start: int) -> bool:
        # Count the text as returned: a word without a blank before it may take more tokens.
        return tokenizer.count(sentence[start:].lstrip()) <= tokens

    size = len(sentence)
    low = first_that(fits, size, size - _CHARACTERS_A_TOKEN * tokens)
    blanks = (start for start in range(low, size) if sentence[start].isspace())
    return sentence[next(filter(fits, blanks), low) :].lstrip()


def author_after(point: Point, words: int) -> str:
    """Return the next ``words`` words by the author, in the typography of `prose.words`."""
    text, size = point.text.text, _CHARACTERS_A_WORD * (words + 8)
    prose = read_prose(text[point.at : point.at + size])
    while len(prose.words) < words and point.at + size < len(text):
        size *= 4
        prose = read_prose(text[point.at : point.at + size])
    return prose.first(words).text
