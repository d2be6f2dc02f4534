"""Data shared by all packages: domain values, errors, table schemas and study results.

Belongs here: declarations, each with a description and a unit, and the code that reads and writes
them. Does not belong here: computation. Values, errors and tables are re-exported; they need only
the standard library, because every process pays for their import. Results are in ``results``.
"""

# mypy: implicit-reexport
# ruff: noqa: F401 - what is imported here is what this package offers

from contextcliff_dagster.contracts.errors import (
    AnswersLostError,
    BatchesOpenError,
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
    install_command,
    package_version,
    pip_install,
)
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
    Column,
    Table,
    conform,
    validate,
)
from contextcliff_dagster.contracts.values import (
    ANSWER_IN,
    ASKED_BY,
    DROPS,
    NO_ANSWERS,
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
