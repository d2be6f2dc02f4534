"""Figures of one generation as Context-Tester computes them: words, metrics, coherence."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from html.entities import html5
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.user_files import read_file

COHERENCE_KEYS = (
    *("adjacent_coherence", "global_coherence", "local_coherence_3sent", "coherence_variance"),
)
_SINGLE = (1.0, 1.0, 1.0, 0.0)
_UNKNOWN = (0.0, 0.0, 0.0, 0.0)


def coherence(sentences: Sequence[str], embed: Embed | None) -> dict[str, float]:
    """Return the four coherence figures by `COHERENCE_KEYS`, unrounded.

    They are the mean cosine between neighbours, the mean cosine to the centroid, the mean pairwise
    cosine in windows of three, and the sample variance of the cosines between neighbours. Fewer
    than two sentences give 1, 1, 1, 0. Missing vectors, or a wrong number of them, give 0 as in the
    reference, although nothing was measured.
    """
    return dict(zip(COHERENCE_KEYS, _figures(sentences, embed), strict=True))


def _figures(sentences: Sequence[str], embed: Embed | None) -> tuple[float, float, float, float]:
    if embed is None:
        return _UNKNOWN
    texts = [stripped for sentence in sentences if (stripped := sentence.strip())]
    if len(texts) < 2:
        return _SINGLE
    vectors = embed(texts)
    if vectors is None or len(vectors) != len(texts):
        return _UNKNOWN
    if len({len(vector) for vector in vectors}) > 1:
        return _UNKNOWN
    rows = np.asarray(vectors, dtype=float)
    near = _cosines(rows[:-1], rows[1:])
    centre = _cosines(rows, np.broadcast_to(rows.mean(axis=0), rows.shape))
    adjacent = float(near.mean())
    if len(texts) == 2:
        return adjacent, float(centre.mean()), adjacent, 0.0
    windows = (near[:-1] + near[1:] + _cosines(rows[:-2], rows[2:])) / 3
    return adjacent, float(centre.mean()), float(windows.mean()), float(near.var(ddof=1))


def _cosines(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Return the cosine of each pair of rows, 0 if either row is zero."""
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    out: NDArray[Any] = np.zeros(len(norms))
    np.divide((left * right).sum(axis=1), norms, out=out, where=norms > 0)
    return out


_SENTENCE = re.compile(r"\b[^.!?]+[.!?]*")
_VOWELS = re.compile("[aeiouy]+")
_STRIPPED = ".(),\"'"
_WITHOUT_TEXT = frozenset({"script", "style", "template", "rt", "rp"})

FUNCTION_WORDS = frozenset(
    """
    the to of and a in that have i it for not on with he as you do at this but his by from they or
    an will my one all would there their what so up out if about who get which go me when make can
    like time no just him know take people into year your good some could them see other than then
    now look only come its over think also back after use two how our work first well way even new
    want because any these give day most us she
    """.split()
)
"""100 most frequent lemmas of the Oxford English Corpus, without be, we, say and her."""


def without_tags(text: str) -> str:
    """Parse ``text`` as HTML and return it without tags, comments and scripts."""
    if "<" not in text and "&" not in text:
        return text
    reader = _TextOfHtml()
    reader.feed(text)
    reader.close()
    return "".join(reader.parts)


def words_of(text: str) -> list[str]:
    """Return the lower-case pieces between white space, stripped of ``.(),"'``; some are empty."""
    return [piece.strip(_STRIPPED) for piece in without_tags(text).lower().split()]


def sentences_of(text: str) -> list[str]:
    """Return the runs of characters ending in ``.``, ``!`` or ``?``; line breaks become spaces."""
    return _SENTENCE.findall(text.replace("\n", " ").strip())


@lru_cache(maxsize=65_536)
def syllables(word: str) -> int:
    """Count groups of vowels without a final e, at least 1; 1 in words of up to three letters."""
    if len(word) <= 3:
        return 1
    return max(1, len(_VOWELS.findall(word)) - word.endswith("e"))


def familiar_words(content: str) -> frozenset[str]:
    """Parse a list with one word per line into a set of lower-case words."""
    return frozenset(word for line in content.splitlines() if (word := line.strip().lower()))


def read_word_list(path: Path) -> frozenset[str]:
    """Return the words, one per line, of a user's file; raise StudyError if there are none."""
    try:
        words = familiar_words(read_file(path).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise StudyError(f"Word list {path} cannot be read: {reason}.") from error
    if not words:
        raise StudyError(f"Word list {path} is empty; give a file with one word per line.")
    return words


FAMILIAR_WORDS = Path(__file__).with_name("familiar_words.txt")


@cache
def shipped_words() -> frozenset[str]:
    """Return the built-in familiar words, which benchmarks/continuation_words.py writes."""
    return frozenset(FAMILIAR_WORDS.read_text(encoding="utf-8").split())


def is_familiar(word: str, familiar: frozenset[str]) -> bool:
    """Return whether ``word``, stripped of ``'s`` and ``s'``, is a number or in the list."""
    bare = word.replace("'s", "").replace("s'", "")
    return bare.isdigit() or bare in familiar


class _TextOfHtml(HTMLParser):
    """Parser that collects text, including unknown entities but not the content of scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _WITHOUT_TEXT:
            self._hidden.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Ignore the tag, because no content follows it."""

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(html5.get(f"{name};", f"&{name}"))

    def handle_charref(self, name: str) -> None:
        number = re.match("[xX]([0-9a-fA-F]+)|([0-9]+)", name)
        if number is None:
            self.handle_data(name)
            return
        code = int(number[1], 16) if number[1] else int(number[2])
        self.handle_data(_character(code) + name[number.end() :])

    def unknown_decl(self, data: str) -> None:
        if data.upper().startswith("CDATA["):
            self.handle_data(data[len("CDATA[") :])


def _character(code: int) -> str:
    """Return the character of ``code``; codes 0x80..0x9F are read as windows-1252 bytes."""
    if 0x80 <= code <= 0x9F:
        return bytes([code]).decode("cp1252", "replace")
    return chr(code) if 0 < code < 0x110000 else "\ufffd"


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
"""Keys of the metrics that need a list of familiar words."""


def text_metrics(text: str, familiar: frozenset[str] | None, embed: Embed | None = None) -> Figures:
    """Return the 27 figures of ``text``, in the order of `METRICS`.

    Args:
        text: text of a model or of the author.
        familiar: the Dale-Chall list in lower case; without it `LIST_KEYS` are omitted.
        embed: embeds sentences; without it the four coherence figures are 0.
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
    count = sum(not is_familiar(word, familiar) for word in words)
    share = count / len(words) if words else 0.0
    cloze = cloze_score(share, sentence_length)
    return {
        "pct_unfamiliar_words": round(share, 4),
        "avg_sentence_length": round(sentence_length, 2),
        "cloze_score": cloze,
        "reading_level": reading_level(cloze),
    }


def cloze_score(unfamiliar: float, sentence_length: float) -> float:
    """Return 64 - 95 x unfamiliar share - 0.69 x words per sentence, to two decimals."""
    return round(64 - 95 * unfamiliar - 0.69 * sentence_length, 2)


def reading_level(cloze: float) -> str:
    """Return the school grade, `1` to `16+`, for a cloze score, which is clipped to 10..64."""
    bounded = math.ceil(min(max(cloze, 10), 64))
    return next((name for least, name in LEVELS if bounded >= least), "16+")


def _style(text: str, words: Sequence[str], sentences: int) -> Figures:
    rates = {f"{mark}_density": text.count(sign) for mark, sign in _MARKS.items()}
    n = len(words)
    if not n or not sentences:
        ratios = ("avg_syllables_per_word", "long_word_ratio", "function_word_ratio")
        return dict.fromkeys((*rates, *ratios), 0.0)
    return {
        **{key: round(count / sentences, 4) for key, count in rates.items()},
        "avg_syllables_per_word": round(sum(map(syllables, words)) / n, 4),
        "long_word_ratio": round(sum(len(word) > 6 for word in words) / n, 4),
        "function_word_ratio": round(sum(word in FUNCTION_WORDS for word in words) / n, 4),
    }


def _rounded_variance(lengths: Sequence[int]) -> float | int:
    """Return the sample variance to two decimals; whole numbers stay integers, as in the files."""
    n = len(lengths)
    if n < 2:
        return 0.0
    squares = n * sum(x * x for x in lengths) - sum(lengths) ** 2
    whole, remainder = divmod(squares, n * (n - 1))
    return round(squares / (n * (n - 1)), 2) if remainder else whole


def _moments(lengths: Sequence[int]) -> tuple[float, float]:
    """Return skewness and excess kurtosis: biased moments divided by powers of the *sample* SD."""
    n = len(lengths)
    if n < 3:
        return 0.0, 0.0
    mean = sum(lengths) / n
    deviations = [x - mean for x in lengths]
    variance = sum(x * x for x in deviations) / (n - 1)
    if not variance:
        return 0.0, 0.0
    third = sum(x**3 for x in deviations) / n / variance**1.5
    return third, sum(x**4 for x in deviations) / n / variance**2 - 3


def _repeated(words: Sequence[str], size: int) -> float:
    """Return the fraction of runs of ``size`` words that have occurred before."""
    runs = len(words) - size + 1
    if len(words) < 3:
        return 0.0
    pieces = pairwise(words) if size == 2 else zip(*(words[k:] for k in range(size)), strict=False)
    return (runs - len(set(pieces))) / runs


def _moving_diversity(words: Sequence[str]) -> float:
    """Return the mean type-token ratio over windows of 100 words, or that of a shorter text."""
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
    """Return the entropy of ``items`` in bits (Shannon 1948)."""
    counts = Counter(items)
    total = counts.total()
    return -math.fsum(k / total * math.log2(k / total) for k in counts.values()) + 0.0


Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | None]
"""Function that maps sentences to vectors in order, or to None if embeddings are unavailable."""
