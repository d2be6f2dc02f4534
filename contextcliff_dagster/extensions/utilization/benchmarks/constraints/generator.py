"""Distributed constraints: values of entities' attributes that follow from scattered statements.

Where it differs from the design document: all ten attributes have a domain; a value that is asked
for is the only possible one, for a chain of statements leads to it from a fact, and no other does;
the four types of constraint are equally many, and their number is met.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    Asked,
    Made,
    RetryError,
    in_order,
    longest_chain,
    needed_records,
    require_not_last,
)
from contextcliff_dagster.extensions.utilization.benchmarks.constraints.world import (
    PARTNER,
    Cell,
    Statements,
    Value,
    World,
    written,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import Evidence, Question, Record
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws

_NEQ_STARTS_FROM = 40
"""So many inequalities left that a chain may begin with all that a value is not."""
_MOST_DECOYS = 4
_TRIES = 400


class _Chain(NamedTuple):
    target: Cell
    hops: int
    cells: list[Cell]
    records: list[Record]


def make_constraints(
    draws: Draws, parameters: Mapping[str, int], evidence: Evidence, asked: Sequence[Asked]
) -> Made:
    """Draw an assignment, statements about it, and what is asked.

    Raises:
        RetryError: these draws came to a dead end.
        ValueError: parameters outside of the benchmark's.
    """
    world = World(draws, parameters)
    lengths = [one.hops for one in asked if one.kind == "chain"]
    links = (world.left["eq"] + world.left["mut"] + world.left["impl"]) * 3 // 4
    lengths = lengths[: min(links, max(1, world.left["fact"] // 3))]
    counts = [one.luck for one in asked if one.kind == "aggregate"]
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
    others: list[Record] = []
    stated: set[Cell] = set()
    for number, luck in enumerate(counts):
        room = world.left["fact"] - lookups
        most = room // (len(counts) - number)
        needed = needed_records(world.size, evidence, parameters, most)
        # Or else the answer, a count, would be known from the size alone.
        needed = max(2, min(most, needed + round((luck - 0.5) * max(4, needed * 0.6))))
        spare = (room - needed - 2 * (len(counts) - number - 1)) // 3
        value, some, like = _count(world, chains, needed, spare, stated)
        values[value] = some
        others += like
    looked_up = []
    for _ in range(lookups):
        cell = _draw_uncounted(world)
        world.closed.add(cell)
        looked_up.append((cell, written(world.fact(cell))))
    world.closed -= stated
    others += _decoys(world, chains)
    others += _fill(world)
    groups = [chain.records for chain in chains] + list(values.values())
    groups += [[record] for _, record in looked_up]
    records = _placed(draws, groups, others)
    made = _questions(world, records, chains, list(values), looked_up)
    require_not_last(records, {**made, "lookup": ()})
    return Made(records, in_order(asked, made), {"assignment": _packed(world)})


def _chain(world: World, hops: int, evidence: Evidence) -> _Chain:
    """Write ``hops`` statements, each of which is needed to see what follows from the next."""
    cell = world.draw_cell()
    world.closed.add(cell)
    negated = evidence == "growing" and world.left["neq"] >= _NEQ_STARTS_FROM
    if negated and world.draws.below(4) == 0:
        wrong = [one for one in world.domains[cell[1]] if one != world.truth[cell]]
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
            other = world.draw_cell()
            record = world.impl(cell, world.truth[cell], other, world.truth[other])
        else:
            attr = cell[1] if name == "eq" else PARTNER[cell[1]]
            other = world.draw_cell(attr, not_of=cell[0])
            world.truth[other] = world.truth[cell]
            record = world.pair(cell, other)
        world.closed.add(other)
        cells.append(other)
        records.append(written(record))
        cell = other
    return _Chain(cell, hops, cells, records)


def _count(
    world: World, chains: Sequence[_Chain], needed: int, spare: int, stated: set[Cell]
) -> tuple[tuple[str, Value], list[Record], list[Record]]:
    """Write facts of one value of an attribute, and ``spare`` at most of each of two others."""
    attr = world.draws.pick(world.attributes)
    started = {(one.cells[0][1], world.truth[one.cells[0]]) for one in chains}
    free = world.draws.shuffled(
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
        some = max(1, needed + world.draws.between(-needed // 3, needed // 3))
        counts.append(some if some <= spare else 0)
    found: list[list[Record]] = []
    for value, count in zip(values, counts, strict=False):
        if len(free) < count:
            raise RetryError
        cells, free = free[:count], free[count:]
        world.truth.update(dict.fromkeys(cells, value))
        world.closed.update(cells)
        stated.update(cells)
        found.append([written(world.fact(cell)) for cell in cells])
    world.counted.add((attr, values[0]))
    return (attr, values[0]), found[0], [record for some in found[1:] for record in some]


def _draw_uncounted(world: World) -> Cell:
    for _ in range(_TRIES):
        cell = world.draw_cell()
        if (cell[1], world.truth[cell]) not in world.counted:
            return cell
    raise RetryError


def _decoys(world: World, chains: Sequence[_Chain]) -> list[Record]:
    """Statements about the cells of chains that exclude nothing but single values of targets."""
    found = []
    for chain in chains:
        for _ in range(min(_MOST_DECOYS, world.left["impl"] // (4 * len(chains)))):
            other, near = world.draw_cell(), world.draws.pick(chain.cells)
            if world.draws.below(2):  # leads on, elsewhere
                found.append(world.impl(near, world.truth[near], other, world.truth[other]))
            else:  # would lead here to another value; its condition is false
                found.append(world.impl(other, world.wrong(other), near, world.wrong(near)))
        if world.left["neq"] >= 4 * len(chains) and world.draws.below(2):
            found.append(world.neq(chain.target, world.wrong(chain.target)))
    return [record for record in found if record is not None]


def _fill(world: World) -> list[Record]:
    """Write true statements about open cells until the number of each type is met."""
    found: list[Record] = []
    same: dict[tuple[str, Value], list[Cell]] = defaultdict(list)
    for cell, value in world.truth.items():
        if cell not in world.closed:
            same[cell[1], value].append(cell)
    for name in ("fact", "neq", "eq", "mut", "impl"):
        failed = 0
        while world.left[name]:
            record = _statement(world, name, same)
            if record is not None:
                found.append(record)
            elif (failed := failed + 1) > _TRIES + len(found):
                raise RetryError
    return found


def _statement(
    world: World, name: str, same: Mapping[tuple[str, Value], Sequence[Cell]]
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
    cells = same.get((cell[1] if name == "eq" else PARTNER[cell[1]], value))
    if not cells:
        return None
    other = world.draws.pick(cells)
    return None if other[0] == cell[0] else world.pair(cell, other)


def _placed(
    draws: Draws, groups: Sequence[Sequence[Record]], others: Sequence[Record]
) -> list[Record]:
    """Return all statements: those of each group over the whole length, in any order."""
    size = sum(map(len, groups)) + len(others)
    taken: set[int] = set()
    records: dict[int, Record] = {}
    for group in sorted(groups, key=len, reverse=True):
        places = draws.spread(len(group), 0, size, taken)
        records.update(zip(places, draws.shuffled(group), strict=True))
    rest = iter(draws.shuffled(others))
    return [records[place] if place in records else next(rest) for place in range(size)]


def _questions(
    world: World,
    records: Sequence[Record],
    chains: Sequence[_Chain],
    counted: Sequence[tuple[str, Value]],
    looked_up: Sequence[tuple[Cell, Record]],
) -> dict[str, list[Question]]:
    statements = Statements(records, world.domains)
    place = {id(record): number for number, record in enumerate(records)}
    made: dict[str, list[Question]] = {"lookup": [], "aggregate": [], "chain": []}
    for (entity, attr), record in looked_up:
        about = {"ask": "value", "entity": entity, "attr": attr}
        question = statements.value_question("lookup", about, [place[id(record)]], 1)
        made["lookup"].append(question)
    for attr, value in counted:
        made["aggregate"].append(
            statements.count_question({"ask": "facts", "attr": attr, "value": value})
        )
    for chain in chains:
        about = {"ask": "value", "entity": chain.target[0], "attr": chain.target[1]}
        evidence = [place[id(record)] for record in chain.records]
        made["chain"].append(statements.value_question("chain", about, evidence, chain.hops))
    return made


def _packed(world: World) -> str:
    """All values, entity by entity, each as the digit of its place in its domain."""
    return "".join(
        str(world.domains[attr].index(value)) for (_, attr), value in world.truth.items()
    )
