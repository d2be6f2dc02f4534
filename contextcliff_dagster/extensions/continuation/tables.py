"""The tables that the experiment fills."""

from __future__ import annotations

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, Column, Table
from contextcliff_dagster.extensions.continuation.prose.metrics import ProseMetrics

CONTINUATION_PREDICTIONS = Table(
    "continuation_predictions",
    "One row per planned continuation and its text; no judgement yet.",
    PREDICTIONS.columns,
)

COHERENCE = ("near_coherence", "far_coherence")
METRICS = tuple(ProseMetrics.__dataclass_fields__)

CONTINUATION_RECORDS = Table(
    "continuation_records",
    "These continuations measured against what their author wrote. `score` is the share of "
    "distances between two passages of the author at least as large as the continuation's; em, f1 "
    "and contained are null.",
    (
        *EVAL_RECORDS.columns,
        Column("text", "string", "Name of the source text", nullable=False),
        Column("passage", "string", "Point of that text, the unit of pairing", nullable=False),
        Column("context_tokens", "int64", "Size of the window", "tokens", nullable=False),
        Column("round", "int64", "Number of the continuation, from 0", nullable=False),
        Column("arm", "string", "base, or what differs from it", nullable=False),
        Column("collapse", "string", "Kind of collapse, empty without one; null: no text"),
        Column("compared_words", "int64", "Words of continuation and author that are compared"),
        Column("longest_run", "int64", "Longest run of words that the author wrote, too", "words"),
        Column("shared_runs", "float64", "Share of runs of eight words that the author wrote, too"),
        *(
            Column(
                name,
                "float64",
                f"Metric `{name}` of the compared words",
                later=name == "near_coherence",
            )
            for name in METRICS
            if name != "words"
        ),
        *(
            Column(
                f"author_{name}",
                "float64",
                f"Metric `{name}` of the author's words that it is compared with",
                later=True,
            )
            for name in COHERENCE
        ),
        Column("embedder", "string", "What embedded the sentences; null: no coherence", later=True),
    ),
)

CONTINUATION_DOCUMENTS = Table(
    "continuation_documents",
    "Contexts by size, what the author wrote after them, and other passages for the noise floor.",
    (
        Column("document_id", "string", "SHA-256 of the UTF-8 bytes", nullable=False),
        Column("made_by", "string", "Hash of what decides the documents", nullable=False),
        Column("kind", "string", "context, author, human or source", nullable=False),
        Column("source", "string", "Name of the source text", nullable=False),
        Column("passage", "string", "Point of that text, or number of a human passage"),
        Column("context_tokens", "int64", "Size of the window; 0: no context", "tokens"),
        Column(
            "length_tokens",
            "int64",
            "Tokens of this text; source: of the text that all was cut from",
            "tokens",
            nullable=False,
        ),
        Column("text", "string", "The whole text", nullable=False),
    ),
)
