"""What a solver finds from records alone: the answers that a document allows to one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Record

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


_SOLVERS = {
    "warehouse": "WarehouseSolver",
    "constraints": "ConstraintsSolver",
    "network": "NetworkSolver",
}


def solver_for(records: Sequence[Record], benchmark: BenchmarkName) -> Solver:
    """Return the solver of ``benchmark`` over ``records``.

    Raises:
        KeyError: a record lacks a field of its type.
    """
    module = import_module(f"{__package__}.{benchmark}")
    solver: Solver = getattr(module, _SOLVERS[benchmark])(records)
    return solver


def solve(records: Sequence[Record], benchmark: BenchmarkName, about: About) -> str:
    """Return the only possible answer to the question ``about``.

    Raises:
        ValueError: the records allow no answer, or more than one.
        StudyError: OR-tools is not installed (constraints only).
    """
    ((values, _),) = solver_for(records, benchmark).solve([about])
    if len(values) != 1:
        raise ValueError(f"{len(values) or 'no'} possible answers to {dict(about)!r}: {values}")
    return values[0]
