"""Style: punctuation, quotation and kinds of words, as rates per 100 words or as shares."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.experiments.continuation.prose.language import ENGLISH_ARTICLES
from contextcliff_dagster.experiments.continuation.prose.words import Prose

_COMMA = re.compile(r"[,،、，](?!\d)")
_SEMICOLON = re.compile(r"[;؛；]|[:：](?!\d)")
_QUOTE = re.compile(r"'+")
_PRONOUNS = frozenset(
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his "
    "himself she her hers herself it its itself they them their theirs themselves".split()
)
_BEFORE_NOUNS = ENGLISH_ARTICLES | {"my", "your", "our", "their", "every"}
_MARK = re.compile(r"[.,;:!?]")
_LEAST_ARTICLES = 5


class MarkRates(NamedTuple):
    """Marks per 100 words."""

    commas: float
    semicolons: float
    questions: float
    exclamations: float
    dashes: float
    quotation_marks: float


def mark_rates(prose: Prose) -> MarkRates | None:
    """Rates of marks per 100 words; colons count as semicolons. None without words."""
    if not prose.words:
        return None
    text, scale = prose.text, 100.0 / len(prose.words)
    quotes = sum(
        not (_is_letter(text, one.start() - 1) and _is_letter(text, one.end()))
        for one in _QUOTE.finditer(text)
    )
    return MarkRates(
        scale * len(_COMMA.findall(text)),
        scale * len(_SEMICOLON.findall(text)),
        scale * sum(map(text.count, "?？؟")),
        scale * sum(map(text.count, "!！")),
        scale * text.count("—"),
        scale * quotes,
    )


def pronoun_share(prose: Prose) -> float | None:
    """Share of English personal and possessive pronouns; None without words."""
    if not prose.words:
        return None
    return sum(word.split("'")[0] in _PRONOUNS for word in prose.words) / len(prose.words)


def broken_articles(prose: Prose, function: NDArray[np.bool_]) -> float | None:
    """Share of English articles and possessives with a mark or a function word after them.

    Near 0 where words are in their order. ``function``: which words are function words. None below
    five of them.
    """
    at = [i for i, word in enumerate(prose.words[:-1]) if word in _BEFORE_NOUNS]
    if len(at) < _LEAST_ARTICLES:
        return None
    ends = prose.starts + np.fromiter(map(len, prose.words), np.int64, len(prose.words))
    marked = (_MARK.search(prose.text, ends[i], prose.starts[i + 1]) is not None for i in at)
    return sum(one or bool(function[i + 1]) for i, one in zip(at, marked, strict=True)) / len(at)


def _is_letter(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isalnum()
