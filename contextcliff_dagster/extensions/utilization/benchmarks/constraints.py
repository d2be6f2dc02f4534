"""Constraints benchmark: attribute values of entities, implied by statements across the document.

This module draws the assignment and its statements, answers questions, and changes statements.

Differences from the design document: all ten attributes have a domain; each requested value is
unique, because exactly one chain of statements leads to it from a fact; the four constraint types
are equally frequent, and their total is exact.

A change gives some cells another value and rewrites the statements that become false. The document
stays consistent. Each changed record is false under the old assignment, except for a few
inequalities that fill up the requested number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    Asked,
    Made,
    in_order,
    longest_chain,
    make_question,
    needed_records,
    require_not_last,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    DOMAINS,
    Benchmark,
    Draws,
    Evidence,
    Question,
    QuestionKind,
    Record,
    RetryError,
)

Cell = tuple[str, str]
"""An entity and one of its attributes."""
Value = str | int


def cells_of(record: Record) -> tuple[Cell, ...]:
    """Return the one or two cells that a statement mentions."""
    kind = record["type"]
    if kind in ("fact", "neq"):
        return ((record["entity"], record["attr"]),)
    if kind == "impl":
        condition = (record["if_entity"], record["if_attr"])
        return condition, (record["then_entity"], record["then_attr"])
    return (record["e1"], record["a1"]), (record["e2"], record["a2"])


class Statements:
    """Records of a constraints document; ``domains`` maps each attribute to its values."""

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
        """Return the question how many facts state a value."""
        evidence = self._facts[(about["attr"], about["value"])]
        most = max(map(len, self._facts.values()))
        return make_question("aggregate", about, len(evidence), evidence, 1, choices=(0, most))

    def value_question(
        self, kind: QuestionKind, about: Mapping[str, Any], evidence: Sequence[int], hops: int
    ) -> Question:
        """Return a question on the one value that ``evidence`` implies; else raise ValueError."""
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
        """Return the values of ``target`` that the statements of a chain still allow.

        Only the chain and the inequalities are read: other statements that mention its cells
        exclude no value. ``missing`` is the index of a record to ignore.
        """
        statements = [self.records[place] for place in chain if place != missing]
        domains: dict[Cell, list[Value]] = {}
        for cell in (target, *(cell for record in statements for cell in cells_of(record))):
            exclusions = {
                self.records[place]["value"]
                for place in self._neqs.get(cell, ())
                if place != missing
            }
            domains[cell] = [value for value in self._domains[cell[1]] if value not in exclusions]
        previous_size = -1
        while previous_size != (previous_size := sum(map(len, domains.values()))):
            for record in statements:
                first, *other_cells = cells_of(record)
                if record["type"] == "fact":
                    domains[first] = [record["value"]]
                elif record["type"] == "impl" and domains[first] == [record["if_value"]]:
                    domains[other_cells[0]] = [record["then_value"]]
                elif record["type"] in ("eq", "mut"):
                    common = [value for value in domains[first] if value in domains[other_cells[0]]]
                    domains[first] = domains[other_cells[0]] = common
        return domains[target]


ATTRIBUTES = tuple(DOMAINS)
PARTNER = {
    attribute: partner
    for attribute in ATTRIBUTES
    for partner in ATTRIBUTES
    if attribute != partner and DOMAINS[attribute] == DOMAINS[partner]
}
"""Attribute -> the other attribute with the same domain."""
_TRIES = 400


def num_facts(parameters: Mapping[str, int]) -> int:
    """Return the number of facts, by default a quarter of all entity-attribute pairs."""
    pairs = parameters["num_entities"] * parameters["num_attributes"]
    return parameters.get("num_facts", pairs // 4)


def domains_of(parameters: Mapping[str, int]) -> Mapping[str, Sequence[Value]]:
    """Return each attribute with its values; raise ValueError if a number is out of range."""
    attributes, size = parameters["num_attributes"], parameters["attribute_domains"]
    if not (2 <= attributes <= len(ATTRIBUTES) and 3 <= size <= len(DOMAINS[ATTRIBUTES[0]])):
        raise ValueError(
            f"{attributes} attributes with {size} values each are out of range; use 2 to "
            f"{len(ATTRIBUTES)} attributes and 3 to {len(DOMAINS[ATTRIBUTES[0]])} values"
        )
    return {attr: DOMAINS[attr][:size] for attr in ATTRIBUTES[:attributes]}


class _Assignment:
    """The value of each cell, ``truth``; every statement of the document is true of it."""

    def __init__(self, draws: Draws, domains: Mapping[str, Sequence[Value]]) -> None:
        self.draws, self.domains = draws, domains
        self.truth: dict[Cell, Value] = {}

    def wrong(self, cell: Cell) -> Value:
        """Return a random value other than the true one of ``cell``."""
        values = self.domains[cell[1]]
        return self.draws.pick([value for value in values if value != self.truth[cell]])

    def packed(self) -> str:
        """Return all values, entity by entity, as one digit each: the index in the domain."""
        return "".join(
            str(self.domains[attr].index(value)) for (_, attr), value in self.truth.items()
        )


class World(_Assignment):
    """A drawn assignment and the statements written about it so far.

    Attributes:
        left: statement type -> number of statements still to write.
        closed: cells that random statements must not mention; only planned ones do.
        counted: attribute-value pairs that no further fact may state.
    """

    def __init__(self, draws: Draws, parameters: Mapping[str, int]) -> None:
        super().__init__(draws, domains_of(parameters))
        self.attributes = tuple(self.domains)
        self.entities = [f"E-{number:04d}" for number in range(parameters["num_entities"])]
        self.truth = {
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
        """Return a random cell that is not closed; raise RetryError after `_TRIES` attempts."""
        pick = self.draws.pick
        for _ in range(_TRIES):
            cell = (pick(self.entities), attr or pick(self.attributes))
            if cell not in self.closed and cell[0] != not_of:
                return cell
        raise RetryError

    def write(self, name: str, **values: object) -> Record | None:
        """Return a statement; None if it is already written or its type is used up."""
        record = {"type": name, **values}
        key = tuple(record.values())
        if key in self._written or not self.left[name]:
            return None
        self._written.add(key)
        self.left[name] -= 1
        return record

    def fact(self, cell: Cell) -> Record | None:
        """Return the fact that states the value of ``cell``, or None as `write` does."""
        return self.write("fact", entity=cell[0], attr=cell[1], value=self.truth[cell])

    def neq(self, cell: Cell, value: Value) -> Record | None:
        """Return the statement that ``cell`` does not have ``value``, or None as `write` does."""
        return self.write("neq", entity=cell[0], attr=cell[1], value=value)

    def impl(self, cell: Cell, value: Value, then: Cell, then_value: Value) -> Record | None:
        """Return "if ``cell`` is ``value``, ``then`` is ``then_value``"; None as `write` does."""
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
        """Return that two cells are equal: eq within an attribute, mut across two; else None."""
        if self.draws.below(2):
            one, other = other, one
        name = "eq" if one[1] == other[1] else "mut"
        return self.write(name, e1=one[0], a1=one[1], e2=other[0], a2=other[1])


def written(record: Record | None) -> Record:
    """Return ``record`` if it was written; else raise RetryError."""
    if record is None:
        raise RetryError
    return record


_NEQ_STARTS_FROM = 40
"""Fewest unwritten inequalities for a chain to start by excluding all other values."""
_MOST_DECOYS = 4


class _Chain(NamedTuple):
    target: Cell
    hops: int
    cells: list[Cell]
    records: list[Record]


def make_constraints(
    draws: Draws, parameters: Mapping[str, int], evidence: Evidence, asked: Sequence[Asked]
) -> Made:
    """Draw an assignment, statements about it, and questions.

    Raise RetryError at a dead end, ValueError for a parameter out of range.
    """
    world = World(draws, parameters)
    lengths = [question.hops for question in asked if question.kind == "chain"]
    links = (world.left["eq"] + world.left["mut"] + world.left["impl"]) * 3 // 4
    lengths = lengths[: min(links, max(1, world.left["fact"] // 3))]
    counts = [question.luck for question in asked if question.kind == "aggregate"]
    counts = counts[: max(1, world.left["fact"] - len(asked))]
    lookups = len(asked) - len(lengths) - len(counts)
    if len(asked) + len(counts) > world.left["fact"]:
        raise RetryError
    chains = []
    for number, hops in enumerate(lengths):
        hops = longest_chain(hops, 1 + links // (len(lengths) - number))
        chains.append(_chain(world, hops, evidence))
        links -= hops - 1
    values: dict[tuple[str, Value], list[Record]] = {}
    other_records: list[Record] = []
    cells_stated: set[Cell] = set()
    for number, luck in enumerate(counts):
        room = world.left["fact"] - lookups
        limit = room // (len(counts) - number)
        need = needed_records(world.size, evidence, parameters, limit)
        # Else the answer, a count, would follow from the size alone.
        need = max(2, min(limit, need + round((luck - 0.5) * max(4, need * 0.6))))
        spare = (room - need - 2 * (len(counts) - number - 1)) // 3
        value, facts, decoy_facts = _count(world, chains, need, spare, cells_stated)
        values[value] = facts
        other_records += decoy_facts
    looked_up = []
    for _ in range(lookups):
        cell = _draw_uncounted(world)
        world.closed.add(cell)
        looked_up.append((cell, written(world.fact(cell))))
    world.closed -= cells_stated
    other_records += _decoys(world, chains)
    other_records += _fill(world)
    groups = [chain.records for chain in chains] + list(values.values())
    groups += [[record] for _, record in looked_up]
    records = _placed(draws, groups, other_records)
    questions = _questions(world, records, chains, list(values), looked_up)
    require_not_last(records, {**questions, "lookup": ()})
    return Made(records, in_order(asked, questions), {"assignment": world.packed()})


def _chain(world: World, hops: int, evidence: Evidence) -> _Chain:
    """Write a chain of ``hops`` steps from a stated value to a target; every step is needed."""
    cell = world.draw_cell()
    world.closed.add(cell)
    negated = evidence == "growing" and world.left["neq"] >= _NEQ_STARTS_FROM
    if negated and world.draws.below(4) == 0:
        wrong = [value for value in world.domains[cell[1]] if value != world.truth[cell]]
        records = [written(world.neq(cell, value)) for value in world.draws.shuffled(wrong)]
    else:
        records = [written(world.fact(cell))]
    cells = [cell]
    for _ in range(hops - 1):
        types = [name for name in ("eq", "mut", "impl") if world.left[name]]
        if PARTNER[cell[1]] not in world.domains and "mut" in types:
            types.remove("mut")
        name = world.draws.pick(types)
        if name == "impl":
            next_cell = world.draw_cell()
            record = world.impl(cell, world.truth[cell], next_cell, world.truth[next_cell])
        else:
            attr = cell[1] if name == "eq" else PARTNER[cell[1]]
            next_cell = world.draw_cell(attr, not_of=cell[0])
            world.truth[next_cell] = world.truth[cell]
            record = world.pair(cell, next_cell)
        world.closed.add(next_cell)
        cells.append(next_cell)
        records.append(written(record))
        cell = next_cell
    return _Chain(cell, hops, cells, records)


def _count(
    world: World, chains: Sequence[_Chain], needed: int, spare: int, stated: set[Cell]
) -> tuple[tuple[str, Value], list[Record], list[Record]]:
    """Write ``needed`` facts of one value and at most ``spare`` facts each of two other values."""
    attr = world.draws.pick(world.attributes)
    started = {(chain.cells[0][1], world.truth[chain.cells[0]]) for chain in chains}
    free_cells = world.draws.shuffled(
        [(entity, attr) for entity in world.entities if (entity, attr) not in world.closed]
    )
    values = [
        value
        for value in world.draws.shuffled(world.domains[attr])
        if (attr, value) not in started | world.counted
    ]
    if not values:
        raise RetryError
    counts = [needed]
    for _ in values[1:3]:
        decoy_count = max(1, needed + world.draws.between(-needed // 3, needed // 3))
        counts.append(decoy_count if decoy_count <= spare else 0)
    groups: list[list[Record]] = []
    for value, count in zip(values, counts, strict=False):
        if len(free_cells) < count:
            raise RetryError
        cells, free_cells = free_cells[:count], free_cells[count:]
        world.truth.update(dict.fromkeys(cells, value))
        world.closed.update(cells)
        stated.update(cells)
        groups.append([written(world.fact(cell)) for cell in cells])
    world.counted.add((attr, values[0]))
    return (attr, values[0]), groups[0], [record for group in groups[1:] for record in group]


def _draw_uncounted(world: World) -> Cell:
    for _ in range(_TRIES):
        cell = world.draw_cell()
        if (cell[1], world.truth[cell]) not in world.counted:
            return cell
    raise RetryError


def _decoys(world: World, chains: Sequence[_Chain]) -> list[Record]:
    """Return statements about the chains' cells that exclude at most one value of a target."""
    decoys = []
    for chain in chains:
        for _ in range(min(_MOST_DECOYS, world.left["impl"] // (4 * len(chains)))):
            cell, near = world.draw_cell(), world.draws.pick(chain.cells)
            if world.draws.below(2):  # leads on to another cell
                decoys.append(world.impl(near, world.truth[near], cell, world.truth[cell]))
            else:  # would lead here to another value; its condition is false
                decoys.append(world.impl(cell, world.wrong(cell), near, world.wrong(near)))
        if world.left["neq"] >= 4 * len(chains) and world.draws.below(2):
            decoys.append(world.neq(chain.target, world.wrong(chain.target)))
    return [record for record in decoys if record is not None]


def _fill(world: World) -> list[Record]:
    """Write true statements about open cells until every type has its number."""
    statements: list[Record] = []
    cells_by_value: dict[tuple[str, Value], list[Cell]] = defaultdict(list)
    for cell, value in world.truth.items():
        if cell not in world.closed:
            cells_by_value[cell[1], value].append(cell)
    for name in ("fact", "neq", "eq", "mut", "impl"):
        failures = 0
        while world.left[name]:
            record = _statement(world, name, cells_by_value)
            if record is not None:
                statements.append(record)
            elif (failures := failures + 1) > _TRIES + len(statements):
                raise RetryError
    return statements


def _statement(
    world: World, name: str, cells_by_value: Mapping[tuple[str, Value], Sequence[Cell]]
) -> Record | None:
    cell = world.draw_cell()
    value = world.truth[cell]
    if name == "fact":
        return None if (cell[1], value) in world.counted else world.fact(cell)
    if name == "neq":
        return world.neq(cell, world.wrong(cell))
    if name == "impl":
        other = world.draw_cell()
        if world.draws.below(2):
            return world.impl(cell, value, other, world.truth[other])
        return world.impl(cell, world.wrong(cell), other, world.draws.pick(world.domains[other[1]]))
    cells = cells_by_value.get((cell[1] if name == "eq" else PARTNER[cell[1]], value))
    if not cells:
        return None
    other = world.draws.pick(cells)
    return None if other[0] == cell[0] else world.pair(cell, other)


def _placed(
    draws: Draws, groups: Sequence[Sequence[Record]], others: Sequence[Record]
) -> list[Record]:
    """Return all statements in random order, with each group spread over the whole document."""
    size = sum(map(len, groups)) + len(others)
    taken_places: set[int] = set()
    records: dict[int, Record] = {}
    for group in sorted(groups, key=len, reverse=True):
        places = draws.spread(taken_places, len(group), 0, size)
        records.update(zip(places, draws.shuffled(group), strict=True))
    remaining = iter(draws.shuffled(others))
    return [records[place] if place in records else next(remaining) for place in range(size)]


def _questions(
    world: World,
    records: Sequence[Record],
    chains: Sequence[_Chain],
    counted: Sequence[tuple[str, Value]],
    looked_up: Sequence[tuple[Cell, Record]],
) -> dict[str, list[Question]]:
    statements = Statements(records, world.domains)
    place = {id(record): number for number, record in enumerate(records)}
    questions: dict[str, list[Question]] = {"lookup": [], "aggregate": [], "chain": []}
    for (entity, attr), record in looked_up:
        about = {"ask": "value", "entity": entity, "attr": attr}
        question = statements.value_question("lookup", about, [place[id(record)]], 1)
        questions["lookup"].append(question)
    for attr, value in counted:
        questions["aggregate"].append(
            statements.count_question({"ask": "facts", "attr": attr, "value": value})
        )
    for chain in chains:
        about = {"ask": "value", "entity": chain.target[0], "attr": chain.target[1]}
        evidence = [place[id(record)] for record in chain.records]
        questions["chain"].append(statements.value_question("chain", about, evidence, chain.hops))
    return questions


_CORRUPTION_TRIES = 40


def change_constraints(draws: Draws, data: Benchmark, count: int, recompute: bool) -> Made:
    """Change ``count`` statements, or as many as possible."""
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
            statements.count_question(old.about)
            if old.about["ask"] == "facts"
            else statements.value_question(old.kind, old.about, old.evidence, old.hops)
            for old in questions
        ]
    return Made(world.records, questions, {"assignment": world.packed()})


class _Changed(_Assignment):
    """A document during the change of its statements.

    Attributes:
        units: groups of cells that must change together, because a chain states they are equal.
        changed: indices of the records changed so far.
    """

    def __init__(self, draws: Draws, data: Benchmark, recompute: bool) -> None:
        super().__init__(draws, domains_of(data.parameters))
        self.records: list[Record] = list(data.records)
        self.changed: set[int] = set()
        cells = [
            (f"E-{entity:04d}", attr)
            for entity in range(data.parameters["num_entities"])
            for attr in self.domains
        ]
        digits: str = data.notes["assignment"]
        self.truth = {
            cell: self.domains[cell[1]][int(digit)]
            for cell, digit in zip(cells, digits, strict=True)
        }
        self._of_cell: dict[Cell, set[int]] = defaultdict(set)
        self._written = {tuple(record.values()) for record in self.records}
        for place, record in enumerate(self.records):
            for cell in cells_of(record):
                self._of_cell[cell].add(place)
        chains = [question for question in data.questions if question.about["ask"] == "value"]
        self._needed = {place for chain in chains for place in chain.evidence}
        self._closed = {cell for place in self._needed for cell in cells_of(self.records[place])}
        self._counted = {
            (question.about["attr"], question.about["value"])
            for question in data.questions
            if question.about["ask"] == "facts" and not recompute
        }
        open_cells = [cell for cell in self._of_cell if cell not in self._closed]
        self._equal: dict[tuple[str, Value], list[Cell]] = defaultdict(list)
        for cell in open_cells:
            self._equal[cell[1], self.truth[cell]].append(cell)
        self.units: list[tuple[Cell, ...]] = [(cell,) for cell in sorted(open_cells)]
        if recompute:
            for chain in chains:
                self.units += self._classes(chain.evidence)

    def _classes(self, evidence: Iterable[int]) -> list[tuple[Cell, ...]]:
        """Return the cells of a chain, grouped by stated equality."""
        records = [self.records[place] for place in evidence]
        classes = {cell: {cell} for record in records for cell in cells_of(record)}
        for record in records:
            if record["type"] in ("eq", "mut"):
                left, right = cells_of(record)
                union = classes[left] | classes[right]
                classes.update(dict.fromkeys(union, union))
        return sorted({tuple(sorted(cells)) for cells in classes.values()})

    def revalue(self, unit: Sequence[Cell], most: int) -> None:
        """Give the cells another value unless that changes more than ``most`` records in total."""
        before = self.truth[unit[0]]
        value = self.draws.pick([value for value in self.domains[unit[0][1]] if value != before])
        if any((cell[1], stated) in self._counted for cell in unit for stated in (value, before)):
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
        """Return a record of the same type that is true now, or None if there is none."""
        record = self.records[place]
        first, *others = cells_of(record)
        value = self.truth[first]
        if record["type"] == "fact":
            return {**record, "value": value}
        if record["type"] == "neq":
            if record["value"] != value:
                return record
            # If all other values are excluded, only the previous one is left to state.
            return {**record, "value": before if place in self._needed else self.wrong(first)}
        then = others[0]
        if record["type"] != "impl":
            return record if value == self.truth[then] else self._shared(record, first, then, unit)
        if place in self._needed:
            return {**record, "if_value": value, "then_value": self.truth[then]}
        if record["if_value"] != value:
            return record
        if then in self._closed:  # must not constrain the value of a question
            return {**record, "if_value": self.wrong(first)}
        return {**record, "then_value": self.truth[then]}

    def _shared(self, record: Record, one: Cell, other: Cell, unit: set[Cell]) -> Record | None:
        """Return the statement with another cell that has the new value; None if none is found."""
        kept_cell, replaced_cell = (one, other) if one in unit else (other, one)
        cells = self._equal.get((replaced_cell[1], self.truth[kept_cell]), [])
        for _ in range(_CORRUPTION_TRIES if cells else 0):
            cell = self.draws.pick(cells)
            if cell[0] != kept_cell[0] and cell not in unit:
                first, second = (cell, kept_cell) if replaced_cell == one else (kept_cell, cell)
                return {
                    **record,
                    "e1": first[0],
                    "a1": first[1],
                    "e2": second[0],
                    "a2": second[1],
                }
        return None

    def another_neq(self, place: int) -> None:
        """Replace an inequality by another one that is also true."""
        record = self.records[place]
        if record["type"] == "neq" and place not in self.changed:
            (cell,) = cells_of(record)
            variant = {**record, "value": self.wrong(cell)}
            if cell not in self._closed and tuple(variant.values()) not in self._written:
                self._apply({place: variant}, (), record["value"])
