"""Statements changed so that they are true of another assignment.

Some cells get another value, and the statements that this makes false are changed. So the document
contradicts nothing, and each record that was changed is false of the assignment before, but for a
few inequalities that make up the number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from contextcliff_dagster.extensions.utilization.benchmarks.asking import Made
from contextcliff_dagster.extensions.utilization.benchmarks.constraints.world import (
    Cell,
    Statements,
    Value,
    cells_of,
    domains_of,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import Benchmark, Record
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws

_TRIES = 40


def change_constraints(draws: Draws, data: Benchmark, count: int, recompute: bool) -> Made:
    """Change ``count`` statements, as many as can be."""
    world = _Changed(draws, data, recompute)
    for unit in draws.shuffled(world.units):
        if len(world.changed) == count:
            break
        world.revalue(unit, count)
    for place in draws.shuffled(range(len(world.records))):
        if len(world.changed) == count:
            break
        world.another_neq(place)
    questions = list(data.questions)
    if recompute:
        statements = Statements(world.records, world.domains)
        questions = [
            statements.count_question(one.about)
            if one.about["ask"] == "facts"
            else statements.value_question(one.kind, one.about, one.evidence, one.hops)
            for one in questions
        ]
    return Made(world.records, questions, {"assignment": world.packed()})


class _Changed:
    """The document while it is changed.

    Attributes:
        units: cells that get another value together: those of a chain that are said to be equal.
        changed: places of records that are not what they were.
    """

    def __init__(self, draws: Draws, data: Benchmark, recompute: bool) -> None:
        self._draws = draws
        self.domains = domains_of(data.parameters)
        self.records: list[Record] = list(data.records)
        self.changed: set[int] = set()
        cells = [
            (f"E-{entity:04d}", attr)
            for entity in range(data.parameters["num_entities"])
            for attr in self.domains
        ]
        digits: str = data.notes["assignment"]
        self.truth: dict[Cell, Value] = {
            cell: self.domains[cell[1]][int(digit)]
            for cell, digit in zip(cells, digits, strict=True)
        }
        self._of_cell: dict[Cell, set[int]] = defaultdict(set)
        self._written = {tuple(record.values()) for record in self.records}
        for place, record in enumerate(self.records):
            for cell in cells_of(record):
                self._of_cell[cell].add(place)
        chains = [one for one in data.questions if one.about["ask"] == "value"]
        self._needed = {place for one in chains for place in one.evidence}
        self._closed = {cell for place in self._needed for cell in cells_of(self.records[place])}
        self._counted = {
            (one.about["attr"], one.about["value"])
            for one in data.questions
            if one.about["ask"] == "facts" and not recompute
        }
        self._equal: dict[tuple[str, Value], list[Cell]] = defaultdict(list)
        for cell in self._of_cell:
            if cell not in self._closed:
                self._equal[cell[1], self.truth[cell]].append(cell)
        self.units: list[tuple[Cell, ...]] = [
            (cell,) for cell in sorted(self._of_cell) if cell not in self._closed
        ]
        if recompute:
            for one in chains:
                self.units += self._classes(one.evidence)

    def _classes(self, evidence: Iterable[int]) -> list[tuple[Cell, ...]]:
        """The cells of a chain, those of the same value in one class."""
        records = [self.records[place] for place in evidence]
        classes = {cell: {cell} for record in records for cell in cells_of(record)}
        for record in records:
            if record["type"] in ("eq", "mut"):
                one, other = cells_of(record)
                both = classes[one] | classes[other]
                classes.update(dict.fromkeys(both, both))
        return sorted({tuple(sorted(some)) for some in classes.values()})

    def revalue(self, unit: Sequence[Cell], most: int) -> None:
        """Give the cells another value, unless more than ``most`` records are then changed."""
        before = self.truth[unit[0]]
        options = [value for value in self.domains[unit[0][1]] if value != before]
        value = self._draws.pick(options)
        if any((cell[1], one) in self._counted for cell in unit for one in (value, before)):
            return None
        self.truth.update(dict.fromkeys(unit, value))
        places = {place for cell in unit for place in self._of_cell[cell]}
        changes: dict[int, Record] = {}
        for place in sorted(places):
            record = self._made_true(place, set(unit), before)
            if record is None:
                break
            if record != self.records[place]:
                changes[place] = record
        else:
            keys = {tuple(record.values()) for record in changes.values()}
            if (
                len(self.changed | changes.keys()) <= most
                and len(keys) == len(changes)
                and not keys & self._written
            ):
                return self._apply(changes, unit, before)
        self.truth.update(dict.fromkeys(unit, before))
        return None

    def _apply(self, changes: dict[int, Record], unit: Sequence[Cell], before: Value) -> None:
        for place, record in changes.items():
            for cell in cells_of(self.records[place]):
                self._of_cell[cell].discard(place)
            for cell in cells_of(record):
                self._of_cell[cell].add(place)
            self.records[place] = record
            self._written.add(tuple(record.values()))
            self.changed.add(place)
        for cell in unit:
            if cell not in self._closed:
                self._equal[cell[1], before].remove(cell)
                self._equal[cell[1], self.truth[cell]].append(cell)

    def _made_true(self, place: int, unit: set[Cell], before: Value) -> Record | None:
        """A record of the same type that is true now; None where there is none."""
        record = self.records[place]
        first, *others = cells_of(record)
        value = self.truth[first]
        if record["type"] == "fact":
            return {**record, "value": value}
        if record["type"] == "neq":
            if record["value"] != value:
                return record
            # Where all that a value is not is stated, only the one before is left to be stated.
            return {**record, "value": before if place in self._needed else self._wrong(first)}
        then = others[0]
        if record["type"] != "impl":
            return record if value == self.truth[then] else self._shared(record, first, then, unit)
        if place in self._needed:
            return {**record, "if_value": value, "then_value": self.truth[then]}
        if record["if_value"] != value:
            return record
        if then in self._closed:  # it must not say anything about a value that is asked for
            return {**record, "if_value": self._wrong(first)}
        return {**record, "then_value": self.truth[then]}

    def _shared(self, record: Record, one: Cell, other: Cell, unit: set[Cell]) -> Record | None:
        """The same statement with another cell that has the value now."""
        near, away = (one, other) if one in unit else (other, one)
        cells = self._equal.get((away[1], self.truth[near]), [])
        for _ in range(_TRIES if cells else 0):
            cell = self._draws.pick(cells)
            if cell[0] != near[0] and cell not in unit:
                first, second = (cell, near) if away == one else (near, cell)
                return {
                    **record,
                    "e1": first[0],
                    "a1": first[1],
                    "e2": second[0],
                    "a2": second[1],
                }
        return None

    def _wrong(self, cell: Cell) -> Value:
        options = [one for one in self.domains[cell[1]] if one != self.truth[cell]]
        return self._draws.pick(options)

    def another_neq(self, place: int) -> None:
        """Change an inequality to another one."""
        record = self.records[place]
        if record["type"] == "neq" and place not in self.changed:
            (cell,) = cells_of(record)
            other = {**record, "value": self._wrong(cell)}
            if cell not in self._closed and tuple(other.values()) not in self._written:
                self._apply({place: other}, (), record["value"])

    def packed(self) -> str:
        """As `Benchmark.notes` hold it."""
        return "".join(
            str(self.domains[attr].index(value)) for (_, attr), value in self.truth.items()
        )
