"""Samples that an experiment makes itself, in place of a manifest drawn from a corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.sampling.sample_source import PlannedExample


@dataclass(frozen=True)
class Made:
    """One question over one document that was made for it. ``task`` and ``metadata`` as Example."""

    document: str
    question: str
    answers: tuple[str, ...]
    task: str = "generated"
    metadata: Mapping[str, Any] = field(default_factory=dict)


class GeneratedSamples:
    """A source (`inference.requests.call_plan.SampleSource`) whose documents are made by cell.

    ``make`` gives a cell's questions in the order in which they are asked, the same ones each time
    it is called. ``count`` gives a text's tokens.
    """

    def __init__(self, make: Callable[[str], Iterable[Made]], count: Callable[[str], int]) -> None:
        self._make, self._count = make, count
        self._cells: dict[str, list[PlannedExample]] = {}
        self._texts: dict[str, str] = {}

    def planned(self, bin: str, n: int) -> list[PlannedExample]:
        """Return the first ``n`` examples of a cell."""
        if bin not in self._cells:
            planned = []
            for rank, one in enumerate(self._make(bin)):
                document_id = hashlib.sha256(one.document.encode()).hexdigest()
                self._texts[document_id] = one.document
                name, metadata = f"{bin}-{rank:04d}", dict(one.metadata)
                example = Example(name, document_id, one.question, one.answers, one.task, metadata)
                planned.append(PlannedExample(example, self._count(one.document), bin, rank))
            self._cells[bin] = planned
        return self._cells[bin][:n]

    def document_text(self, document_id: str) -> str:
        """Return a document's text; that of an example that was planned."""
        return self._texts[document_id]
