"""What a document says once one of its records is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.data import Benchmark, Record

Answer = Callable[[Sequence[Record], dict[str, Any]], Any]
"""The answer that records give to a question, None for none; written for the tests alone."""


def require_exact_evidence(data: Benchmark, answer: Answer) -> None:
    """Take each record away: the answer changes with those that matter, and with no other.

    The least change of a number is the margin, where each leaves an answer.
    """
    for one in data.questions:
        about = dict(one.about)
        right = answer(data.records, about)
        assert str(right) == one.answer, one
        changes: list[Any] = []
        for place in range(len(data.records)):
            other = answer([*data.records[:place], *data.records[place + 1 :]], about)
            assert (other != right) == (place in one.evidence), (one, place, right, other)
            if place in one.evidence and one.form == "number":
                changes.append(abs(other - right) if other is not None else right)
        if changes and one.kind != "lookup":
            assert min(changes) == one.margin, one
