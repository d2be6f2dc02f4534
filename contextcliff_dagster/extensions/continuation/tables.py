"""The tables that the continuation experiment fills."""

from __future__ import annotations

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, Column, Table
from contextcliff_dagster.extensions.continuation.prose.metrics import ProseMetrics

CONTINUATION_PREDICTIONS = Table(
    "continuation_predictions",
    "One row per planned continuation with its text, before scoring.",
    PREDICTIONS.columns,
)

COHERENCE = ("near_coherence", "far_coherence")
METRICS = tuple(ProseMetrics.__dataclass_fields__)

CONTINUATION_RECORDS = Table(
    "continuation_records",
    "Continuations compared with what their author wrote. `score` is the share of pairs of the "
    "author's passages that are at least as far apart as the continuation is from him; em, f1 "
    "and contained are null.",
    (
        *EVAL_RECORDS.columns,
        Column("text", "string", "Name of the source text", nullable=False),
        Column("passage", "string", "Point in that text, the unit of pairing", nullable=False),
        Column("context_tokens", "int64", "Size of the window", "tokens", nullable=False),
        Column("round", "int64", "Number of the continuation, from 0", nullable=False),
        Column("arm", "string", "base, or its difference from base", nullable=False),
        Column("collapse", "string", "Kind of collapse; empty if none, null without a text"),
        Column("compared_words", "int64", "Words compared, of continuation and author"),
        Column("longest_run", "int64", "Longest run of words that the author also wrote", "words"),
        Column("shared_runs", "float64", "Share of eight-word runs that the author also wrote"),
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
                f"Metric `{name}` of the author's compared words",
                later=True,
            )
            for name in COHERENCE
        ),
        Column("embedder", "string", "Embedder of sentences; null without coherence", later=True),
    ),
)

CONTINUATION_DOCUMENTS = Table(
    "continuation_documents",
    "Contexts by size, the author's next passages, and other passages for the noise floor.",
    (
        Column("document_id", "string", "SHA-256 of the UTF-8 bytes", nullable=False),
        Column("made_by", "string", "Hash of all that determines the documents", nullable=False),
        Column("kind", "string", "context, author, human or source", nullable=False),
        Column("source", "string", "Name of the source text", nullable=False),
        Column("passage", "string", "Point in that text, or number of a human passage"),
        Column("context_tokens", "int64", "Size of the window; 0 without a context", "tokens"),
        Column(
            "length_tokens",
            "int64",
            "Tokens of this text; for `source`, of the whole source text",
            "tokens",
            nullable=False,
        ),
        Column("text", "string", "Full text", nullable=False),
    ),
)
