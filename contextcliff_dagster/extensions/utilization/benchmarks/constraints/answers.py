"""Answers to questions about statements, each with the records that it rests on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.asking import make_question
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Question,
    QuestionKind,
    Record,
)

Cell = tuple[str, str]
"""An entity and one of its attributes."""
Value = str | int


def cells_of(record: Record) -> tuple[Cell, ...]:
    """Return the cells that a statement is about: one, or two."""
    kind = record["type"]
    if kind in ("fact", "neq"):
        return ((record["entity"], record["attr"]),)
    if kind == "impl":
        condition = (record["if_entity"], record["if_attr"])
        return condition, (record["then_entity"], record["then_attr"])
    return (record["e1"], record["a1"]), (record["e2"], record["a2"])


class Statements:
    """The records of a constraints document. ``domains``: attribute -> its values."""

    def __init__(self, records: Sequence[Record], domains: Mapping[str, Sequence[Value]]) -> None:
        self.records, self._domains = records, domains
        self._neqs: dict[Cell, list[int]] = defaultdict(list)
        self._facts: dict[Cell, list[int]] = defaultdict(list)
        for place, record in enumerate(records):
            if record["type"] == "neq":
                self._neqs[cells_of(record)[0]].append(place)
            elif record["type"] == "fact":
                self._facts[(record["attr"], record["value"])].append(place)

    def count_question(self, about: Mapping[str, Any]) -> Question:
        """Return the question of how many facts state a value."""
        evidence = self._facts[(about["attr"], about["value"])]
        most = max(map(len, self._facts.values()))
        return make_question("aggregate", about, len(evidence), evidence, 1, choices=(0, most))

    def value_question(
        self, kind: QuestionKind, about: Mapping[str, Any], evidence: Sequence[int], hops: int
    ) -> Question:
        """Return the question of a value to which ``evidence`` leads.

        Raises:
            ValueError: it leads to no single value.
        """
        target = (about["entity"], about["attr"])
        values = self.possible(evidence, target)
        if len(values) != 1:
            raise ValueError(f"{len(values)} values are possible: {dict(about)!r}")
        margin = min(len(self.possible(evidence, target, missing=place)) - 1 for place in evidence)
        choices = self._domains[about["attr"]]
        (value,) = values
        return make_question(
            kind, about, value, evidence, margin, hops=hops, choices=choices, form="value"
        )

    def possible(
        self, chain: Iterable[int], target: Cell, missing: int | None = None
    ) -> list[Value]:
        """Return the values of ``target`` that the statements of a chain leave.

        A chain of `constraints` is linked with the rest of the document by statements alone that
        exclude nothing, and by those of what a value is not. ``missing``: a record read over.
        """
        read = [self.records[place] for place in chain if place != missing]
        left: dict[Cell, list[Value]] = {}
        for cell in (target, *(cell for record in read for cell in cells_of(record))):
            excluded = {
                self.records[place]["value"]
                for place in self._neqs.get(cell, ())
                if place != missing
            }
            left[cell] = [one for one in self._domains[cell[1]] if one not in excluded]
        before = -1
        while before != (before := sum(map(len, left.values()))):
            for record in read:
                first, *others = cells_of(record)
                if record["type"] == "fact":
                    left[first] = [record["value"]]
                elif record["type"] == "impl" and left[first] == [record["if_value"]]:
                    left[others[0]] = [record["then_value"]]
                elif record["type"] in ("eq", "mut"):
                    same = [one for one in left[first] if one in left[others[0]]]
                    left[first] = left[others[0]] = same
        return left[target]
