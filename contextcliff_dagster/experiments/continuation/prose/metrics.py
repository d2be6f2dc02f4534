"""The metrics of one text, and which of them enter the distance between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.experiments.continuation.prose.diversity import (
    moving_type_token_ratio,
    repetition,
    word_ids,
)
from contextcliff_dagster.experiments.continuation.prose.language import function_words
from contextcliff_dagster.experiments.continuation.prose.sentences import (
    lix,
    long_word_share,
    mean_sentence_length,
    rhythm,
    sentence_length_variation,
    shared_content,
)
from contextcliff_dagster.experiments.continuation.prose.style import (
    broken_articles,
    mark_rates,
    pronoun_share,
)
from contextcliff_dagster.experiments.continuation.prose.words import Prose, read_prose

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.continuation.prose.embedders import Embedder

SHORT_WINDOW, LONG_WINDOW = 50, 200
"""Words of the windows in which diversity and repetition are counted."""


@dataclass(frozen=True, slots=True)
class ProseMetrics:
    """Measures of one text; None is "cannot be measured here", never 0.

    All but the counts are means, rates or shares, which the text's length does not move.

    Attributes:
        words, sentences: counts; sentences that a mark ends.
        diversity_50, diversity_200: moving type-token ratio in windows of so many words.
        repetition_50: share of pairs of words that also began within the 50 words before.
        repetition_200: share of runs of three words that also began within the 200 words before.
        word_length: mean letters of a word.
        long_words: share of words of more than six letters.
        function_words: share of English function words.
        broken_articles: share of English articles and possessives before a mark or function word.
        pronouns: share of English personal and possessive pronouns.
        sentence_length: mean words of a sentence.
        sentence_variation: standard deviation of the logarithms of sentence lengths.
        rhythm: correlation of a sentence's length with the next one's.
        lix: readability.
        shared_content: share of content words that a sentence has from the one before.
        commas, semicolons, questions, exclamations, dashes, quotation_marks: per 100 words.
        near_coherence, far_coherence: mean cosine of a sentence's embedding with that of the next,
            and of the fifth after it; None without embeddings.
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
        """Name -> value, in the order of declaration."""
        return asdict(self)


def prose_metrics(text: str, embedder: Embedder | None = None) -> ProseMetrics:
    """The metrics of ``text``.

    Raises:
        EngineError: ``embedder`` is an endpoint that does not answer.
    """
    return metrics_of(read_prose(text), embedder)


def metrics_of(prose: Prose, embedder: Embedder | None = None) -> ProseMetrics:
    """As `prose_metrics`, of a text that has been read."""
    count = len(prose.words)
    if not count:
        return ProseMetrics(0.0, 0.0)
    ids, function = word_ids(prose.words), function_words(prose.words)
    lengths, marks = prose.sentence_lengths, mark_rates(prose)
    near = far = None
    if embedder is not None:
        from contextcliff_dagster.experiments.continuation.prose.coherence import (
            sentence_coherence,
        )

        near, far = sentence_coherence(prose, embedder)
    return ProseMetrics(
        words=float(count),
        sentences=float(len(lengths)),
        diversity_50=moving_type_token_ratio(ids, SHORT_WINDOW),
        diversity_200=moving_type_token_ratio(ids, LONG_WINDOW),
        repetition_50=repetition(ids, 2, SHORT_WINDOW),
        repetition_200=repetition(ids, 3, LONG_WINDOW),
        word_length=float(np.mean([len(word.replace("'", "")) for word in prose.words])),
        long_words=long_word_share(prose),
        function_words=float(function.mean()),
        broken_articles=broken_articles(prose, function),
        pronouns=pronoun_share(prose),
        sentence_length=mean_sentence_length(lengths),
        sentence_variation=sentence_length_variation(lengths),
        rhythm=rhythm(lengths),
        lix=lix(prose),
        shared_content=shared_content(prose),
        near_coherence=near,
        far_coherence=far,
        **(marks._asdict() if marks else {}),
    )
