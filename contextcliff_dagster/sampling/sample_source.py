"""What asking models needs of a sample: the examples of a bin in their order, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from contextcliff_dagster.contracts import Example


class PlannedSample(Protocol):
    """One example with its place in the sample (`manifest.PlannedExample`)."""

    @property
    def example(self) -> Example: ...
    @property
    def length_tokens(self) -> int: ...
    @property
    def bin(self) -> str: ...
    @property
    def rank(self) -> int: ...


class SampleSource(Protocol):
    """Examples to ask about, and the texts of their documents (`manifest.Manifest`)."""

    def planned(self, bin: str, n: int) -> Sequence[PlannedSample]: ...
    def document_text(self, document_id: str) -> str: ...
