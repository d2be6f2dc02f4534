"""What asking models needs of a sample: the examples of a bin in their order, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from contextcliff_dagster.contracts import Example


@dataclass(frozen=True, slots=True)
class PlannedExample:
    """One example of the sample with its place in it."""

    example: Example
    length_tokens: int
    bin: str
    rank: int


class SampleSource(Protocol):
    """Examples to ask about, and the texts of their documents (`manifest.Manifest`)."""

    def planned(self, bin: str, n: int) -> Sequence[PlannedExample]: ...
    def document_text(self, document_id: str) -> str: ...
