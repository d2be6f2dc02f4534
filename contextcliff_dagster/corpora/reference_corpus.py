"""The reference corpus: generated warehouse ledgers of natural length, as Examples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import CorpusError, Document, Example
from contextcliff_dagster.corpora.corpus import (
    EVIDENCE_SPANS,
    Entry,
    StreamedCorpus,
    options_hash,
    take_options,
)

if TYPE_CHECKING:
    from contextcliff_dagster.reference.warehouse_documents import Ledger

TASKS = {"lookup": "lookup", "two_hop": "two_hop", "multi_hop_qa": "two_hop"}
"""Task names that are accepted, and the task each one means."""


class LedgerCorpus(StreamedCorpus):
    """Ledgers drawn afresh from a seed: the same options give the same texts and questions.

    Options: ``documents`` (1,000), ``seed`` (0), ``min_tokens`` and ``max_tokens`` (in tokens
    of the reference tokenizer; all lengths that ledgers have), ``task`` (``lookup``, ``two_hop`` or
    its alias ``multi_hop_qa``; both when absent) and ``questions`` (per document and task, 1).
    """

    name = "reference"

    def __init__(self, options: Mapping[str, Any]) -> None:
        from contextcliff_dagster.reference import warehouse_documents

        numbers = ("documents", "seed", "min_tokens", "max_tokens", "questions")
        given = take_options("reference", options, {"task": str} | dict.fromkeys(numbers, int))
        self._n_documents = given.get("documents", 1_000)
        self._seed = given.get("seed", 0)
        self._questions = given.get("questions", 1)
        self._task: str | None = None
        if "task" in given:
            if given["task"] not in TASKS:
                raise CorpusError(
                    f"The reference corpus has no task {given['task']!r}; "
                    f"it has {', '.join(TASKS)}."
                )
            self._task = TASKS[given["task"]]
        for key, least in (("documents", 1), ("seed", 0), ("questions", 1)):
            if given.get(key, least) < least:
                raise CorpusError(
                    f"Option {key!r} of the reference corpus must be at least {least}, "
                    f"not {given[key]}."
                )
        self._range = (
            given.get(
                "min_tokens", warehouse_documents.ledger_tokens(warehouse_documents.MIN_RECORDS)
            ),
            given.get(
                "max_tokens", warehouse_documents.ledger_tokens(warehouse_documents.MAX_RECORDS)
            ),
        )
        try:
            next(self._ledgers())
        except ValueError as error:
            raise CorpusError(f"The reference corpus cannot be generated: {error}") from error

    def _ledgers(self) -> Iterator[Ledger]:
        from contextcliff_dagster.reference.warehouse_documents import iter_ledgers

        low, high = self._range
        return iter_ledgers(
            self._seed, self._n_documents, low, high, questions_per_level=self._questions
        )

    def fingerprint(self) -> str:
        # A ledger depends on the seed and its index alone: the first few show the generator.
        content = hashlib.sha256()
        for ledger in islice(self._ledgers(), 8):
            content.update(repr((ledger.text, ledger.questions)).encode())
        options = {
            "documents": self._n_documents,
            "seed": self._seed,
            "range": self._range,
            "task": self._task,
            "questions": self._questions,
        }
        return options_hash("reference", options, content.hexdigest())

    def entries(self) -> Iterator[Entry]:
        for number, ledger in enumerate(self._ledgers()):
            identity = hashlib.sha256(ledger.text.encode()).hexdigest()
            document = Document(identity, ledger.text)
            for place, asked in enumerate(ledger.questions):
                if self._task not in (None, asked.task):
                    continue
                metadata = {
                    "level": asked.level,
                    "evidence_position": asked.evidence_position,
                    "inter_evidence_tokens": asked.inter_evidence_tokens,
                    EVIDENCE_SPANS: [list(span) for span in asked.evidence],
                    "domain": "warehouse",
                    "source": "reference ledgers",
                }
                example = Example(
                    example_id=f"{identity[:16]}-{asked.task}-{place}",
                    document_id=identity,
                    question=asked.question,
                    answers=asked.answers,
                    task=asked.task,
                    metadata={k: v for k, v in metadata.items() if v is not None},
                )
                yield Entry(document, example, f"reference ledger {number}")
