"""Network questions by replaying events, then graph search in scipy, in whole numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.utilization.benchmarks.data import Record
from contextcliff_dagster.extensions.utilization.verification.solution import (
    About,
    Solution,
    unknown_ask,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Edge = tuple[str, str]

_MOST_CAPACITY = 2**31 - 1
"""scipy's maximum flow counts in 32 bits, and is silently wrong beyond."""
_MOST_LENGTH = 2**53
"""Its path lengths are doubles, exact up to here."""


class NetworkSolver:
    """See `solution.Solver`."""

    def __init__(self, records: Sequence[Record]) -> None:
        by_type: dict[str, list[Record]] = {"node": [], "edge": [], "event": []}
        for record in records:
            by_type[record["type"]].append(record)
        self._nodes = [record["id"] for record in by_type["node"]]
        self._edges = by_type["edge"]
        self._events = sorted(by_type["event"], key=itemgetter("ts"))
        self._base = {(one["from"], one["to"]): int(one["weight"]) for one in self._edges}
        self._weights_at: dict[int | None, dict[Edge, int]] = {}

    def faults(self) -> list[str]:
        """Return why the records are no valid document: one phrase for each kind of fault."""
        kinds = (self._identifiers(), self._base_weights(), self._replay_faults())
        return [phrase for found in kinds if (phrase := next(found, None)) is not None]

    def _identifiers(self) -> Iterator[str]:
        for name, times in Counter(self._nodes).items():
            if times > 1:
                yield f"node {name} is declared {times} times"
        nodes = set(self._nodes)
        for (one, other), times in Counter((e["from"], e["to"]) for e in self._edges).items():
            if times > 1:
                yield f"the connection from {one} to {other} is declared {times} times"
            if one == other:
                yield f"a connection of {one} leads to itself"
            for name in (one, other):
                if name not in nodes:
                    yield f"the connection from {one} to {other} has the undeclared node {name}"
        for event in self._events:
            if (event["from"], event["to"]) not in self._base:
                yield (
                    f"an event at {event['ts']} changes the undeclared connection from "
                    f"{event['from']} to {event['to']}"
                )

    def _base_weights(self) -> Iterator[str]:
        for edge in self._edges:
            if edge["weight"] != int(edge["weight"]) or edge["weight"] < 1:
                yield f"the connection {_named(edge)} has the initial weight {edge['weight']}"

    def _replay_faults(self) -> Iterator[str]:
        weights, last = dict(self._base), dict.fromkeys(self._base, -1)
        for event in self._events:
            edge = (event["from"], event["to"])
            if edge not in weights:
                continue
            if event["ts"] == last[edge]:
                yield f"two events change the connection {_named(event)} at {event['ts']}"
            last[edge] = event["ts"]
            after = _after(weights[edge], event)
            if after != int(after) or after < 1:
                yield f"the weight from {edge[0]} to {edge[1]} becomes {after} at {event['ts']}"
                after = max(1, int(after))
            weights[edge] = int(after)

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question, see `solution.Solver`."""
        return [self._solve(about) for about in abouts]

    def _solve(self, about: About) -> Solution:
        edge = (about["from"], about["to"])
        if about["ask"] == "initial_weight":
            stated = {e["weight"] for e in self._edges if (e["from"], e["to"]) == edge}
            return Solution(tuple(map(str, sorted(stated)))[:2], "record")
        if about["ask"] == "weight":
            weight = self._weights(about["at"]).get(edge)
            return Solution(() if weight is None else (str(weight),), "replay")
        if about["ask"] not in ("distance", "max_flow"):
            raise unknown_ask("network", about)
        if edge[0] == edge[1] or not set(edge) <= self._numbers.keys():
            return Solution((), "replay")
        source, target = (self._numbers[node] for node in edge)
        if about["ask"] == "distance":
            graph = self._graph(about["at"], _MOST_LENGTH)
            return Solution(_distance(graph, source, target), "replay and shortest path")
        graph = self._graph(about["at"], _MOST_CAPACITY)
        return Solution(_max_flow(graph, source, target), "replay and maximum flow")

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        names = [*self._nodes, *chain.from_iterable(self._base)]
        return {name: number for number, name in enumerate(dict.fromkeys(names))}

    def _weights(self, at: int | None) -> Mapping[Edge, int]:
        if at not in self._weights_at:
            weights = dict(self._base)
            for event in self._events:
                if at is not None and event["ts"] > at:
                    break
                edge = (event["from"], event["to"])
                if edge in weights:
                    weights[edge] = int(_after(weights[edge], event))
            self._weights_at = {at: weights}  # questions of one time mostly follow each other
        return self._weights_at[at]

    def _graph(self, at: int | None, most: int) -> csr_array:
        import numpy as np
        from scipy.sparse import csr_array

        weights = self._weights(at)
        if (total := sum(weights.values())) > most:
            raise ValueError(f"the weights add up to {total}, more than scipy counts exactly")
        ends = [[self._numbers[edge[side]] for edge in weights] for side in (0, 1)]
        lengths = np.fromiter(weights.values(), np.int64, len(weights))
        count = len(self._numbers)
        return csr_array((lengths, (ends[0], ends[1])), shape=(count, count))


def _after(weight: int, event: Record) -> int | float:
    value: int | float = event["value"]
    if event["action"] == "set":
        return value
    return weight + value if event["action"] == "add" else weight * value


def _named(record: Record) -> str:
    return f"from {record['from']} to {record['to']}"


def _distance(graph: csr_array, source: int, target: int) -> tuple[str, ...]:
    from scipy.sparse.csgraph import dijkstra

    length = float(dijkstra(graph, indices=[source])[0, target])
    return (str(int(length)),) if length < float("inf") else ()


def _max_flow(graph: csr_array, source: int, target: int) -> tuple[str, ...]:
    """The value of the flow found and the capacity of the cut that it leaves: equal if maximal."""
    import numpy as np
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    capacity = graph.astype(np.int32)
    found = maximum_flow(capacity, source, target)
    left = (capacity - found.flow).tocsr()
    left.eliminate_zeros()
    reached = np.zeros(graph.shape[0], dtype=bool)
    reached[breadth_first_order(left, source, return_predecessors=False)] = True
    cut = graph[reached][:, ~reached].sum()
    return tuple(map(str, sorted({int(found.flow_value), int(cut)})))
