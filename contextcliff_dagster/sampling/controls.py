"""Controls: the same questions without their document, or over their evidence alone.

- ``no_context``: the prompt has an empty text where the document would be. What the model
  answers then, it knew or guessed.
- ``oracle``: the pieces of evidence are there, in the text's order, a blank line between them.
  Only questions that say where their evidence is can be asked: in characters of the document
  (`EVIDENCE_SPANS`), or as texts that occur in it (a field ``evidence`` of a file of one's own).

A control is an ordinary call of another document by the study's recipe: same engine, ledger, budget
and template. Its key cannot be that of a measured call, unless a document is nothing but that text.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from contextcliff_dagster.corpora.corpus import EVIDENCE_SPANS
from contextcliff_dagster.sampling.sample_source import PlannedExample, SampleSource

Control = Literal["no_context", "oracle"]
CONTROLS: tuple[Control, ...] = ("no_context", "oracle")

BETWEEN = "\n\n"
"""Stands between two pieces of evidence."""


class ControlSource:
    """A `SampleSource` whose documents are the control's texts."""

    def __init__(self, source: SampleSource, control: Control) -> None:
        self._source, self.control = source, control
        self._texts: dict[str, str] = {}
        self._document = lru_cache(maxsize=2)(source.document_text)  # neighbours share theirs

    def planned(self, bin: str, n: int) -> list[PlannedExample]:
        """Those of the bin's first ``n`` examples that can be asked; lengths are the texts' own,
        an oracle's by its share of the document's characters."""
        planned: list[PlannedExample] = []
        for sample in self._source.planned(bin, n):
            text, tokens = "", 0
            if self.control == "oracle":
                metadata = sample.example.metadata
                if EVIDENCE_SPANS not in metadata and "evidence" not in metadata:
                    continue
                document = self._document(sample.example.document_id)
                if not (pieces := evidence_of(metadata, document)):
                    continue
                text = BETWEEN.join(pieces)
                share = len(text) / max(len(document), 1)
                tokens = math.ceil(sample.length_tokens * share) + len(pieces)
            document_id = hashlib.sha256(text.encode()).hexdigest()
            self._texts[document_id] = text
            example = replace(sample.example, document_id=document_id)
            planned.append(PlannedExample(example, tokens, sample.bin, sample.rank))
        return planned

    def document_text(self, document_id: str) -> str:
        """The control's text; that of an example that was planned."""
        return self._texts[document_id]


def evidence_of(metadata: Mapping[str, Any], document: str) -> list[str]:
    """The pieces of evidence in the order of the text; none where any of them is not known.

    Pieces that overlap or touch are one.
    """
    spans = spans_of(metadata, document)
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return [document[start:end] for start, end in joined]


def spans_of(metadata: Mapping[str, Any], document: str) -> list[tuple[int, int]]:
    """Start and end of each piece of evidence that ``metadata`` names, in characters."""
    return _spans(metadata.get(EVIDENCE_SPANS), document) or _found(
        metadata.get("evidence"), document
    )


def _spans(given: Any, document: str) -> list[tuple[int, int]]:
    # Fields of that name in a file of one's own may hold anything.
    spans = []
    for pair in given if isinstance(given, list | tuple) else ():
        match pair:
            case [bool(), _] | [_, bool()]:
                return []
            case [int(start), int(end)] if 0 <= start < end <= len(document):
                spans.append((start, end))
            case _:
                return []
    return spans


def _found(given: Any, document: str) -> list[tuple[int, int]]:
    """Where the given texts first occur in the document; none where one does not."""
    texts: Sequence[Any] = [given] if isinstance(given, str) else given or ()
    if not isinstance(texts, list | tuple):
        return []
    spans = []
    for text in texts:
        at = document.find(text) if isinstance(text, str) and text.strip() else -1
        if at < 0:
            return []
        spans.append((at, at + len(text)))
    return spans
