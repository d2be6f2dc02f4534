"""Controls: the same questions without their document, or over their evidence alone.

- ``no_context``: the prompt has an empty text where the document would stand. What the model
  answers then it knew, or guessed.
- ``oracle``: the pieces of evidence stand there, in the text's order, a blank line between them.
  Only questions that say where their evidence is can be asked: in characters of the document
  (`EVIDENCE_SPANS`), or as texts that stand in it (a field ``evidence`` of somebody's own file).

A control is an ordinary call of another document by the study's recipe: same engine, ledger, budget
and template. Its key cannot be that of a measured call, unless a document is nothing but that text.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.corpora.corpus import EVIDENCE_SPANS

if TYPE_CHECKING:
    from contextcliff_dagster.contracts import Example
    from contextcliff_dagster.sampling.sample_source import PlannedSample, SampleSource

Control = Literal["no_context", "oracle"]
NO_CONTEXT: Control = "no_context"
ORACLE: Control = "oracle"
CONTROLS: tuple[Control, ...] = (NO_CONTEXT, ORACLE)

BETWEEN = "\n\n"
"""Stands between two pieces of evidence."""


@dataclass(frozen=True, slots=True)
class ControlSample:
    """A `PlannedSample`: an example with the control's text for its document."""

    example: Example
    length_tokens: int
    bin: str
    rank: int


class ControlSource:
    """A `SampleSource` whose documents are the control's texts."""

    def __init__(self, source: SampleSource, control: Control) -> None:
        self._source, self.control = source, control
        self._texts: dict[str, str] = {}
        self._document = lru_cache(maxsize=2)(source.document_text)  # neighbours share theirs

    def planned(self, bin: str, n: int) -> list[PlannedSample]:
        """Those of the bin's first ``n`` examples that can be asked; lengths are the texts' own,
        an oracle's by its share of the document's characters."""
        found: list[PlannedSample] = []
        for sample in self._source.planned(bin, n):
            made = self._text(sample)
            if made is None:
                continue
            text, tokens = made
            document_id = hashlib.sha256(text.encode()).hexdigest()
            self._texts[document_id] = text
            example = replace(sample.example, document_id=document_id)
            found.append(ControlSample(example, tokens, sample.bin, sample.rank))
        return found

    def document_text(self, document_id: str) -> str:
        """The control's text; that of an example that was planned."""
        return self._texts[document_id]

    def _text(self, sample: PlannedSample) -> tuple[str, int] | None:
        if self.control == NO_CONTEXT:
            return "", 0
        if not _says_evidence(sample.example.metadata):
            return None
        document = self._document(sample.example.document_id)
        pieces = evidence_of(sample.example.metadata, document)
        if not pieces:
            return None
        text = BETWEEN.join(pieces)
        share = len(text) / max(len(document), 1)
        return text, math.ceil(sample.length_tokens * share) + len(pieces)


def evidence_of(metadata: Mapping[str, Any], document: str) -> list[str]:
    """The pieces of evidence in the order of the text; none where any of them is not known.

    Pieces that overlap or touch are one.
    """
    spans = _spans(metadata.get(EVIDENCE_SPANS), document) or _found(
        metadata.get("evidence"), document
    )
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return [document[start:end] for start, end in joined]


def _says_evidence(metadata: Mapping[str, Any]) -> bool:
    return EVIDENCE_SPANS in metadata or "evidence" in metadata


def _spans(given: Any, document: str) -> list[tuple[int, int]]:
    # Fields of that name in a file of somebody's own may hold anything.
    if not isinstance(given, list | tuple) or not given:
        return []
    spans = []
    for pair in given:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            return []
        start, end = pair
        if type(start) is not int or type(end) is not int:
            return []
        if not 0 <= start < end <= len(document):
            return []
        spans.append((start, end))
    return spans


def _found(given: Any, document: str) -> list[tuple[int, int]]:
    """Where the named texts first stand in the document; none where one does not."""
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
