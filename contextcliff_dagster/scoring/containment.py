"""Containment: is an accepted answer inside the output, and where in its document is it?

RULER (Hsieh et al. 2024, `string_match_part`) and NoLiMa (Modarressi et al. 2025) ask whether the
answer is a substring of the output, in lower case. So do we, with whole words and whole numbers:
"12" is not in "112" nor in "12.5", nor "no" in "I do not know", which a substring search
would call right. Letters next to digits are a boundary ("937915kg" holds "937915"), and in scripts
without spaces between words every character with its marks is a word.

An answer that equals an accepted one after SQuAD's normalisation counts as contained, too, so that
containment is never below exact match.

If a question does not state its answer's place in the document, the place is derived, but only if
the answer occurs once, because then the question cannot be about another place. Texts are long and
many (100,000 tokens each), so the cheapest checks for "once" come first.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import merge

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.scoring.normalize import (
    answer_tokens,
    bare,
    fold_forms,
    folded_tokens,
    folded_without_punctuation,
    is_unspaced,
    remove_punctuation,
    substitute,
    tokens_without_punctuation,
)

LEAST_QUESTIONS, MOST_QUESTIONS, MOST_CHARACTERS = 20, 60, 200_000
"""Fewest and most questions for `copied_share`, and the longest document that it reads, in
characters: whether answers are copied does not depend on the length."""
YES_NO = frozenset(("yes", "no", "true", "false"))
_STRAIGHT = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'}


def contained(output: str, accepted: Sequence[str]) -> float:
    """Return 1.0 if one of the `accepted` answers is in `output` as whole words, else 0.0.

    >>> contained("It is in aisle 12.", ["aisle 12"]), contained("aisle 120", ["aisle 12"])
    (1.0, 0.0)
    """
    haystack = Haystack(output)
    return float(any(haystack.holds(answer) for answer in accepted))


def copied_share(questions: Sequence[tuple[str, bool]]) -> float | None:
    """Return the fraction of questions whose answer is copied from the document; ``questions`` are
    pairs (answer, whether the answer's document contains it).

    None for fewer than `LEAST_QUESTIONS`, and if fewer than half of the answers are distinct:
    counts, choices and the like occur in any text by chance.
    """
    answers = {answer for answer, _ in questions}
    if len(questions) < LEAST_QUESTIONS or 2 * len(answers) < len(questions):
        return None
    return sum(is_held for _, is_held in questions) / len(questions)


def not_in_text(
    examples: Iterable[Example], document_text: Callable[[str], str]
) -> tuple[list[Example], int]:
    """Return the examples whose document contains none of their accepted answers, and the number
    checked (all except those answered by yes or no)."""
    by_document: dict[str, list[Example]] = {}
    for example in examples:
        if not any(answer.strip(" .").lower() in YES_NO for answer in example.answers):
            by_document.setdefault(example.document_id, []).append(example)
    missing: list[Example] = []
    for document, questions in by_document.items():
        haystack = Haystack(document_text(document))
        missing += [item for item in questions if not any(map(haystack.holds, item.answers))]
    return missing, sum(map(len, by_document.values()))


class Haystack:
    """A text prepared once for many phrase look-ups, each linear in its length."""

    def __init__(self, text: str) -> None:
        self._text = comparable(text)

    def holds(self, phrase: str) -> bool:
        """Return whether `phrase` is in the text as whole words; False for an empty phrase."""
        if next(_whole_words(self._text, comparable(phrase)), None) is not None:
            return True
        tokens = answer_tokens(phrase)
        if not tokens or not all(token in self._without_punctuation for token in tokens):
            return False  # most wrong answers end here, before the text is split
        return f" {' '.join(tokens)} " in self._token_text

    @cached_property
    def _without_punctuation(self) -> str:
        return folded_without_punctuation(self._text)

    @cached_property
    def _token_text(self) -> str:
        return f" {' '.join(tokens_without_punctuation(self._without_punctuation))} "


def straightened(text: str) -> str:
    """Return `text` with straight quotation marks."""
    return substitute(text, _STRAIGHT)


def comparable(text: str) -> str:
    """Return `text` in the form used for look-ups: lower case, single blanks, straight quotes."""
    return bare(straightened(text))


def joins(text: str, border: int) -> bool:
    """Return whether the characters on both sides of `border` are parts of one word or number."""
    if not 0 < border < len(text):
        return False
    left, right = text[border - 1], text[border]
    if not right.isascii() and unicodedata.category(right).startswith("M"):
        return True  # a mark belongs to the letter before it
    if left.isdigit() and right.isdigit():
        return True
    if left.isalpha() and right.isalpha():
        return not (is_unspaced(left) or is_unspaced(right))
    # 3 | .5 and 1, | 200: a separator between two digits is inside a number.
    if left.isdigit() and right in ".,":
        return border + 1 < len(text) and text[border + 1].isdigit()
    if left in ".," and right.isdigit():
        return border > 1 and text[border - 2].isdigit()
    return False


def _whole_words(text: str, phrase: str) -> Iterator[_Span]:
    """Yield start and end of each place in `text` where `phrase` stands as whole words."""
    start = text.find(phrase) if phrase else -1
    while start >= 0:
        end = start + len(phrase)
        if not joins(text, start) and not joins(text, end):
            yield start, end
        start = text.find(phrase, start + 1)


_Span = tuple[int, int]


def answer_positions(text: str, accepted: Sequence[Sequence[str]]) -> list[float | None]:
    """Return where each question's answer begins in `text`, as a fraction 0..1 of its characters;
    None unless the accepted answers occur exactly once, by the rules of `contained`.

    Accepted answers that overlap are one occurrence. Yes, no, true, false, and a single letter or
    digit occur in any text by chance and have no position.

    >>> answer_positions("Rent: 50 EUR.\\nSigned: Ada  Berg.", [["Ada Berg", "Berg"], ["EUR 50"]])
    [0.6875, None]
    """
    telling = [[answer for answer in each if not _by_chance(answer)] for each in accepted]
    if not any(telling):
        return [None] * len(telling)
    searched = _Searched(text)
    return [searched.only_place(answers) if answers else None for answers in telling]


def _by_chance(answer: str) -> bool:
    word = answer.strip(" .").lower()
    return len(word) < 2 or word in YES_NO


class _Searched:
    def __init__(self, text: str) -> None:
        # In ASCII text no character moves.
        self._text = (text if text.isascii() else straightened(fold_forms(text))).lower()

    def only_place(self, phrases: Sequence[str]) -> float | None:
        starts = _one_stretch(self._as_written(phrase) for phrase in phrases)
        if starts is None:
            return None
        position = starts[0] / len(self._text) if starts else None
        if not any(map(self._may_be_elsewhere, phrases)):
            return position
        by_token = _one_stretch(map(self._by_token, phrases))
        if by_token is None or (starts and by_token and not self._same(starts[0], by_token[0])):
            return None
        return position if starts or not by_token else by_token[0] / len(self._token_text)

    def _as_written(self, phrase: str) -> Iterator[_Span]:
        """Yield start and end of the phrase, as whole words; all white space counts as equal."""
        words, text = comparable(phrase).split(), self._text
        if len(words) > 1:
            for match in re.finditer(r"\s+".join(map(re.escape, words)), text):
                if not joins(text, match.start()) and not joins(text, match.end()):
                    yield match.span()
        else:
            yield from _whole_words(text, "".join(words))

    def _by_token(self, phrase: str) -> Iterator[_Span]:
        """Yield start and end of the phrase's normalised tokens in the normalised text."""
        words = " ".join(answer_tokens(phrase))
        start = self._token_text.find(f" {words} ") if words else -1
        while start >= 0:
            yield start, start + len(words)
            start = self._token_text.find(f" {words} ", start + 1)

    def _may_be_elsewhere(self, phrase: str) -> bool:
        """Return whether the phrase may occur more often as tokens than as written."""
        least = 1 if next(self._as_written(phrase), None) is None else 2
        tokens = answer_tokens(phrase)
        return bool(tokens) and all(self._stripped.count(token) >= least for token in tokens)

    def _same(self, at: int, by_token: int) -> bool:
        """Return whether the same number of tokens precedes both places."""
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
    start, end = None, 0
    for low, high in merge(*places):
        if start is None:
            start = low
        elif low >= end:
            return None
        end = max(end, high)
    return [] if start is None else [start]
