"""A network as it is built and changed, record by record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    Asked,
    RetryError,
    needed_records,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Evidence,
    QuestionKind,
    Record,
)
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws
from contextcliff_dagster.extensions.utilization.benchmarks.network.answers import Edge

START = 1704067200
"""The first second of 2024."""
_FACTORS = (0.5, 0.75, 1.25, 1.5, 2.0)
_HEAVY = 300
"""Weights beyond it are brought down, so that they stay in sight of the others."""
_DECOYS = 2
_FEWEST_EVENTS = 2
"""Of a connection that is asked about."""


class Busy(NamedTuple):
    """A connection with planned records only, and what happens to it in its slots.

    ``until``: the slot as of which it is asked.
    """

    kind: QuestionKind | None
    edge: Edge
    actions: Mapping[int, str]
    until: int | None


def draw_edges(draws: Draws, parameters: Mapping[str, int]) -> list[Edge]:
    """Return connections of all nodes: a directed tree, and others at random.

    Raises:
        ValueError: there cannot be so many, or so few.
    """
    nodes = draws.shuffled([f"N-{one:04d}" for one in range(parameters["num_nodes"])])
    count = parameters["num_edges"]
    if not len(nodes) - 1 <= count <= len(nodes) * (len(nodes) - 1):
        raise ValueError(f"{len(nodes)} nodes cannot have {count} connections")
    edges = {
        (nodes[draws.below(number)], node): None for number, node in enumerate(nodes) if number
    }
    known = list(edges)
    while len(edges) < count:
        # Connections both ways are what a reader that misses the direction falls for.
        edge = (
            draws.pick(known)[::-1]
            if draws.below(4) == 0
            else (draws.pick(nodes), draws.pick(nodes))
        )
        if edge[0] != edge[1] and edge not in edges:
            edges[edge] = None
            known.append(edge)
    return draws.shuffled(list(edges))


class Plan:
    """Which record comes where. Slots are places of all records but the nodes'."""

    def __init__(
        self,
        draws: Draws,
        parameters: Mapping[str, int],
        evidence: Evidence,
        asked: Sequence[Asked],
    ) -> None:
        self._draws = draws
        self._edges = draw_edges(draws, parameters)
        events = parameters["num_weight_changes"]
        self._size = len(self._edges) + events
        self._taken: set[int] = set()
        self.busy: list[Busy] = []
        kinds = [one.kind for one in asked if one.kind in ("aggregate", "as_of")]
        events = events if events < 24 else events * 3 // 4
        kinds = kinds[: min(len(self._edges) - 1, events // _FEWEST_EVENTS)]
        room = events // max(1, len(kinds))
        size = self._size + parameters["num_nodes"]
        needed = needed_records(size, evidence, parameters, room)
        edges = self._asked_edges(len(kinds))
        for kind, edge in zip(kinds, edges, strict=True):
            self._plan_busy(kind, edge, needed, room)
        known = set(self._edges)
        for edge in [edge[::-1] for edge in edges if edge[::-1] in known] + self._edges[:_DECOYS]:
            planned = {busy.edge for busy in self.busy}
            enough = self._size - len(self._taken) > 6 * needed + len(self._edges)
            most = min(len(kinds) + _DECOYS, len(self._edges) - 1)
            if edge not in planned and len(planned) < most and enough:
                self._plan_busy(None, edge, needed, needed)

    def _asked_edges(self, count: int) -> list[Edge]:
        known = set(self._edges)
        # First those that there are in both directions, each such pair once.
        both = [edge for edge in self._edges if edge[::-1] in known and edge < edge[::-1]]
        both = [self._draws.pick([edge, edge[::-1]]) for edge in both]
        others = [edge for edge in self._edges if edge[::-1] not in known]
        return [*both, *others, *(edge[::-1] for edge in both)][:count]

    def _spread(self, count: int, start: int, stop: int) -> list[int]:
        try:
            return self._draws.spread(count, start, stop, self._taken)
        except ValueError as error:
            raise RetryError from error

    def _plan_busy(self, kind: QuestionKind | None, edge: Edge, needed: int, room: int) -> None:
        """Plan so many records that matter, with its own record or from a later set on."""
        until, later = None, []
        stop = self._size
        if kind == "as_of":
            part = 0.4 + 0.5 * self._draws.random()
            stop = min(self._size - 1, max(needed + 2, int(part * self._size)))
            until = stop - 1
            count = max(1, min(room // 3, round((needed - 1) * (1 - part) / part)))
            later = self._spread(count, stop, self._size)
        before = min(needed, room + 1 - len(later))
        slots = self._spread(before, 0, stop)
        actions = dict.fromkeys([*slots, *later], "change")
        first = [slot for slot in range(slots[0]) if slot not in self._taken]
        if room >= before + 2 + len(later) and len(first) > 4 and self._draws.below(2):
            # What was before a set does not matter any more.
            known, changed = sorted(self._draws.shuffled(first)[:2])
            self._taken.update((known, changed))
            actions.update({known: "edge", changed: "change", slots[0]: "set"})
        else:
            actions[slots[0]] = "edge"
        self.busy.append(Busy(kind, edge, actions, until))

    def write(self) -> tuple[list[Record], list[int]]:
        """Draw what is not planned; return all records, and the time of each slot."""
        draws = self._draws
        planned = {
            slot: (busy.edge, action) for busy in self.busy for slot, action in busy.actions.items()
        }
        busy = {one.edge for one in self.busy}
        others = [edge for edge in self._edges if edge not in busy]
        free = [slot for slot in range(self._size) if slot not in planned]
        # A connection comes before its events; so the first free slot is one's.
        first = {free[0], *draws.shuffled(free[1:])[: len(others) - 1]}
        fresh = iter(others)
        known: list[Edge] = []
        builder = _Builder(draws)
        times = []
        for slot in range(self._size):
            if slot in planned:
                builder.write(*planned[slot])
            elif slot in first:
                known.append(edge := next(fresh))
                builder.write(edge, "edge")
            else:
                builder.write(draws.pick(known), draws.pick(("set", "add", "multiply")))
            times.append(builder.ts)
        return builder.records, times


class _Builder:
    """The network while its records are written."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._weights: dict[Edge, int] = {}
        self._nodes: set[str] = set()
        self.ts = START
        self.records: list[Record] = []

    def write(self, edge: Edge, action: str) -> None:
        """Write the record of a connection, nodes first, or an event; "change" is add or multiply.

        Events are as the document draws them, of those that leave a whole weight of at least 1.
        """
        draws = self._draws
        if action == "edge":
            for node in edge:
                if node not in self._nodes:
                    self._nodes.add(node)
                    self.records.append({"type": "node", "id": node})
            weight = self._weights[edge] = draws.between(1, 100)
            ends = {"from": edge[0], "to": edge[1]}
            self.records.append({"type": "edge", **ends, "weight": weight})
            return
        weight = self._weights[edge]
        if action == "change":
            action = draws.pick(("add", "multiply"))
        factors = [
            factor
            for factor in _FACTORS
            if weight * factor >= 1
            and weight * factor % 1 == 0
            and (factor < 1 or weight * factor <= _HEAVY)
        ]
        if action == "multiply" and not factors:
            action = "add"
        value: int | float
        if action == "set":
            value = draws.between(1, 99)
            value += value >= weight
            after = value
        elif action == "add":
            low, high = max(-20, 1 - weight), 50 if weight <= _HEAVY else -1
            value = draws.between(low, high - (low < 0 < high))
            value += low < 0 < high and value >= 0
            value = value or 1
            after = weight + value
        else:
            value = draws.pick(factors)
            after = int(weight * value)
        self._weights[edge] = after
        self.ts += draws.between(60, 600)
        ends = {"from": edge[0], "to": edge[1]}
        self.records.append(
            {"type": "event", "ts": self.ts, **ends, "action": action, "value": value}
        )
