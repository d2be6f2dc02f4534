"""Values shared by all packages: documents, examples, bins, verdicts, failure tags."""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

_MOST = 1_000_000_000


def check_fields(instance: Any, shares: Collection[str] = ()) -> None:
    """Check that every field holds a value of its declared type: a non-empty text, or a number.

    Args:
        instance: a dataclass whose fields are ``str``, ``int`` or ``float``, optionally None.
        shares: fields between 0 and 1; other numbers are above 0, counts (``n...``) may be 0.

    Raises:
        ValueError: a field holds an invalid value; the message names the first such field.
    """
    for declaration in fields(instance):
        value, declared = getattr(instance, declaration.name), str(declaration.type)
        if value is None and "None" in declared:
            continue
        if "str" in declared:
            valid = isinstance(value, str) and value != ""
        else:
            kinds: tuple[type, ...] = (int, float) if "float" in declared else (int,)
            largest = 1 if declaration.name in shares else _MOST
            count = declaration.name.startswith("n") and value == 0
            valid = type(value) in kinds and (0 < value <= largest or count)
        if not valid:
            raise ValueError(f"{declaration.name} is {reprlib.repr(value)}")


SCHEMA_VERSION: Final = "1.0"
"""Version of samples, tables and archives."""
RESULT_VERSION: Final = "1.1"
"""Version of result files (``cliffs.json``, ``metrics.json``, ``comparison.json``)."""


def level(share: float) -> str:
    """Format a chosen share (confidence, tolerance) without needless digits: ``95%``, ``99.9%``."""
    return f"{round(100 * share, 4):g}%"


class Verdict(enum.StrEnum):
    """How a model's score changes with length, in one word."""

    STABLE = "stable"
    GRADUAL_DECLINE = "gradual_decline"
    DECLINE = "decline"
    CLIFF = "cliff"
    DIP = "dip"
    FLOOR = "floor"
    INSUFFICIENT_DATA = "insufficient_data"


DROPS = (Verdict.CLIFF, Verdict.GRADUAL_DECLINE, Verdict.DECLINE, Verdict.DIP)
"""Verdicts that state a drop."""


class FailureTag(enum.StrEnum):
    """Why a call did not earn a full score: the first tag that applies, in this order.

    Calls with one of the last four have no answer: they enter no mean and are counted separately.
    """

    EMPTY = "empty"
    SCHEMA_VIOLATION = "schema_violation"
    REFUSAL = "refusal"
    INCOMPLETENESS = "incompleteness"
    INSTRUCTION_DRIFT = "instruction_drift"
    WRONG_EVIDENCE = "wrong_evidence"
    HALLUCINATION = "hallucination"
    CONTEXT_OVERFLOW = "context_overflow"
    TRANSPORT_ERROR = "transport_error"
    INVALID_TRUNCATED = "invalid_truncated"
    CONTENT_FILTER = "content_filter"


UNSCORED_TAGS: frozenset[FailureTag] = frozenset(
    {
        FailureTag.CONTEXT_OVERFLOW,
        FailureTag.TRANSPORT_ERROR,
        FailureTag.INVALID_TRUNCATED,
        FailureTag.CONTENT_FILTER,
    }
)

ANSWER_IN = "answer_in"
"""Key of a call's ``extra``, set if the reply's answer field is empty: `thoughts` if the reasoning
holds the answer, else a key of `NO_ANSWERS`."""
ASKED_BY = "asked_by"
"""Key of a call's ``extra``: `batch` if a batch asked it. Nobody measured such a call's times."""
NO_ANSWERS = {
    "refusal": FailureTag.REFUSAL,
    "tool_calls": FailureTag.SCHEMA_VIOLATION,
    "another_choice": FailureTag.SCHEMA_VIOLATION,
}
"""Content of a reply without an answer -> its failure tag."""

PrimaryScore = Literal["em", "f1", "contained"]
PromptMode = Literal["chat", "chat_prefill", "completion"]


@dataclass(frozen=True, slots=True)
class Document:
    """One text at its natural length. ``document_id`` is the SHA-256 (hex) of its UTF-8 bytes."""

    document_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Example:
    """One question about one Document, with its accepted answers.

    ``metadata`` holds only recognised properties: ``domain``, ``source``, ``level``,
    ``evidence_position`` (0..1), ``inter_evidence_tokens``.
    """

    example_id: str
    document_id: str
    question: str
    answers: tuple[str, ...]
    task: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LengthBin:
    """A range ``[edge_low, edge_high)`` of document lengths, in tokens.

    The last bin includes ``edge_high``. ``merged_into`` names the bin that took over the examples
    of a bin with too few documents; the merged bin then has ``n == 0``.
    """

    bin: str
    edge_low: int
    edge_high: int
    min_tokens: int | None
    median_tokens: int | None
    max_tokens: int | None
    n: int
    n_documents: int
    merged_into: str | None = None
