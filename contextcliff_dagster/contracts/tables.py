"""Table schemas (Arrow), each declared once, with a description and a unit per column.

Writers conform to them, readers validate against them, and the Dagster UI's column schemas are
derived from them. ``pyarrow`` is imported only when a schema is requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.contracts.errors import StoreError
from contextcliff_dagster.contracts.values import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: name of its Arrow type, description and unit.

    ``later``: the column was added later and reads as nulls in older files.
    """

    name: str
    type: Literal[
        "string",
        "int64",
        "float64",
        "bool",
        "timestamp",
        "list<string>",
        "list<float64>",
        "json",
    ]
    description: str
    unit: str | None = None
    nullable: bool = True
    later: bool = False

    def described(self) -> str:
        """Return the description with the unit."""
        return f"{self.description} [{self.unit}]" if self.unit else self.description


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table. ``json`` columns hold JSON text."""

    name: str
    description: str
    columns: tuple[Column, ...]

    @cache  # noqa: B019 (the few declared tables live as long as the process)
    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema, with descriptions and units as field metadata."""
        import pyarrow as pa

        types: dict[str, pa.DataType] = {
            "string": pa.string(),
            "int64": pa.int64(),
            "float64": pa.float64(),
            "bool": pa.bool_(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "list<string>": pa.list_(pa.string()),
            "list<float64>": pa.list_(pa.float64()),
            "json": pa.string(),
        }
        fields = [
            pa.field(
                c.name,
                types[c.type],
                nullable=c.nullable,
                metadata={"description": c.description, "unit": c.unit or ""},
            )
            for c in self.columns
        ]
        return pa.schema(
            fields,
            metadata={"contextcliff.table": self.name, "contextcliff.version": SCHEMA_VERSION},
        )

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)


def conform(rows: Sequence[Mapping[str, Any]], table: Table) -> pa.Table:
    """Return ``rows`` as an Arrow table with exactly the columns of ``table``.

    Missing nullable columns become null; unknown columns and nulls in required columns are errors.

    Raises:
        StoreError: a column is unknown or a required value is missing.
    """
    import pyarrow as pa

    known_columns = set(table.column_names)
    for number, row in enumerate(rows):
        if extra := sorted(set(row) - known_columns):
            raise StoreError(f"Table {table.name!r} has no column {extra[0]!r} (row {number}).")
        for column in table.columns:
            if not column.nullable and row.get(column.name) is None:
                raise StoreError(
                    f"Table {table.name!r} needs a value in column {column.name!r} (row {number})."
                )
    arrays = {name: [row.get(name) for row in rows] for name in table.column_names}
    return pa.Table.from_pydict(arrays, schema=table.arrow_schema())


def validate(data: pa.Table, table: Table, where: str) -> pa.Table:
    """Return ``data`` with the column order and types of ``table``.

    Raises:
        StoreError: a column that is not ``later`` is missing or has another type; names ``where``.
    """
    import pyarrow as pa

    schema = table.arrow_schema()
    present = set(data.column_names)
    for column in table.columns:
        if column.later and column.name not in present:
            field = schema.field(column.name)
            data = data.append_column(field, pa.nulls(data.num_rows, field.type))
    present = set(data.column_names)
    if absent := [name for name in schema.names if name not in present]:
        raise StoreError(
            f"{where} is not a {table.name!r} table: column {absent[0]!r} is missing; rebuild it."
        )
    try:
        data = data.select(schema.names)
        if data.schema == schema:
            return data.replace_schema_metadata(schema.metadata)
        return data.cast(schema)
    except Exception as error:
        raise StoreError(f"{where} is not a {table.name!r} table: {error}; rebuild it.") from error


_EXAMPLE_COLUMNS = (
    Column("example_id", "string", "Example: one question over one document", nullable=False),
    Column("document_id", "string", "SHA-256 of the document's UTF-8 bytes", nullable=False),
    Column("task", "string", "Kind of question, e.g. lookup, two_hop", nullable=False),
)
_EVIDENCE_COLUMNS = (
    Column("level", "int64", "Difficulty level of the question"),
    Column("evidence_position", "float64", "Evidence position in the document", "share 0..1"),
    Column("inter_evidence_tokens", "int64", "Distance between two needed facts", "tokens"),
)

DOCUMENTS = Table(
    "documents",
    "Distinct documents at their natural length.",
    (
        Column("document_id", "string", "SHA-256 of the UTF-8 bytes", nullable=False),
        Column("text", "string", "The whole text, never cut or padded", nullable=False),
    ),
)

EXAMPLES = Table(
    "examples",
    "Questions over documents with their accepted answers.",
    (
        *_EXAMPLE_COLUMNS,
        Column("question", "string", "The question put after the document", nullable=False),
        Column("answers", "list<string>", "Accepted answers", nullable=False),
        *_EVIDENCE_COLUMNS,
        Column("domain", "string", "Subject area of the document"),
        Column("source", "string", "Where the example comes from"),
        Column("metadata", "json", "Anything else the corpus says about the example"),
    ),
)

LENGTH_MAP = Table(
    "length_map",
    "Token count of every example's document under the study's tokenizer.",
    (
        Column("example_id", "string", "Example", nullable=False),
        Column("document_id", "string", "Document", nullable=False),
        Column("length_tokens", "int64", "Tokens of the document alone", "tokens", nullable=False),
    ),
)

MANIFEST_EXAMPLES = Table(
    "manifest_examples",
    "The frozen sample: examples in draw order within their bin.",
    (
        *EXAMPLES.columns,
        Column("length_tokens", "int64", "Tokens of the document alone", "tokens", nullable=False),
        Column("bin", "string", "Length bin key (b00, b01, ...)", nullable=False),
        Column("rank", "int64", "Draw order in the bin; n samples: 0..n-1", nullable=False),
    ),
)

_CALL_COLUMNS = (
    *_EXAMPLE_COLUMNS,
    Column("study", "string", "Study", nullable=False),
    Column("campaign", "string", "Dated measurement of the study", nullable=False),
    Column("model", "string", "Serving configuration", nullable=False),
    Column("bin", "string", "Length bin key", nullable=False),
    Column("replicate", "int64", "Number of the repeated call", nullable=False),
    Column("instruction", "string", "Instruction wording used in this replicate", later=True),
    Column("length_tokens", "int64", "Tokens of the document alone", "tokens", nullable=False),
    *_EVIDENCE_COLUMNS,
    Column("call_key", "string", "Cache key of the call in the ledger", nullable=False),
    Column("identity_hash", "string", "Serving identity", nullable=False),
    Column("recipe_hash", "string", "Request recipe", nullable=False),
    Column("prompt_hash", "string", "SHA-256 of the rendered prompt", nullable=False),
    Column("raw_output", "string", "The model's answer, unchanged"),
    Column("finish_reason", "string", "Why generation stopped"),
    Column("prompt_tokens", "int64", "Prompt tokens by the server's count", "tokens"),
    Column("own_prompt_tokens", "int64", "Our own count before sending", "tokens", later=True),
    Column("cached_tokens", "int64", "Prompt tokens served from a cache", "tokens"),
    Column("completion_tokens", "int64", "Tokens generated", "tokens"),
    Column("reasoning_tokens", "int64", "Of these, spent on reasoning", "tokens", later=True),
    Column("ttft_ms", "float64", "Time to the first token", "ms"),
    Column("duration_ms", "float64", "Time to the last token", "ms"),
    Column("queue_ms", "float64", "Queueing in the engine, not in other times", "ms", later=True),
    Column("loop_lag_ms", "float64", "Largest delay of our event loop", "ms", later=True),
    Column("attempts", "int64", "Times the call was sent", nullable=False),
    Column("cost_usd", "float64", "Price of the call by the model's price entry", "USD"),
    Column("error", "string", "Why there is no answer; null if there is one"),
    Column("finished_at", "timestamp", "When the call ended"),
    Column("extra", "json", "Other measurements by the engine, by name", later=True),
)

PREDICTIONS = Table(
    "predictions",
    "One row per planned call with its outcome, not yet scored.",
    (
        *_CALL_COLUMNS,
        Column("no_answer", "string", "Failure tag of a call without an answer, or null"),
    ),
)

EVAL_RECORDS = Table(
    "eval_records",
    "Scored calls. Scores are null if and only if the failure tag marks a call without an answer.",
    (
        *_CALL_COLUMNS,
        Column("kind", "string", "Kind of question, if the corpus names one", later=True),
        Column("domain", "string", "Subject area of the document", later=True),
        Column("source", "string", "Where the example comes from", later=True),
        Column("parsed_answer", "string", "Answer extracted from the raw output"),
        Column("em", "float64", "Exact match after normalisation", "0..1"),
        Column("f1", "float64", "Token F1 after normalisation", "0..1"),
        Column("contained", "float64", "The output contains an accepted answer", "0..1"),
        Column("score", "float64", "The study's primary score", "0..1"),
        Column("failed", "bool", "Binary score of 0, or an answer that cannot be parsed"),
        Column("failure", "string", "Failure tag, null for a right answer"),
        Column("scorer_version", "string", "Version of the scorers; null means 1", later=True),
    ),
)

_CONTROL = Column("control", "string", "no_context or oracle", nullable=False)

CONTROL_PREDICTIONS = Table(
    "control_predictions",
    "Calls without the document, or with only its evidence. document_id and length_tokens refer to "
    "the text used instead.",
    (_CONTROL, *PREDICTIONS.columns),
)

CONTROL_RECORDS = Table(
    "control_records",
    "Scored control calls. document_id and length_tokens refer to the whole document, as in the "
    "evaluation records of the same questions.",
    (_CONTROL, *EVAL_RECORDS.columns),
)

ATTENTION_PREDICTIONS = Table(
    "attention_predictions",
    "Calls with one output token; `extra` records where the prompt's last token attends.",
    PREDICTIONS.columns,
)

_NOT_OF_ATTENTION = (
    *("raw_output", "finish_reason", "error", "extra"),
    *("completion_tokens", "reasoning_tokens", "cached_tokens"),
)

ATTENTION_RECORDS = Table(
    "attention_records",
    "Attention of the last prompt token over the prompt: lists of layers x heads values, layer by "
    "layer, null if a layer lacks that head. The attention not on the first tokens or the evidence "
    "is on the remaining tokens.",
    (
        *(column for column in _CALL_COLUMNS if column.name not in _NOT_OF_ATTENTION),
        Column("layers", "int64", "Layers of the model", nullable=False),
        Column("heads", "int64", "Most heads of a layer", nullable=False),
        Column("entropy", "list<float64>", "Entropy / log(prompt tokens)", "0..1", nullable=False),
        Column("sinks", "list<float64>", "Share on the first 4 tokens", "0..1", nullable=False),
        Column("evidence", "list<float64>", "Share on later tokens of the evidence", "0..1"),
    ),
)

ANSWERS = Table(
    "answers",
    "The answers behind a number: each question with its accepted answers, the model's answer and "
    "its score. For people to read; never stored as a file.",
    (
        *_EXAMPLE_COLUMNS,
        Column("model", "string", "Serving configuration", nullable=False),
        Column("bin", "string", "Length bin key", nullable=False),
        Column("replicate", "int64", "Number of the repeated call", nullable=False),
        Column("length_tokens", "int64", "Tokens of the document alone", "tokens", nullable=False),
        Column("evidence_position", "float64", "Evidence position in the document", "share 0..1"),
        Column("control", "string", "no_context or oracle; null: with the document"),
        Column("document", "string", "Name of the document, such as its file; null: unnamed"),
        Column("question", "string", "Null if the sample no longer has the example"),
        Column("accepted", "list<string>", "Accepted answers; null like the question"),
        Column("answer", "string", "Raw output; null if there is none or it was pruned"),
        Column("parsed_answer", "string", "Answer extracted from the raw output and scored"),
        Column("score", "float64", "The study's primary score; null: not scored", "0..1"),
        Column("em", "float64", "Exact match after normalisation", "0..1"),
        Column("f1", "float64", "Token F1 after normalisation", "0..1"),
        Column("contained", "float64", "The output contains an accepted answer", "0..1"),
        Column("failure", "string", "Failure tag, null for a right answer"),
        Column("error", "string", "Why there is no answer; null if there is one"),
        Column("prompt_tokens", "int64", "Prompt tokens by the server's count", "tokens"),
    ),
)

TABLES: tuple[Table, ...] = (
    DOCUMENTS,
    EXAMPLES,
    LENGTH_MAP,
    MANIFEST_EXAMPLES,
    PREDICTIONS,
    EVAL_RECORDS,
    CONTROL_PREDICTIONS,
    CONTROL_RECORDS,
    ATTENTION_PREDICTIONS,
    ATTENTION_RECORDS,
)
