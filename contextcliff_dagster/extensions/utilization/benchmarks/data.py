"""What a benchmark holds: records, and questions about them with their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

BenchmarkName = Literal["warehouse", "constraints", "network"]
QuestionKind = Literal["lookup", "aggregate", "as_of", "chain", "flow"]
Evidence = Literal["growing", "fixed"]
"""Whether the records that matter grow with the document, or stay as many."""

BENCHMARKS: tuple[BenchmarkName, ...] = ("warehouse", "constraints", "network")
ALIASES: Mapping[str, BenchmarkName] = {"ledger": "warehouse", "constraint": "constraints"}

Record = Mapping[str, Any]
"""One record: keys in the order of its `schema.RecordSpec`, values as in JSON.

Identifiers are texts (``WH-0042``), times are Unix seconds, quantities and weights integers.
"""


@dataclass(frozen=True, slots=True)
class Question:
    """One question over a whole document.

    Attributes:
        kind: `lookup` needs one record, `aggregate` the sum over several, `as_of` those up to a
            time, `chain` one record to find the next, `flow` a maximum flow.
        text: as a person asks it, the same for every format; without an instruction on the form of
            the answer.
        answer: the only right one: an integer in digits, or a value as the records write it.
        form: whether a number or a named value is asked for.
        about: the question for programs: ``ask`` and its arguments (`schema.ASKS`).
        evidence: indices, ascending, of the records without which the answer cannot be known.
        margin: for numbers the least change of the answer if one of the records that matter is
            missed; for values the number of other values that then become possible. 0: there is a
            record that matters, yet may be missed without harm.
        hops: records that have to be found one after the other.
        choices: what a guesser picks from; for numbers the plausible range ``(lowest, highest)``.
    """

    kind: QuestionKind
    text: str
    answer: str
    form: Literal["number", "value"]
    about: Mapping[str, Any]
    evidence: tuple[int, ...]
    margin: float
    hops: int = 1
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The data of one document: the same for every format it is written in.

    ``parameters``: as generated, by the document's names (``num_warehouses`` ...). ``records``: in
    the order of time (constraints: as drawn). ``corrupted``: indices of records that were changed.
    """

    name: BenchmarkName
    seed: int
    parameters: Mapping[str, int]
    records: tuple[Record, ...]
    questions: tuple[Question, ...]
    evidence: Evidence = "growing"
    corrupted: tuple[int, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
