"""Length and rhythm of sentences, readability, and words in common of neighbouring sentences."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.experiments.continuation.prose.language import function_words
from contextcliff_dagster.experiments.continuation.prose.words import Prose

LONG_WORD_LETTERS = 7
_LEAST_SENTENCES, _LEAST_FOR_RHYTHM = 3, 8


def mean_sentence_length(lengths: NDArray[np.int64]) -> float | None:
    """Mean words of a sentence; None without one that a mark ends."""
    return float(lengths.mean()) if len(lengths) else None


def sentence_length_variation(lengths: NDArray[np.int64]) -> float | None:
    """Standard deviation of the logarithms of sentence lengths; None below three sentences."""
    return float(np.log(lengths).std(ddof=1)) if len(lengths) >= _LEAST_SENTENCES else None


def rhythm(lengths: NDArray[np.int64]) -> float | None:
    """Correlation of the logarithm of a sentence's length with that of the next, -1..1.

    Negative where long and short sentences take turns. None below eight sentences, or where all
    are equally long.
    """
    if len(lengths) < _LEAST_FOR_RHYTHM:
        return None
    off = np.log(lengths) - np.log(lengths).mean()
    squares = float(off @ off)
    return float(off[1:] @ off[:-1]) / squares if squares > 1e-12 else None


def lix(prose: Prose) -> float | None:
    """Readability: LIX = words / sentences + 100 x words of more than six letters / words.

    Bjornsson 1968, "Lasbarhet"; Anderson 1983, "Lix and Rix: variations on a little-known
    readability index". Higher is harder: under 30 very easy, over 60 very hard. It counts no
    syllables and knows no word list, so it holds for every language written in letters with blanks.
    Sentences are those that a mark ends; None without one.
    """
    length, share = mean_sentence_length(prose.sentence_lengths), long_word_share(prose)
    return None if length is None or share is None else length + 100.0 * share


def long_word_share(prose: Prose) -> float | None:
    """Share of words of more than six letters; None without words."""
    if not prose.words:
        return None
    return float(np.mean([len(word) >= LONG_WORD_LETTERS for word in prose.words]))


def shared_content(prose: Prose) -> float | None:
    """Cohesion: mean share of a sentence's content words that the sentence before also has.

    Content words are all but function words; sentences without one are passed over. The overlap of
    neighbours is one of the measures of Coh-Metrix (McNamara, Graesser, McCarthy and Cai 2014).
    None below three sentences with content words.
    """
    content = ~function_words(prose.words)
    bounds = [0, *map(int, prose.sentence_ends)]
    sets = [
        {word for word, counts in zip(prose.words[a:b], content[a:b], strict=True) if counts}
        for a, b in pairwise(bounds)
    ]
    sets = [one for one in sets if one]
    if len(sets) < _LEAST_SENTENCES:
        return None
    return float(
        np.mean([len(one & other) / min(len(one), len(other)) for one, other in pairwise(sets)])
    )
