"""What travels between rooms: domain values, errors, table schemas, and the results of a study.

Belongs here: declarations, each with a description and a unit, and reading and writing what they
declare. Does not belong here: computing. Values, errors and tables are re-exported; they need the
standard library only, because every process pays for their import. Results are in ``results``.
"""

from contextcliff_dagster.contracts.errors import (
    BudgetError,
    ContextCliffError,
    CorpusError,
    DataError,
    EngineError,
    ScoreFileError,
    StoreError,
    StoreUnreachableError,
    StudyError,
    VerificationError,
)
from contextcliff_dagster.contracts.table import Column, Table, conform, validate
from contextcliff_dagster.contracts.tables import (
    ANSWERS,
    ATTENTION_PREDICTIONS,
    ATTENTION_RECORDS,
    CONTROL_PREDICTIONS,
    CONTROL_RECORDS,
    DOCUMENTS,
    EVAL_RECORDS,
    EXAMPLES,
    LENGTH_MAP,
    MANIFEST_EXAMPLES,
    PREDICTIONS,
    TABLES,
)
from contextcliff_dagster.contracts.values import (
    DROPS,
    RESULT_VERSION,
    SCHEMA_VERSION,
    UNSCORED_TAGS,
    Document,
    Example,
    FailureTag,
    LengthBin,
    PrimaryScore,
    PromptMode,
    Verdict,
    level,
)

__all__ = [
    "ANSWERS",
    "ATTENTION_PREDICTIONS",
    "ATTENTION_RECORDS",
    "CONTROL_PREDICTIONS",
    "CONTROL_RECORDS",
    "DOCUMENTS",
    "DROPS",
    "EVAL_RECORDS",
    "EXAMPLES",
    "LENGTH_MAP",
    "MANIFEST_EXAMPLES",
    "PREDICTIONS",
    "RESULT_VERSION",
    "SCHEMA_VERSION",
    "TABLES",
    "UNSCORED_TAGS",
    "BudgetError",
    "Column",
    "ContextCliffError",
    "CorpusError",
    "DataError",
    "Document",
    "EngineError",
    "Example",
    "FailureTag",
    "LengthBin",
    "PrimaryScore",
    "PromptMode",
    "ScoreFileError",
    "StoreError",
    "StoreUnreachableError",
    "StudyError",
    "Table",
    "Verdict",
    "VerificationError",
    "conform",
    "level",
    "validate",
]
