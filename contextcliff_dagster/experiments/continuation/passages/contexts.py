"""What a model reads before a point, at every size, and what the author wrote after it."""

from __future__ import annotations

import bisect
from collections.abc import Callable

from contextcliff_dagster.experiments.continuation.passages.points import Point
from contextcliff_dagster.experiments.continuation.prose.words import read_prose
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

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
