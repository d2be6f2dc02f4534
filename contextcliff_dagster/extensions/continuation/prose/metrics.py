"""Metrics of prose: diversity and repetition in moving windows, word lengths, style."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.extensions.continuation.prose.words import (
    ENGLISH_ARTICLES,
    Prose,
    function_words,
)

Ids = NDArray[np.int64]


def word_ids(words: Sequence[str]) -> Ids:
    """Number the words; equal words get equal numbers."""
    seen: dict[str, int] = {}
    return np.fromiter((seen.setdefault(word, len(seen)) for word in words), np.int64, len(words))


def ngram_ids(ids: Ids, n: int) -> Ids:
    """Number the runs of ``n`` words; equal runs get equal numbers. Empty below ``n`` words."""
    if len(ids) < n:
        return np.empty(0, np.int64)
    runs = ids
    for more in range(1, n):
        # Ranked anew at each step, so that the product stays small.
        runs = runs[: len(ids) - more] * (int(ids.max()) + 1) + ids[more:]
        runs = np.unique(runs, return_inverse=True)[1].astype(np.int64)
    return runs


def windowed_diversity(ids: Ids, window: int) -> NDArray[np.float64]:
    """Return distinct ids / ``window`` for each run of ``window`` ids; empty if there is none."""
    count = len(ids) - window + 1
    if count < 1:
        return np.empty(0)
    indices = np.arange(len(ids))
    # An id counts in the windows that begin after its previous occurrence and reach it.
    first = np.maximum(np.maximum(last_seen(ids) + 1, indices - window + 1), 0)
    last = np.minimum(indices, count - 1)
    valid = first <= last
    change = np.zeros(count + 1)
    np.add.at(change, first[valid], 1.0)
    np.add.at(change, last[valid] + 1, -1.0)
    return np.cumsum(change[:-1]) / window


def moving_type_token_ratio(ids: Ids, window: int) -> float | None:
    """Return the mean fraction of distinct words over all windows; None for a shorter text.

    MATTR: Covington and McFall 2010, "Cutting the Gordian knot: the moving-average type-token
    ratio".
    """
    ratios = windowed_diversity(ids, window)
    return float(ratios.mean()) if len(ratios) else None


def repetition(ids: Ids, n: int, window: int) -> float | None:
    """Return the fraction of runs of ``n`` words that also began in the preceding ``window`` words.

    Only runs preceded by a whole window count; return None if there are fewer than ten.
    """
    runs = ngram_ids(ids, n)
    if len(runs) < window + 10:
        return None
    gap = np.arange(len(runs)) - last_seen(runs)
    return float((gap[window:] <= window).mean())


def last_seen(ids: Ids) -> Ids:
    """Return the index of each id's previous occurrence, or a large negative number if none."""
    order = np.argsort(ids, kind="stable")
    before = np.full(len(ids), -(1 << 40), np.int64)
    same = ids[order[1:]] == ids[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


SHORT_WINDOW, LONG_WINDOW = 50, 200
"""Window sizes, in words, for diversity and repetition."""


@dataclass(frozen=True, slots=True)
class ProseMetrics:
    """Metrics of one text; None means that the text does not allow the measurement.

    All but the counts are means, rates or fractions, which do not depend on the text's length.

    Attributes:
        words, sentences: counts; only sentences with an end mark count.
        diversity_50, diversity_200: moving type-token ratio in windows of 50 and 200 words.
        repetition_50: fraction of word pairs that also occur in the preceding 50 words.
        repetition_200: fraction of three-word runs that also occur in the preceding 200 words.
        word_length: mean letters per word.
        long_words: fraction of words with more than six letters.
        function_words: fraction of words that are English function words.
        broken_articles: fraction of English articles, possessives before a mark or function word.
        pronouns: fraction of words that are English personal or possessive pronouns.
        sentence_length: mean words per sentence.
        sentence_variation: standard deviation of the logarithms of sentence lengths.
        rhythm: correlation between the lengths of neighbouring sentences.
        lix: readability index.
        shared_content: fraction of content words that neighbouring sentences share.
        commas, semicolons, questions, exclamations, dashes, quotation_marks: per 100 words.
        near_coherence, far_coherence: mean cosine of the embeddings of neighbouring sentences and
            of sentences five apart, which `embedders` measures; None here.
    """

    words: float | None
    sentences: float | None
    diversity_50: float | None = None
    diversity_200: float | None = None
    repetition_50: float | None = None
    repetition_200: float | None = None
    word_length: float | None = None
    long_words: float | None = None
    function_words: float | None = None
    broken_articles: float | None = None
    pronouns: float | None = None
    sentence_length: float | None = None
    sentence_variation: float | None = None
    rhythm: float | None = None
    lix: float | None = None
    shared_content: float | None = None
    commas: float | None = None
    semicolons: float | None = None
    questions: float | None = None
    exclamations: float | None = None
    dashes: float | None = None
    quotation_marks: float | None = None
    near_coherence: float | None = None
    far_coherence: float | None = None

    def as_dict(self) -> Mapping[str, float | None]:
        """Return the metrics by name, in the order of declaration."""
        return asdict(self)


def metrics_of(prose: Prose) -> ProseMetrics:
    """Return the metrics of a parsed text but its coherence."""
    count = len(prose.words)
    if not count:
        return ProseMetrics(0.0, 0.0)
    ids, function = word_ids(prose.words), function_words(prose.words)
    lengths = prose.sentence_lengths
    sentence_length = float(lengths.mean()) if len(lengths) else None
    long_words = float(np.mean([len(word) >= LONG_WORD_LETTERS for word in prose.words]))
    return ProseMetrics(
        words=float(count),
        sentences=float(len(lengths)),
        diversity_50=moving_type_token_ratio(ids, SHORT_WINDOW),
        diversity_200=moving_type_token_ratio(ids, LONG_WINDOW),
        repetition_50=repetition(ids, 2, SHORT_WINDOW),
        repetition_200=repetition(ids, 3, LONG_WINDOW),
        word_length=float(np.mean([len(word.replace("'", "")) for word in prose.words])),
        long_words=long_words,
        function_words=float(function.mean()),
        broken_articles=broken_articles(prose, function),
        pronouns=pronoun_share(prose),
        sentence_length=sentence_length,
        sentence_variation=sentence_length_variation(lengths),
        rhythm=rhythm(lengths),
        lix=lix(sentence_length, long_words),
        shared_content=shared_content(prose),
        **mark_rates(prose),
    )


LONG_WORD_LETTERS = 7
_LEAST_SENTENCES, _LEAST_FOR_RHYTHM = 3, 8


def sentence_length_variation(lengths: NDArray[np.int64]) -> float | None:
    """Return the SD of the logarithms of sentence lengths, or None with fewer than three."""
    return float(np.log(lengths).std(ddof=1)) if len(lengths) >= _LEAST_SENTENCES else None


def rhythm(lengths: NDArray[np.int64]) -> float | None:
    """Return the correlation between the log lengths of neighbouring sentences, -1..1.

    It is negative if long and short sentences alternate, and None below eight sentences or if
    all are equally long.
    """
    if len(lengths) < _LEAST_FOR_RHYTHM:
        return None
    centred = np.log(lengths) - np.log(lengths).mean()
    squares = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / squares if squares > 1e-12 else None


def lix(sentence_length: float | None, long_words: float) -> float | None:
    """Return the readability LIX: words / sentences + 100 x words of over six letters / words.

    Bjornsson 1968, "Lasbarhet"; Anderson 1983, "Lix and Rix: variations on a little-known
    readability index". Higher is harder: under 30 is very easy, over 60 very hard. It needs neither
    syllables nor a word list, so it suits every language written in letters with blanks. Only
    sentences that a mark ends count; return None if there are none.
    """
    return None if sentence_length is None else sentence_length + 100.0 * long_words


def shared_content(prose: Prose) -> float | None:
    """Return the mean fraction of content words that neighbouring sentences share (cohesion).

    All words except function words are content words; sentences without any are skipped. This
    overlap is one of the measures of Coh-Metrix (McNamara, Graesser, McCarthy and Cai 2014). Return
    None below three sentences with content words.
    """
    content = ~function_words(prose.words)
    sets = [
        {word for word, counts in zip(prose.words[a:b], content[a:b], strict=True) if counts}
        for a, b in pairwise([0, *map(int, prose.sentence_ends)])
    ]
    sets = [first for first in sets if first]
    if len(sets) < _LEAST_SENTENCES:
        return None
    return float(
        np.mean([len(left & right) / min(len(left), len(right)) for left, right in pairwise(sets)])
    )


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


def mark_rates(prose: Prose) -> dict[str, float]:
    """Return the rates of punctuation marks per 100 words, counting colons as semicolons."""
    text, scale = prose.text, 100.0 / len(prose.words)
    quotes = sum(
        not (_is_letter(text, quote.start() - 1) and _is_letter(text, quote.end()))
        for quote in _QUOTE.finditer(text)
    )
    return {
        "commas": scale * len(_COMMA.findall(text)),
        "semicolons": scale * len(_SEMICOLON.findall(text)),
        "questions": scale * sum(map(text.count, "?？؟")),
        "exclamations": scale * sum(map(text.count, "!！")),
        "dashes": scale * text.count("—"),
        "quotation_marks": scale * quotes,
    }


def pronoun_share(prose: Prose) -> float:
    """Return the fraction of words that are English pronouns."""
    return sum(word.split("'")[0] in _PRONOUNS for word in prose.words) / len(prose.words)


def broken_articles(prose: Prose, function: NDArray[np.bool_]) -> float | None:
    """Return the fraction of articles and possessives before a mark or function word (English).

    It is near 0 for words in normal order. ``function`` marks the function words. Return None
    below five articles and possessives.
    """
    at = [i for i, word in enumerate(prose.words[:-1]) if word in _BEFORE_NOUNS]
    if len(at) < _LEAST_ARTICLES:
        return None
    ends = prose.starts + np.fromiter(map(len, prose.words), np.int64, len(prose.words))
    marks = (_MARK.search(prose.text, ends[i], prose.starts[i + 1]) is not None for i in at)
    return sum(mark or bool(function[i + 1]) for i, mark in zip(at, marks, strict=True)) / len(at)


def _is_letter(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isalnum()
