"""What is true of the entities of a constraints document, and statements about it.

Answers to questions about statements, each with the records that it rests on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.asking import RetryError, make_question
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Question,
    QuestionKind,
    Record,
)
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws
from contextcliff_dagster.extensions.utilization.benchmarks.schema import DOMAINS, make_record

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


ATTRIBUTES = tuple(DOMAINS)
PARTNER = {
    one: other
    for one in ATTRIBUTES
    for other in ATTRIBUTES
    if one != other and DOMAINS[one] == DOMAINS[other]
}
"""The attribute with the same domain."""
_TRIES = 400


def num_facts(parameters: Mapping[str, int]) -> int:
    """Return the number of facts: of every fourth attribute of an entity there is one."""
    every = parameters["num_entities"] * parameters["num_attributes"]
    return parameters.get("num_facts", every // 4)


def domains_of(parameters: Mapping[str, int]) -> Mapping[str, Sequence[Value]]:
    """Return the attributes and their values.

    Raises:
        ValueError: there are not so many.
    """
    attributes, size = parameters["num_attributes"], parameters["attribute_domains"]
    if not (2 <= attributes <= len(ATTRIBUTES) and 3 <= size <= len(DOMAINS[ATTRIBUTES[0]])):
        raise ValueError(
            f"{attributes} attributes with {size} values: write 2 to {len(ATTRIBUTES)} attributes, "
            f"3 to {len(DOMAINS[ATTRIBUTES[0]])} values"
        )
    return {attr: DOMAINS[attr][:size] for attr in ATTRIBUTES[:attributes]}


class World:
    """A drawn assignment, and what is stated about it so far.

    Attributes:
        truth: the value of each cell; statements are true of it.
        left: type of statement -> how many are still to be written.
        closed: cells of which nothing more is stated but what a plan says.
        counted: values of an attribute of which nothing more is stated directly.
    """

    def __init__(self, draws: Draws, parameters: Mapping[str, int]) -> None:
        self.draws = draws
        self.domains = domains_of(parameters)
        self.attributes = tuple(self.domains)
        self.entities = [f"E-{one:04d}" for one in range(parameters["num_entities"])]
        self.truth: dict[Cell, Value] = {
            (entity, attr): draws.pick(values)
            for entity in self.entities
            for attr, values in self.domains.items()
        }
        types = enumerate(("neq", "mut", "eq", "impl"))
        self.left = {name: (parameters["num_constraints"] + part) // 4 for part, name in types}
        self.left["fact"] = num_facts(parameters)
        self.size = sum(self.left.values())
        self.closed: set[Cell] = set()
        self.counted: set[tuple[str, Value]] = set()
        self._written: set[tuple[object, ...]] = set()

    def draw_cell(self, attr: str | None = None, not_of: str | None = None) -> Cell:
        """Return a cell that is not closed.

        Raises:
            RetryError: there is hardly one.
        """
        pick = self.draws.pick
        for _ in range(_TRIES):
            cell = (pick(self.entities), attr or pick(self.attributes))
            if cell not in self.closed and cell[0] != not_of:
                return cell
        raise RetryError

    def wrong(self, cell: Cell) -> Value:
        """Return a value that ``cell`` does not have."""
        values = self.domains[cell[1]]
        return self.draws.pick([one for one in values if one != self.truth[cell]])

    def write(self, name: str, **values: object) -> Record | None:
        """Return a statement; None where it is written already, or none of its type is left."""
        record = make_record("constraints", name, **values)
        key = tuple(record.values())
        if key in self._written or not self.left[name]:
            return None
        self._written.add(key)
        self.left[name] -= 1
        return record

    def fact(self, cell: Cell) -> Record | None:
        """Write the value of ``cell``."""
        return self.write("fact", entity=cell[0], attr=cell[1], value=self.truth[cell])

    def neq(self, cell: Cell, value: Value) -> Record | None:
        """Write that ``cell`` has not this value."""
        return self.write("neq", entity=cell[0], attr=cell[1], value=value)

    def impl(self, cell: Cell, value: Value, then: Cell, then_value: Value) -> Record | None:
        """Write that ``then`` has its value if ``cell`` has this one."""
        if cell == then:
            return None
        return self.write(
            "impl",
            if_entity=cell[0],
            if_attr=cell[1],
            if_value=value,
            then_entity=then[0],
            then_attr=then[1],
            then_value=then_value,
        )

    def pair(self, one: Cell, other: Cell) -> Record | None:
        """Write that two cells have the same value: eq of one attribute, mut of two."""
        if self.draws.below(2):
            one, other = other, one
        name = "eq" if one[1] == other[1] else "mut"
        return self.write(name, e1=one[0], a1=one[1], e2=other[0], a2=other[1])


def written(record: Record | None) -> Record:
    """Return ``record``.

    Raises:
        RetryError: it is None.
    """
    if record is None:
        raise RetryError
    return record
