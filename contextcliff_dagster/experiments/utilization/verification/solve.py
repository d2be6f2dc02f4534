"""Answers from records alone: the solver of each benchmark, by its name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from contextcliff_dagster.experiments.utilization.benchmarks.data import BenchmarkName, Record
from contextcliff_dagster.experiments.utilization.verification.solution import About, Solver

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
