"""Containment: is an accepted answer inside the output, and where in its document is it?

RULER (Hsieh et al. 2024, `string_match_part`) and NoLiMa (Modarressi et al. 2025) ask whether the
answer is a substring of the output, in lower case. So do we, with whole words and whole numbers:
"12" is not in "112" nor in "12.5", nor "no" in "I do not know", which a substring search
would call right. Letters next to digits are a boundary ("937915kg" holds "937915"), and in scripts
without spaces between words every character with its marks is a word.

An answer that is equal to an accepted one after SQuAD's normalisation is contained as well, so that
containment is never below exact match.

The place of an answer in its document is derived for questions that do not state it, and only where
the answer occurs once: then the question cannot be about another place. Texts are long and many
(100,000 tokens each), so the cheapest checks for "once" come first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.scoring.normalize import (
    answer_tokens,
    bare,
    folded_without_punctuation,
    is_unspaced,
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
    """Return the share of questions whose answer is copied from the document; ``questions`` are
    pairs (answer, whether its document holds it).

    None for fewer than `LEAST_QUESTIONS`, and if fewer than half of the answers are distinct:
    counts, choices and the like occur in any text by chance.
    """
    answers = {answer for answer, _ in questions}
    if len(questions) < LEAST_QUESTIONS or 2 * len(answers) < len(questions):
        return None
    return sum(held for _, held in questions) / len(questions)


def not_in_text(
    examples: Iterable[Example], document_text: Callable[[str], str]
) -> tuple[list[Example], int]:
    """Return the examples whose document holds none of their accepted answers, and how many were
    checked: all but those answered by yes or no."""
    by_document: dict[str, list[Example]] = {}
    for example in examples:
        if not any(answer.strip(" .").lower() in YES_NO for answer in example.answers):
            by_document.setdefault(example.document_id, []).append(example)
    missing: list[Example] = []
    for document, asked in by_document.items():
        haystack = Haystack(document_text(document))
        missing += [item for item in asked if not any(map(haystack.holds, item.answers))]
    return missing, sum(map(len, by_document.values()))


class Haystack:
    """A text prepared once for many phrase look-ups, each linear in its length."""

    def __init__(self, text: str) -> None:
        self._text = comparable(text)

    def holds(self, phrase: str) -> bool:
        """Whether `phrase` is in the text as whole words; an empty phrase never is."""
        needle = comparable(phrase)
        if not needle:
            return False
        text = self._text
        at = text.find(needle)
        while at >= 0:
            if not joins(text, at) and not joins(text, at + len(needle)):
                return True
            at = text.find(needle, at + 1)
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
    """`text` with straight quotation marks."""
    return substitute(text, _STRAIGHT)


def comparable(text: str) -> str:
    """Return `text` in the form for look-ups: lower case, single blanks, straight quotes."""
    return bare(straightened(text))


def joins(text: str, border: int) -> bool:
    """Whether the characters on both sides of `border` belong to one word or one number."""
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
