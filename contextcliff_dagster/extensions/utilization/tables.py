"""The tables that the experiment fills."""

from __future__ import annotations

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, Column, Table

UTILIZATION_PREDICTIONS = Table(
    "utilization_predictions",
    "One row per planned call over a made document, and its outcome; no judgement yet.",
    PREDICTIONS.columns,
)

UTILIZATION_RECORDS = Table(
    "utilization_records",
    "These calls scored: a number or value is right or wrong, so em, f1, contained and score are "
    "one. All are null where there is no answer.",
    (
        *EVAL_RECORDS.columns,
        Column("benchmark", "string", "warehouse, constraints or network", nullable=False),
        Column("format", "string", "jsonl, prose, csv or markdown", nullable=False),
        Column("scale", "string", "Tokens of the JSON lines, as a label", nullable=False),
        Column("scale_tokens", "int64", "The same as a number", "tokens", nullable=False),
        Column("seed", "int64", "Of the document's data", nullable=False),
        Column("arm", "string", "base, or what differs from it", nullable=False),
        Column(
            "document_key",
            "string",
            "Data of the document: the same for each format, the unit of pairing",
            nullable=False,
        ),
        Column("records", "int64", "Records in the document", nullable=False),
        Column("needed", "int64", "Records without which the answer is unknown", nullable=False),
        Column(
            "question_kind", "string", "lookup, aggregate, as_of, chain or flow", nullable=False
        ),
        Column("hops", "int64", "Records found one after the other", nullable=False),
        Column("expected", "string", "The right answer", nullable=False),
        Column("margin_abs", "float64", "Distance of a number from the right one"),
        Column("margin_rel", "float64", "The same, relative to the right one (at least 1)"),
        Column("thought", "string", "The reasons before the answer, where there are any"),
    ),
)

UTILIZATION_DOCUMENTS = Table(
    "utilization_documents",
    "Made documents, a row for each format and arm, with questions and the verifier's verdicts.",
    (
        Column("document_id", "string", "SHA-256 of the UTF-8 bytes", nullable=False),
        Column("made_by", "string", "Hash of what decides the documents", nullable=False),
        Column("benchmark", "string", "warehouse, constraints or network", nullable=False),
        Column("scale", "string", "Tokens of the JSON lines, as a label", nullable=False),
        Column("seed", "int64", "Of the data", nullable=False),
        Column("format", "string", "jsonl, prose, csv or markdown", nullable=False),
        Column("arm", "json", "Evidence, verbosity, order and corruption", nullable=False),
        Column("length_tokens", "int64", "Tokens of this text", "tokens", nullable=False),
        Column("records", "int64", "Records in it", nullable=False),
        Column("corrupted", "int64", "Of these, changed", nullable=False),
        Column("questions", "json", "Questions with answers and choices", nullable=False),
        Column("evidence", "json", "By question: first characters of its records", nullable=False),
        Column("verdicts", "json", "By question: what the verifier found", nullable=False),
        Column("text", "string", "The whole text", nullable=False),
    ),
)
