"""What a model reads before a point, at every size, and what the author wrote after it."""

from __future__ import annotations

import bisect

from contextcliff_dagster.experiments.continuation.passages.points import Point
from contextcliff_dagster.experiments.continuation.prose.words import read_prose
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

_CHARACTERS_A_WORD = 12


def context_before(point: Point, tokens: int, tokenizer: Tokenizer) -> str:
    """Return the text before ``point``, as many whole sentences as ``tokens`` hold.

    All contexts of a point end with the same character. Where a single sentence is longer, it is
    cut at its beginning, at a white space.
    """
    text, end = point.text.text, point.at
    starts = [0, *point.text.ends[: bisect.bisect_left(point.text.ends, end)]]

    def fits(start: int) -> bool:
        return tokenizer.count(_between(text, start, end)) <= tokens

    first = bisect.bisect_left(starts, True, key=fits)
    if first < len(starts):
        return _between(text, starts[first], end)
    return _cut(text[starts[-1] : end].lstrip(), tokens, tokenizer)


def _between(text: str, begin: int, end: int) -> str:
    return text[begin:end].lstrip()


def _cut(sentence: str, tokens: int, tokenizer: Tokenizer) -> str:
    """The end of a sentence that is longer than that, from a white space on where there is one."""
    at = range(len(sentence))
    low = bisect.bisect_left(
        at, True, key=lambda start: tokenizer.count(sentence[start:]) <= tokens
    )
    blank = next((start for start in at[low:] if sentence[start].isspace()), low)
    return sentence[blank:].lstrip()


def author_after(point: Point, words: int) -> str:
    """Return what the author wrote after ``point``: its first ``words`` words, no more than are
    there, in the canonical typography of `prose.words`."""
    text = point.text.text
    piece = text[point.at : point.at + _CHARACTERS_A_WORD * (words + 8)]
    prose = read_prose(piece)
    if len(prose.words) < words and point.at + len(piece) < len(text):
        prose = read_prose(text[point.at :])
    return prose.first(words).text
