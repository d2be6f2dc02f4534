"""The 27 figures of a text, rounded as Context-Tester rounds them.

Two of the names mislead, and are kept for its files: `cloze_score` is the readability formula of
Chall and Dale (Readability Revisited, 1995), not a cloze test, and `vocabulary_diversity` is the
plain type-token ratio, which falls with the length of a text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from contextcliff_dagster.extensions.continuation.compat.coherence import (
    COHERENCE_KEYS,
    Embed,
    coherence,
)
from contextcliff_dagster.extensions.continuation.compat.words import (
    FUNCTION_WORDS,
    is_familiar,
    sentences_of,
    syllables,
    words_of,
)

Figures = dict[str, float | int | str]

LEVELS = (
    *((58, "1"), (54, "2"), (50, "3"), (45, "4"), (40, "5-6"), (34, "7-8"), (28, "9-10")),
    *((22, "11-12"), (16, "13-15")),
)
_MARKS = {"comma": ",", "semicolon": ";", "question": "?", "exclamation": "!"}
_WINDOW = 100

METRICS = (
    *("pct_unfamiliar_words", "avg_sentence_length", "cloze_score", "reading_level"),
    *("word_count", "sentence_count", "sentence_length_variance", "vocabulary_diversity"),
    *("bigram_repetition_rate", "trigram_repetition_rate", "unique_word_ratio_100"),
    *("word_entropy", "char_entropy", *(f"{mark}_density" for mark in _MARKS)),
    *("avg_syllables_per_word", "long_word_ratio", "function_word_ratio"),
    *("sentence_length_skewness", "sentence_length_kurtosis", "avg_word_length"),
    *COHERENCE_KEYS,
)
"""Keys of `text_metrics`, in order."""
LIST_KEYS = ("pct_unfamiliar_words", "cloze_score", "reading_level")
"""Those that need a list of familiar words."""


def text_metrics(text: str, familiar: frozenset[str] | None, embed: Embed | None = None) -> Figures:
    """Return the 27 figures of ``text``, in the order of `METRICS`.

    Args:
        text: what a model wrote, or the author.
        familiar: the Dale-Chall list in lower case; None: `LIST_KEYS` are left out.
        embed: makes vectors of sentences; without it the four of coherence are 0.
    """
    if not text.strip():
        text, embed = "", None
    words, sentences = words_of(text), sentences_of(text)
    n = len(words)
    length = n / len(sentences) if sentences else 0.0
    lengths = [len(sentence.split()) for sentence in sentences]
    skewness, kurtosis = _moments(lengths)
    figures: Figures = {
        **_familiarity(words, length, familiar or frozenset()),
        "word_count": n,
        "sentence_count": len(sentences),
        "sentence_length_variance": _rounded_variance(lengths),
        "vocabulary_diversity": round(len(set(words)) / n, 4) if n else 0.0,
        "bigram_repetition_rate": round(_repeated(words, 2), 4),
        "trigram_repetition_rate": round(_repeated(words, 3), 4),
        "unique_word_ratio_100": round(_moving_diversity(words), 4),
        "word_entropy": round(_entropy(words), 4),
        "char_entropy": round(_entropy(c for c in text.lower() if c.isalnum() or c.isspace()), 4),
        **_style(text, words, len(sentences)),
        "sentence_length_skewness": round(skewness, 4),
        "sentence_length_kurtosis": round(kurtosis, 4),
        "avg_word_length": round(sum(map(len, words)) / n, 4) if n and len(lengths) > 2 else 0.0,
        **{key: round(value, 4) for key, value in coherence(sentences, embed).items()},
    }
    if familiar is None:
        return {key: value for key, value in figures.items() if key not in LIST_KEYS}
    return figures


def _familiarity(words: Sequence[str], sentence_length: float, familiar: frozenset[str]) -> Figures:
    unfamiliar = sum(not is_familiar(word, familiar) for word in words)
    share = unfamiliar / len(words) if words else 0.0
    cloze = cloze_score(share, sentence_length)
    return {
        "pct_unfamiliar_words": round(share, 4),
        "avg_sentence_length": round(sentence_length, 2),
        "cloze_score": cloze,
        "reading_level": reading_level(cloze),
    }


def cloze_score(unfamiliar: float, sentence_length: float) -> float:
    """64 - 95 x share of unfamiliar words - 0.69 x words a sentence, to two decimals."""
    return round(64 - 95 * unfamiliar - 0.69 * sentence_length, 2)


def reading_level(cloze: float) -> str:
    """The school grade of a cloze score, `1` to `16+`; beyond 10..64 as at the end."""
    bounded = math.ceil(min(max(cloze, 10), 64))
    return next((name for least, name in LEVELS if bounded >= least), "16+")


def _style(text: str, words: Sequence[str], sentences: int) -> Figures:
    rates = {f"{mark}_density": text.count(sign) for mark, sign in _MARKS.items()}
    n = len(words)
    if not n or not sentences:
        last = ("avg_syllables_per_word", "long_word_ratio", "function_word_ratio")
        return dict.fromkeys((*rates, *last), 0.0)
    return {
        **{key: round(count / sentences, 4) for key, count in rates.items()},
        "avg_syllables_per_word": round(sum(map(syllables, words)) / n, 4),
        "long_word_ratio": round(sum(len(word) > 6 for word in words) / n, 4),
        "function_word_ratio": round(sum(word in FUNCTION_WORDS for word in words) / n, 4),
    }


def _rounded_variance(lengths: Sequence[int]) -> float | int:
    """Sample variance, computed in integers; whole ones stay integers, as in the files."""
    n = len(lengths)
    if n < 2:
        return 0.0
    squares = n * sum(x * x for x in lengths) - sum(lengths) ** 2
    whole, rest = divmod(squares, n * (n - 1))
    return round(squares / (n * (n - 1)), 2) if rest else whole


def _moments(lengths: Sequence[int]) -> tuple[float, float]:
    """Biased third and fourth moments over powers of the *sample* deviation; excess kurtosis."""
    n = len(lengths)
    if n < 3:
        return 0.0, 0.0
    mean = sum(lengths) / n
    away = [x - mean for x in lengths]
    variance = sum(x * x for x in away) / (n - 1)
    if not variance:
        return 0.0, 0.0
    third = sum(x**3 for x in away) / n / variance**1.5
    return third, sum(x**4 for x in away) / n / variance**2 - 3


def _repeated(words: Sequence[str], size: int) -> float:
    """Share of the runs of ``size`` words that occurred before."""
    runs = len(words) - size + 1
    if len(words) < 3:
        return 0.0
    pieces = pairwise(words) if size == 2 else zip(*(words[k:] for k in range(size)), strict=False)
    return (runs - len(set(pieces))) / runs


def _moving_diversity(words: Sequence[str]) -> float:
    """Mean type-token ratio of all windows of 100 words, or of the whole where it is shorter."""
    n = len(words)
    if n < 3:
        return 0.0
    size = min(_WINDOW, n)
    seen = Counter(words[:size])
    distinct = [len(seen)]
    for old, new in zip(words, words[size:], strict=False):
        seen[new] += 1
        seen[old] -= 1
        if not seen[old]:
            del seen[old]
        distinct.append(len(seen))
    # Ties at the fourth decimal are frequent in short texts: the sum must not drift.
    return math.fsum(count / size for count in distinct) / len(distinct)


def _entropy(items: Iterable[str]) -> float:
    """Bits (Shannon 1948)."""
    counts = Counter(items)
    total = counts.total()
    return -math.fsum(k / total * math.log2(k / total) for k in counts.values()) + 0.0
