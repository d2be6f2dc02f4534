"""Names of the metrics of prose for readers."""

from __future__ import annotations

METRIC_NAMES = {
    "score": "Score (nearness to the author's prose)",
    "intact": "Share without collapse",
    "diversity_50": "Distinct words within 50 (share)",
    "diversity_200": "Distinct words within 200 (share)",
    "repetition_50": "Repeated pairs of words within 50 (share)",
    "repetition_200": "Repeated runs of three words within 200 (share)",
    "word_length": "Letters of a word",
    "long_words": "Words of more than six letters (share)",
    "function_words": "Function words (share)",
    "broken_articles": "Articles without a noun (share)",
    "pronouns": "Pronouns (share)",
    "sentences": "Sentences",
    "sentence_length": "Words of a sentence",
    "sentence_variation": "Variation of sentence lengths",
    "rhythm": "Correlation of neighbouring sentence lengths",
    "lix": "Readability (LIX)",
    "shared_content": "Content words shared with the sentence before (share)",
    "commas": "Commas in 100 words",
    "semicolons": "Semicolons in 100 words",
    "questions": "Question marks in 100 words",
    "exclamations": "Exclamation marks in 100 words",
    "dashes": "Dashes in 100 words",
    "quotation_marks": "Quotation marks in 100 words",
    "near_coherence": "Similarity of neighbouring sentences",
    "far_coherence": "Similarity of sentences five apart",
}
FIRST = (
    "score",
    "diversity_200",
    "diversity_50",
    "lix",
    "repetition_200",
    "repetition_50",
    "intact",
)
"""Metrics of the first four panels: the first four that are measured."""


def metric_name(key: str) -> str:
    """The name of a column of the records."""
    return METRIC_NAMES.get(key, key.replace("_", " ").capitalize())
