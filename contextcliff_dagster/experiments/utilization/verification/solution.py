"""What a solver finds: the answers that a document allows to one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

About = Mapping[str, Any]
"""A question for programs: ``ask`` and its arguments, see `benchmarks.schema.ASKS`."""


class Solution(NamedTuple):
    """The answers that are possible.

    ``values``: none where the document does not answer the question, one where it does, two where
    more than one answer is possible (no more are looked for). ``method``: how they were found.
    """

    values: tuple[str, ...]
    method: str


class Solver(Protocol):
    """The records of one document, ready for questions."""

    def faults(self) -> list[str]:
        """Return why the records are no valid document, a phrase each; empty for a valid one."""
        ...

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question.

        Raises:
            ValueError: a question asks for what the benchmark does not have.
        """
        ...


def unknown_ask(benchmark: str, about: About) -> ValueError:
    """The error for a question that a benchmark does not have."""
    return ValueError(f"no question of the {benchmark} benchmark: {dict(about)!r}")
