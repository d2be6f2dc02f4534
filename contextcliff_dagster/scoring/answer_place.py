"""Where in its document the answer of a question is, for questions that do not say it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from heapq import merge

from contextcliff_dagster.scoring.containment import YES_NO, comparable, joins, straightened
from contextcliff_dagster.scoring.normalize import (
    answer_tokens,
    fold_forms,
    folded_tokens,
    remove_punctuation,
)

_Span = tuple[int, int]


def answer_positions(text: str, accepted: Sequence[Sequence[str]]) -> list[float | None]:
    """Return where each question's answer begins in `text`, as a share 0..1 of its characters; None
    unless its accepted answers occur exactly once, by the rules of `contained`.

    Accepted answers that overlap are one occurrence. Yes, no, true, false, and a single letter or
    digit stand in any text by chance and have no position.

    >>> answer_positions("Rent: 50 EUR.\\nSigned: Ada  Berg.", [["Ada Berg", "Berg"], ["EUR 50"]])
    [0.6875, None]
    """
    telling = [[answer for answer in each if not _by_chance(answer)] for each in accepted]
    if not any(telling):
        return [None] * len(telling)
    searched = _Searched(text)
    return [searched.only_place(answers) if answers else None for answers in telling]


def _by_chance(answer: str) -> bool:
    plain = answer.strip(" .").lower()
    return len(plain) < 2 or plain in YES_NO


class _Searched:
    def __init__(self, text: str) -> None:
        # In ASCII text no character moves.
        self._text = (text if text.isascii() else straightened(fold_forms(text))).lower()

    def only_place(self, phrases: Sequence[str]) -> float | None:
        written = _one_stretch(self._as_written(phrase) for phrase in phrases)
        if written is None:
            return None
        at = written[0] / len(self._text) if written else None
        if not any(map(self._may_be_elsewhere, phrases)):
            return at
        by_token = _one_stretch(map(self._by_token, phrases))
        if by_token is None or (written and by_token and not self._same(written[0], by_token[0])):
            return None
        return at if written or not by_token else by_token[0] / len(self._token_text)

    def _as_written(self, phrase: str) -> Iterator[_Span]:
        """Yield start and end of the phrase, as whole words; all white space counts as equal."""
        words, text = comparable(phrase).split(), self._text
        if len(words) > 1:
            for match in re.finditer(r"\s+".join(map(re.escape, words)), text):
                if not joins(text, match.start()) and not joins(text, match.end()):
                    yield match.span()
            return
        at = text.find(words[0]) if words else -1
        while at >= 0:
            end = at + len(words[0])
            if not joins(text, at) and not joins(text, end):
                yield at, end
            at = text.find(words[0], at + 1)

    def _by_token(self, phrase: str) -> Iterator[_Span]:
        """Yield start and end of the phrase's normalised tokens in the text of such tokens."""
        words = " ".join(answer_tokens(phrase))
        at = self._token_text.find(f" {words} ") if words else -1
        while at >= 0:
            yield at, at + len(words)
            at = self._token_text.find(f" {words} ", at + 1)

    def _may_be_elsewhere(self, phrase: str) -> bool:
        """Whether the phrase may occur more often by tokens than as written; no false negatives."""
        least = 1 if next(self._as_written(phrase), None) is None else 2
        tokens = answer_tokens(phrase)
        return bool(tokens) and all(self._stripped.count(token) >= least for token in tokens)

    def _same(self, at: int, by_token: int) -> bool:
        """Whether the same number of tokens precedes both places."""
        # Each prefix as a separate text: which words are articles depends on a text's scripts.
        before, before_token = self._text[:at], self._token_text[:by_token]
        return len(folded_tokens(before)) == len(folded_tokens(before_token))

    @cached_property
    def _stripped(self) -> str:
        return unicodedata.normalize("NFC", remove_punctuation(self._text))

    @cached_property
    def _token_text(self) -> str:
        return f" {' '.join(folded_tokens(self._text))} "


def _one_stretch(places: Iterable[Iterator[_Span]]) -> list[int] | None:
    """Return the start of the single stretch that all `places` (each in order) cover, overlapping;
    empty if there is no place, None if there are two stretches."""
    start, reached = None, 0
    for low, high in merge(*places):
        if start is None:
            start = low
        elif low >= reached:
            return None
        reached = max(reached, high)
    return [] if start is None else [start]
