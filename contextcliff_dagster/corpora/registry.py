"""Corpus kinds: their table, the reference corpus, and opening a corpus by its kind and options."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from itertools import islice
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import CorpusError, Document, Example
from contextcliff_dagster.corpora.benchmarks.benchmark_table import BENCHMARKS
from contextcliff_dagster.corpora.corpus import (
    EVIDENCE_SPANS,
    Entry,
    StreamedCorpus,
    one_of,
    options_hash,
    take_options,
)
from contextcliff_dagster.corpora.files import FileCorpus
from contextcliff_dagster.corpora.folder import FolderCorpus
from contextcliff_dagster.corpora.materialize import MixedCorpus
from contextcliff_dagster.corpora.python_source import PythonSourceCorpus
from contextcliff_dagster.corpora.readers.rows import is_url, local_copy

if TYPE_CHECKING:
    from contextcliff_dagster.reference.warehouse_documents import Ledger

MOST_DOCUMENTS = 1_000_000
TASKS = {"lookup": "lookup", "two_hop": "two_hop", "multi_hop_qa": "two_hop"}
"""Accepted task name -> task."""


class ReferenceCorpus(StreamedCorpus):
    """A corpus of ledgers generated from a seed: equal options give equal texts and questions.

    Options: ``documents`` (1,000), ``seed`` (0), ``min_tokens`` and ``max_tokens`` (in tokens of
    the reference tokenizer; by default, all possible lengths), ``task`` (``lookup``, ``two_hop`` or
    its alias ``multi_hop_qa``) or ``tasks`` (both when absent) and ``questions`` (per document and
    task, 1).
    """

    name = "reference"

    def __init__(self, options: Mapping[str, Any]) -> None:
        from contextcliff_dagster.reference import warehouse_documents as ledgers

        types = {"task": str, "tasks": list, "min_tokens": int, "max_tokens": int}
        numbers = {"documents": (1_000, 1), "seed": (0, 0), "questions": (1, 1)}
        values = take_options(self.name, options, types, numbers)
        if values["documents"] > MOST_DOCUMENTS:
            raise CorpusError(
                f"Option 'documents' of the reference corpus must be at most {MOST_DOCUMENTS:,}."
            )
        self._n_documents, self._seed, self._questions = (values[name] for name in numbers)
        tasks = [values["task"]] if "task" in values else values.get("tasks", list(TASKS))
        self._tasks = {TASKS[one_of("task", task, list(TASKS))] for task in tasks}
        self._range = (
            values.get("min_tokens", ledgers.ledger_tokens(ledgers.MIN_RECORDS)),
            values.get("max_tokens", ledgers.ledger_tokens(ledgers.MAX_RECORDS)),
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
        # A ledger depends only on seed and index: hashing the first few covers the generator.
        content = hashlib.sha256()
        for ledger in islice(self._ledgers(), 8):
            content.update(repr((ledger.text, ledger.questions)).encode())
        options = {
            "documents": self._n_documents,
            "seed": self._seed,
            "range": self._range,
            "task": next(iter(self._tasks)) if len(self._tasks) == 1 else None,
            "questions": self._questions,
        }
        return options_hash("reference", options, content.hexdigest())

    def entries(self) -> Iterator[Entry]:
        for number, ledger in enumerate(self._ledgers()):
            identity = hashlib.sha256(ledger.text.encode()).hexdigest()
            document = Document(identity, ledger.text)
            for place, question in enumerate(ledger.questions):
                if question.task not in self._tasks:
                    continue
                metadata = {
                    "level": question.level,
                    "evidence_position": question.evidence_position,
                    "inter_evidence_tokens": question.inter_evidence_tokens,
                    EVIDENCE_SPANS: [list(span) for span in question.evidence],
                    "domain": "warehouse",
                    "source": "reference ledgers",
                }
                example = Example(
                    example_id=f"{identity[:16]}-{question.task}-{place}",
                    document_id=identity,
                    question=question.question,
                    answers=question.answers,
                    task=question.task,
                    metadata={k: v for k, v in metadata.items() if v is not None},
                )
                yield Entry(document, example, f"reference ledger {number}")


ENTRY_POINT_GROUP = "contextcliff.corpora"
"""Entry-point group for other packages' corpora; each maps options to a corpus."""

CORPUS_KINDS: dict[str, Callable[[Mapping[str, Any]], StreamedCorpus]] = {
    "reference": ReferenceCorpus,
    "file": FileCorpus,
    "folder": FolderCorpus,
    "python-source": PythonSourceCorpus,
    **BENCHMARKS,
    "mixed": lambda options: MixedCorpus(options, open_corpus),
}


def open_corpus(kind: str, options: Mapping[str, Any]) -> StreamedCorpus:
    """Open a corpus of this kind; check that it can be read, but do not read it yet.

    A ``path`` that is a URL is downloaded first, unless this was done before.

    Raises:
        CorpusError: there is no such kind, its package cannot be imported, an option is wrong, or
            the source is missing.
    """
    if isinstance(path := options.get("path"), str) and is_url(path):
        options = {**options, "path": str(local_copy(path))}
    if kind in CORPUS_KINDS:
        return CORPUS_KINDS[kind](options)
    installed = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in installed:
        raise CorpusError(
            f"There is no corpus of kind {kind!r}; "
            f"there are {', '.join(sorted({*CORPUS_KINDS, *installed}))}."
        )
    try:
        adapter: Callable[[Mapping[str, Any]], StreamedCorpus] = installed[kind].load()
    except Exception as error:
        raise CorpusError(
            f"Corpus kind {kind!r} ({installed[kind].value}) cannot be imported: {error}; fix or "
            "reinstall its package."
        ) from error
    return adapter(options)
