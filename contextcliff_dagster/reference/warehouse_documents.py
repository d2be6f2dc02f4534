"""Warehouse ledgers of natural length: the documents and questions of the reference standard.

A ledger is one day of a warehouse, one record per line. Most records state the stock of an item;
some name the item that substitutes for another:

    Ledger of day 217
     SKU-482 qty=937915
     SKU-036 sub=482;

A document is generated whole; its length follows from the day's number of records. Nothing is cut
or padded, and no needle is inserted: any record can be asked for.

Level 1 (`lookup`) asks for an item with a stock record; the answer is the quantity. Level 2
(`two_hop`) asks for an item that has a substitute; the answer spells both steps, the substitute
and its quantity (`482; qty=937915`). Both use the same wording and the same documents.

Under the reference tokenizer every record has `TOKENS_PER_RECORD` tokens and the header
`HEADER_TOKENS`, so a document's length in tokens is known without counting. A record's key and
value are as far apart as the question's key and the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

HEADER_TOKENS = 3
TOKENS_PER_RECORD = 6
KEYS = 1_000
"""Number of distinct item keys: all three-digit numbers, each one token."""
MAX_RECORDS = 983
"""Records of the longest ledger (5,901 tokens); keys are unique within a document."""
MIN_RECORDS = 6
SUBSTITUTE_SHARE = 0.15
"""Fraction of a ledger's records that name a substitute, not a quantity (at least one record)."""
WORDINGS = ("Find", "Report", "State")
"""Instruction words that the models are trained on; the first is the default."""

Task = Literal["lookup", "two_hop"]


@dataclass(frozen=True, slots=True)
class LedgerQuestion:
    """A question about a ledger.

    `answers` are the accepted answers; the first has the form that the reference models are trained
    to give. `evidence_position` is the start of the record with the quantity, as a fraction of the
    document's tokens, 0 <= x < 1. `inter_evidence_tokens` is the distance in tokens between the
    starts of the two records that a `two_hop` question needs. `evidence` are the records needed, as
    [start, end) in characters of the document.
    """

    question: str
    answers: tuple[str, ...]
    level: int
    task: Task
    evidence_position: float
    inter_evidence_tokens: int | None
    evidence: tuple[tuple[int, int], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Ledger:
    """A complete document, its length in reference tokens, and its questions."""

    document_id: str
    text: str
    length_tokens: int
    questions: tuple[LedgerQuestion, ...]


@dataclass(frozen=True, slots=True)
class LedgerArrays:
    """`n` ledgers of `r` records each, as arrays for training and for generating text.

    `day` (n,): 0..999. `key` (n, r): 0..999, unique within a row. `is_substitute` (n, r): whether
    the record names a substitute. `target` (n, r): for a substitute, the index of the record with
    the quantity; otherwise the record's own index. `quantity` (n, r, 2): the quantity's two groups
    of three digits (unused if `is_substitute`).
    """

    day: NDArray[np.int64]
    key: NDArray[np.int64]
    is_substitute: NDArray[np.bool_]
    target: NDArray[np.int64]
    quantity: NDArray[np.int64]


def ledger_tokens(records: int) -> int:
    """Return the length in reference tokens of a ledger with `records` records."""
    return HEADER_TOKENS + TOKENS_PER_RECORD * records


def records_for_tokens(tokens: float) -> int:
    """Return the number of records of the longest ledger with at most `tokens` tokens."""
    return math.floor((tokens - HEADER_TOKENS) / TOKENS_PER_RECORD)


def draw_ledgers(rng: np.random.Generator, n: int, records: int) -> LedgerArrays:
    """Draw `n` ledgers of `records` records.

    Raises ValueError unless `MIN_RECORDS` <= records <= `MAX_RECORDS`.
    """
    if not MIN_RECORDS <= records <= MAX_RECORDS:
        raise ValueError(
            f"A ledger has between {MIN_RECORDS} and {MAX_RECORDS} records, not {records}."
        )
    substitutes = max(1, round(SUBSTITUTE_SHARE * records))
    rows = np.arange(n)[:, None]
    key = rng.random((n, KEYS), dtype=np.float32).argsort(axis=1)[:, :records]
    order = rng.random((n, records), dtype=np.float32).argsort(axis=1)
    where_substitute, where_stock = order[:, :substitutes], order[:, substitutes:]
    is_substitute = np.zeros((n, records), dtype=np.bool_)
    is_substitute[rows, where_substitute] = True
    target = np.broadcast_to(np.arange(records), (n, records)).copy()
    chosen = rng.integers(0, records - substitutes, (n, substitutes))
    target[rows, where_substitute] = where_stock[rows, chosen]
    quantity = np.stack(
        [rng.integers(100, 1_000, (n, records)), rng.integers(0, 1_000, (n, records))], axis=-1
    )
    return LedgerArrays(rng.integers(0, 1_000, n), key, is_substitute, target, quantity)


def _ledger(rng: np.random.Generator, records: int, per_level: int) -> Ledger:
    arrays = draw_ledgers(rng, 1, records)
    key, target = arrays.key[0].tolist(), arrays.target[0].tolist()
    substitute = arrays.is_substitute[0].tolist()
    quantity = [f"{high:03d}{low:03d}" for high, low in arrays.quantity[0].tolist()]
    day = int(arrays.day[0])
    lines = [f"Ledger of day {day:03d}"]
    for k, is_substitute, at, amount in zip(key, substitute, target, quantity, strict=True):
        lines.append(
            f" SKU-{k:03d} sub={key[at]:03d};" if is_substitute else f" SKU-{k:03d} qty={amount}"
        )
    length = ledger_tokens(len(key))
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    questions = []
    for level in (1, 2):
        candidates = np.flatnonzero(arrays.is_substitute[0] == (level == 2))
        chosen = rng.choice(candidates, min(per_level, candidates.size), replace=False)
        for index in chosen.tolist():
            at = target[index]
            amount, two = quantity[at], level == 2
            both_steps = (f"{key[at]:03d}; qty={amount}", f"qty={amount}", amount)
            questions.append(
                LedgerQuestion(
                    question=f"{WORDINGS[0]} SKU-{key[index]:03d}?",
                    answers=both_steps if two else (amount,),
                    level=level,
                    task="two_hop" if two else "lookup",
                    evidence_position=(HEADER_TOKENS + TOKENS_PER_RECORD * at) / length,
                    inter_evidence_tokens=TOKENS_PER_RECORD * abs(at - index) if two else None,
                    # The header is line 0; a record ends with its line.
                    evidence=tuple((starts[i + 1], starts[i + 2]) for i in sorted({at, index})),
                )
            )
    first = lines[1].strip().replace(" ", "-").rstrip(";")
    return Ledger(
        document_id=f"ledger-{day:03d}-{len(key)}-{first}",
        text="\n".join(lines) + "\n",
        length_tokens=length,
        questions=tuple(questions),
    )


def generate_ledger(
    seed: int, records: int | None = None, *, questions_per_level: int = 1
) -> Ledger:
    """Generate one ledger; the same arguments give the same bytes.

    Without `records`, their number is drawn log-uniformly over all lengths. Raises ValueError if
    `records` is out of range.
    """
    rng = np.random.default_rng(seed)
    if records is None:
        records = _draw_records(rng, MIN_RECORDS, MAX_RECORDS)
    return _ledger(rng, records, questions_per_level)


def _draw_records(rng: np.random.Generator, low: int, high: int) -> int:
    records = math.exp(rng.uniform(math.log(low), math.log(high + 1)))
    return min(max(int(records), low), high)


def iter_ledgers(
    seed: int,
    n_documents: int,
    min_tokens: int = ledger_tokens(MIN_RECORDS),
    max_tokens: int = ledger_tokens(MAX_RECORDS),
    *,
    questions_per_level: int = 1,
) -> Iterator[Ledger]:
    """Yield `n_documents` ledgers of log-uniform length in min_tokens..max_tokens (inclusive).

    Document i depends only on `seed` and i, so a longer corpus begins with the shorter one. Raises
    ValueError if no ledger has a length in that range.
    """
    low = max(MIN_RECORDS, -((HEADER_TOKENS - min_tokens) // TOKENS_PER_RECORD))
    high = min(MAX_RECORDS, records_for_tokens(max_tokens))
    if low > high:
        raise ValueError(
            f"No ledger has between {min_tokens} and {max_tokens} tokens: ledgers have "
            f"{ledger_tokens(MIN_RECORDS)} to {ledger_tokens(MAX_RECORDS)}."
        )
    for index in range(n_documents):
        rng = np.random.default_rng((seed, index))
        yield _ledger(rng, _draw_records(rng, low, high), questions_per_level)
