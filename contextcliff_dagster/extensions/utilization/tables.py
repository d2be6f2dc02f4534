"""Tables that the experiment fills."""

from __future__ import annotations

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, Column, Table

UTILIZATION_PREDICTIONS = Table(
    "utilization_predictions",
    "One row per planned call about a generated document, with its outcome but no score yet.",
    PREDICTIONS.columns,
)

UTILIZATION_RECORDS = Table(
    "utilization_records",
    "These calls with scores: a number or value is right or wrong, so em, f1, contained and score "
    "are equal. All are null if there is no answer.",
    (
        *EVAL_RECORDS.columns,
        Column("benchmark", "string", "warehouse, constraints or network", nullable=False),
        Column("format", "string", "jsonl, prose, csv or markdown", nullable=False),
        Column("scale", "string", "Tokens of the JSON lines, as a label", nullable=False),
        Column("scale_tokens", "int64", "The scale as a number", "tokens", nullable=False),
        Column("seed", "int64", "Seed of the document's data", nullable=False),
        Column("arm", "string", "base, or the differences from it", nullable=False),
        Column(
            "document_key",
            "string",
            "Key of the document's data, the same for each format: the unit of pairing",
            nullable=False,
        ),
        Column("records", "int64", "Records in the document", nullable=False),
        Column("needed", "int64", "Number of records needed to know the answer", nullable=False),
        Column(
            "question_kind", "string", "lookup, aggregate, as_of, chain or flow", nullable=False
        ),
        Column("hops", "int64", "Number of records to look up in sequence", nullable=False),
        Column("expected", "string", "The right answer", nullable=False),
        Column("margin_abs", "float64", "Distance of a number from the right answer"),
        Column("margin_rel", "float64", "margin_abs relative to the right answer (at least 1)"),
        Column("thought", "string", "Reasoning before the answer, if any"),
    ),
)

UTILIZATION_DOCUMENTS = Table(
    "utilization_documents",
    "Generated documents, one row per format and arm, with questions and verifier verdicts.",
    (
        Column("document_id", "string", "SHA-256 of the UTF-8 bytes", nullable=False),
        Column("made_by", "string", "Hash of the documents' settings", nullable=False),
        Column("benchmark", "string", "warehouse, constraints or network", nullable=False),
        Column("scale", "string", "Tokens of the JSON lines, as a label", nullable=False),
        Column("seed", "int64", "Seed of the data", nullable=False),
        Column("format", "string", "jsonl, prose, csv or markdown", nullable=False),
        Column("arm", "json", "Evidence, verbosity, order and corruption", nullable=False),
        Column("length_tokens", "int64", "Tokens of this text", "tokens", nullable=False),
        Column("records", "int64", "Number of records", nullable=False),
        Column("corrupted", "int64", "Number of changed records", nullable=False),
        Column("questions", "json", "Questions with answers and choices", nullable=False),
        Column("evidence", "json", "By question: character offsets of its records", nullable=False),
        Column("verdicts", "json", "By question: the verifier's verdict", nullable=False),
        Column("text", "string", "The whole text", nullable=False),
    ),
)
