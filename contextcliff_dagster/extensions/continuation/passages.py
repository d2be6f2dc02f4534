"""Where a text is continued, what a model reads before that point, and what its author wrote after.

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
"""Characters that are counted at a time: a text is gone through once for all of its points."""


@dataclass(frozen=True, slots=True)
class ReadText:
    """A source text with its sentence ends and the tokens up to marks along it.

    Attributes:
        name: of the text, a slug.
        text: as extracted; contexts and the author's passages are pieces of it, unchanged.
        ends: characters before the end of each sentence, white space after it not included.
        marks, tokens: characters, and tokens of the text before them; both begin with 0 and end
            with the whole text.
    """

    name: str
    text: str
    ends: Sequence[int]
    marks: Sequence[int]
    tokens: Sequence[int]

    @property
    def length_tokens(self) -> int:
        """Tokens of the whole text, counted in pieces."""
        return self.tokens[-1]

    def tokens_before(self, character: int) -> float:
        """Tokens before a character, interpolated between marks."""
        return float(np.interp(character, self.marks, self.tokens))

    def character_at(self, tokens: float) -> int:
        """The character before which there are so many tokens, interpolated between marks."""
        return int(np.interp(tokens, self.tokens, self.marks))


@dataclass(frozen=True, slots=True)
class Point:
    """``at``: characters of ``text`` before the continuation; a sentence ends there."""

    name: str
    text: ReadText
    at: int


def read_text(name: str, text: str, tokenizer: Tokenizer) -> ReadText:
    """Return a text with its sentence ends and its tokens along it."""
    marks = [*range(0, len(text), _PIECE), len(text)]
    pieces = [text[a:b] for a, b in pairwise(marks)]
    counts = np.cumsum([0, *tokenizer.count_many(pieces)])
    return ReadText(name, text, sentence_ends(text), marks, tuple(map(int, counts)))


def choose_points(
    text: ReadText, passages: int, before: int, after: int, seed: int
) -> tuple[Point, ...]:
    """Return ``passages`` points, one drawn in each of as many equal stretches of the text.

    Every point has at least ``before`` tokens before it and ``after`` behind it, and no two
    passages of the author overlap.

    Raises:
        StudyError: the text is too short for that; nothing of it is ever repeated.
    """
    # Marks are interpolated and tokens depend on where a piece is cut: a hundredth to spare.
    first, last = before * 1.01 + 16, text.length_tokens - after * 1.01 - 16
    if last - first < (passages - 1) * after:
        needed = int(first + passages * after * 1.01 + 16)
        raise StudyError(
            f"Text {text.name!r} has {text.length_tokens:,} tokens; {passages} passages of "
            f"{after:,} tokens after a context of {before:,} need {needed:,}: give a longer text, "
            "fewer passages or a smaller largest context."
        )
    rng = np.random.default_rng([seed, passages])
    bounds = np.linspace(first, last + after, passages + 1)
    chosen = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        at = _sentence_end(text, low, high - after, rng.random())
        if at is None:
            raise StudyError(
                f"Text {text.name!r} has no sentence end from token {int(low):,} to {int(high):,}; "
                "give prose with sentences, or fewer passages."
            )
        chosen.append(Point(f"{text.name}-{number:02d}", text, at))
    return tuple(chosen)


def _sentence_end(text: ReadText, low: float, high: float, share: float) -> int | None:
    """The sentence end next to where ``share`` of the way is, within the bounds in tokens."""
    a = bisect.bisect_left(text.ends, text.character_at(low))
    b = bisect.bisect_right(text.ends, text.character_at(high))
    if a >= b:
        return None
    return text.ends[a + int(share * (b - a))]


_CHARACTERS_A_WORD, _CHARACTERS_A_TOKEN = 12, 4


def context_before(point: Point, tokens: int, tokenizer: Tokenizer) -> str:
    """Return the text before ``point``, as many whole sentences as ``tokens`` hold.

    All contexts of a point end with the same character. Where a single sentence is longer, it is
    cut at its beginning, at a white space.
    """
    text, end = point.text.text, point.at
    starts = [0, *point.text.ends[: bisect.bisect_left(point.text.ends, end)]]

    def fits(number: int) -> bool:
        return tokenizer.count(_between(text, starts[number], end)) <= tokens

    # From where it should be by the counts along the text: what lies far before it is not counted.
    begin = point.text.character_at(point.text.tokens_before(end) - tokens)
    first = first_that(fits, len(starts), bisect.bisect_left(starts, begin))
    if first < len(starts):
        return _between(text, starts[first], end)
    return _cut(text[starts[-1] : end].lstrip(), tokens, tokenizer)


def first_that(holds: Callable[[int], bool], count: int, guess: int) -> int:
    """Return the first number below ``count`` of those for which ``holds``; ``count``: none.

    It holds for all numbers after the first. Looked for around ``guess``, in growing steps.
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
    """The end of a sentence that is longer than that, from a white space on where there is one."""

    def fits(start: int) -> bool:
        # Counted as it is returned: a word with no blank before it may be more tokens.
        return tokenizer.count(sentence[start:].lstrip()) <= tokens

    size = len(sentence)
    low = first_that(fits, size, size - _CHARACTERS_A_TOKEN * tokens)
    blanks = (start for start in range(low, size) if sentence[start].isspace())
    return sentence[next(filter(fits, blanks), low) :].lstrip()


def author_after(point: Point, words: int) -> str:
    """Return what the author wrote after ``point``: its first ``words`` words, no more than are
    there, in the canonical typography of `prose.words`."""
    text, size = point.text.text, _CHARACTERS_A_WORD * (words + 8)
    prose = read_prose(text[point.at : point.at + size])
    while len(prose.words) < words and point.at + size < len(text):
        size *= 4
        prose = read_prose(text[point.at : point.at + size])
    return prose.first(words).text
