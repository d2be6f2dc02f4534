"""Answers to questions about a network with their evidence, and changes to a network's records.

Shortest paths and maximum flows are exact; a change replaces weights and the values of events.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, TypeVar

from contextcliff_dagster.extensions.utilization.benchmarks.asking import Made, make_question
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    Draws,
    Question,
    QuestionKind,
    Record,
    RetryError,
)

Number = TypeVar("Number", float, Fraction)
Edge = tuple[str, str]
"""A connection: its source node and its target node."""


def distances(weights: Mapping[Edge, int], source: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return the distance and the predecessor of each reachable node (Dijkstra)."""
    neighbours: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for (one, other), weight in weights.items():
        neighbours[one].append((other, weight))
    lengths: dict[str, int] = {}
    predecessors: dict[str, str] = {}
    best = {source: 0}
    queue = [(0, source)]
    while queue:
        length, node = heappop(queue)
        if node in lengths:
            continue
        lengths[node] = length
        for other, weight in neighbours.get(node, ()):
            distance = length + weight
            if other not in lengths and distance < best.get(other, distance + 1):
                best[other] = distance
                predecessors[other] = node
                heappush(queue, (distance, other))
    return lengths, predecessors


def path_to(before: Mapping[str, str], target: str) -> list[Edge]:
    """Return the connections of the shortest path to ``target``, in order from the source."""
    path = []
    while target in before:
        path.append((before[target], target))
        target = before[target]
    return path[::-1]


class Flow:
    """A maximum flow (Edmonds-Karp) that can be updated for a change of one capacity."""

    def __init__(self, capacities: Mapping[Edge, int], source: str, target: str) -> None:
        self._capacities, self._source, self._target = capacities, source, target
        self._near: dict[str, list[str]] = defaultdict(list)
        self._left: dict[Edge, Fraction | int] = dict(capacities)
        for one, other in capacities:
            self._near[one].append(other)
            if (other, one) not in capacities:
                self._near[other].append(one)
                self._left[other, one] = 0
        self.value = self._augment(self._left, source, target)

    def edges(self) -> list[Edge]:
        """Return the connections that carry flow."""
        return [edge for edge, most in self._capacities.items() if self._left[edge] < most]

    def value_with(self, edge: Edge, capacity: Fraction) -> Fraction | int:
        """Return the maximum flow that results if ``edge`` has the given capacity."""
        more = capacity - self._capacities[edge]
        left = dict(self._left)
        left[edge] += more
        if left[edge] >= 0:
            most = more if more > 0 else 0
            return self.value + self._augment(left, self._source, self._target, most)
        # The flow exceeds the capacity: as much as possible is rerouted, the rest is dropped.
        missing = -left[edge]
        left[edge] = 0
        left[edge[::-1]] -= missing
        return self.value - missing + self._augment(left, *edge, missing)

    def _augment(
        self,
        left: dict[Edge, Fraction | int],
        source: str,
        target: str,
        most: Fraction | int | None = None,
    ) -> Fraction | int:
        """Send up to ``most`` flow through the residual capacities ``left``; return the amount."""
        total: Fraction | int = 0
        while most is None or total < most:
            before: dict[str, str] = {source: source}
            ahead = deque([source])
            while ahead and target not in before:
                node = ahead.popleft()
                for other in self._near[node]:
                    if other not in before and left[node, other] > 0:
                        before[other] = node
                        ahead.append(other)
            if target not in before:
                break
            path = path_to({end: node for end, node in before.items() if end != source}, target)
            amount = min(left[edge] for edge in path)
            if most is not None:
                amount = min(amount, most - total)
            for edge in path:
                left[edge] -= amount
                left[edge[::-1]] += amount
            total += amount
        return total


class Network:
    """The records of a network, grouped by connection and in time order."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.base: dict[Edge, int] = {}
        self.events: dict[Edge, list[int]] = defaultdict(list)
        self.times: list[int] = []
        self._event_places: list[int] = []
        for place, record in enumerate(records):
            if record["type"] == "node":
                continue
            edge = (record["from"], record["to"])
            if record["type"] == "edge":
                self.base[edge] = place
            else:
                self.events[edge].append(place)
                self.times.append(record["ts"])
                self._event_places.append(place)
        self.weights_at = lru_cache(4)(self._weights_at)

    def question(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        """Return the question ``about`` with answer and evidence; raise ValueError without one."""
        if about["ask"] == "initial_weight":
            return self._initial_weight(kind, about)
        if about["ask"] == "weight":
            return self._weight(kind, about)
        if about["ask"] == "distance":
            return self._distance(kind, about)
        return self._max_flow(kind, about)

    def _initial_weight(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        place = self.base[about["from"], about["to"]]
        weight = self.records[place]["weight"]
        return make_question(kind, about, weight, [place], weight, choices=(1, max(100, weight)))

    def past(self, edge: Edge, at: int | None) -> list[int]:
        """Return a connection's records up to ``at``, starting from the last "set" event if any."""
        events = self.events.get(edge, [])
        if at is not None:
            events = events[: bisect_right([self.records[event]["ts"] for event in events], at)]
        for number in range(len(events) - 1, -1, -1):
            if self.records[events[number]]["action"] == "set":
                return events[number:]
        return [self.base[edge], *events]

    def _replay(self, places: Sequence[int], weight: Fraction = Fraction(0)) -> Fraction:
        for place in places:
            record = self.records[place]
            if record["type"] == "edge":
                weight = Fraction(record["weight"])
            else:
                weight = _changed(weight, record["action"], Fraction(record["value"]))
        return weight

    def _weights_at(self, at: int | None) -> dict[Edge, int]:
        weights = {edge: self.records[place]["weight"] for edge, place in self.base.items()}
        stop = len(self.times) if at is None else bisect_right(self.times, at)
        for place in self._event_places[:stop]:
            record = self.records[place]
            edge = (record["from"], record["to"])
            weights[edge] = int(_changed(weights[edge], record["action"], record["value"]))
        return weights

    def without(self, edge: Edge, at: int | None) -> Iterator[tuple[int, Fraction | None]]:
        """Yield each record that determines a weight, with the weight if it is missing.

        The weight is None if the missing record is the one that declares the connection.
        """
        past = self.past(edge, at)
        first = self.records[past[0]]
        if first["type"] == "edge":
            yield past[0], None
        else:
            before = self.events[edge][: self.events[edge].index(past[0])]
            yield past[0], self._replay([self.base[edge], *before, *past[1:]])
        weight = self._replay(past[:1])
        later = [(Fraction(1), Fraction(0))]
        for place in reversed(past[1:]):
            factor, term = later[-1]
            value = Fraction(self.records[place]["value"])
            if self.records[place]["action"] == "add":
                later.append((factor, term + factor * value))
            else:
                later.append((factor * value, term))
        for number, place in enumerate(past[1:]):
            factor, term = later[len(past) - 2 - number]
            yield place, factor * weight + term
            weight = self._replay([place], weight)

    def _weight(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        edge, at = (about["from"], about["to"]), about["at"]
        weights = self.weights_at(at)
        answer = weights[edge]
        changes = [
            answer if other is None else abs(other - answer) for _, other in self.without(edge, at)
        ]
        return make_question(
            kind,
            about,
            answer,
            self.past(edge, at),
            float(min(changes)),
            choices=(min(weights.values()), max(weights.values())),
        )

    def _distance(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        at, source, target = about["at"], about["from"], about["to"]
        weights = self.weights_at(at)
        ahead, before = distances(weights, source)
        if target not in ahead:
            raise ValueError(f"there is no path: {dict(about)!r}")
        turned = {(to, start): weight for (start, to), weight in weights.items()}
        back, after = distances(turned, target)
        answer = ahead[target]
        path = path_to(before, target)
        evidence: list[int] = []
        changes: list[Fraction] = []
        for edge in path:
            others = {e: weight for e, weight in weights.items() if e != edge}
            around = distances(others, source)[0].get(target)
            for place, other in self.without(edge, at):
                evidence.append(place)
                if other is None:
                    changes.append(Fraction(answer if around is None else around - answer))
                    continue
                length = answer - weights[edge] + other
                shortest = length if around is None else min(length, Fraction(around))
                changes.append(abs(shortest - answer))
        on_path = set(path)
        for edge in weights:
            if edge in on_path or edge[0] not in ahead or edge[1] not in back:
                continue
            detour = ahead[edge[0]] + back[edge[1]]
            for place, other in self.without(edge, at):
                if other is None or detour + other >= answer:
                    continue
                # A negative weight may close a cycle, which is not a path.
                if other > 0 or not _meet(before, after, edge):
                    evidence.append(place)
                    changes.append(answer - detour - other)
        return make_question(
            kind,
            about,
            answer,
            evidence,
            float(min(changes)),
            hops=len(path),
            choices=(1, max(ahead.values())),
        )

    def _max_flow(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        at, source, target = about["at"], about["from"], about["to"]
        weights = self.weights_at(at)
        flow = Flow(weights, source, target)
        if not flow.value:
            raise ValueError(f"nothing flows: {dict(about)!r}")
        evidence: list[int] = []
        changes: list[Fraction] = []
        for edge in flow.edges():
            for place, other in self.without(edge, at):
                capacity = max(Fraction(0), other or Fraction(0))
                change = abs(Fraction(flow.value_with(edge, capacity) - flow.value))
                if change:
                    evidence.append(place)
                    changes.append(change)
        if not evidence:
            raise ValueError(f"no record alone matters: {dict(about)!r}")
        upper = sum(weight for (start, _), weight in weights.items() if start == source)
        return make_question(
            kind, about, flow.value, evidence, float(min(changes)), choices=(1, upper)
        )


def _changed(weight: Number, action: str, value: Number) -> Number:
    """Return the weight after an event."""
    if action == "set":
        return value
    return weight + value if action == "add" else weight * value


def _meet(before: Mapping[str, str], after: Mapping[str, str], edge: Edge) -> bool:
    """Return whether the shortest paths to ``edge`` and onward from it share a node."""
    ends = (before, edge[0]), (after, edge[1])
    first, last = ({end, *(node for pair in path_to(w, end) for node in pair)} for w, end in ends)
    return not first.isdisjoint(last)


VALUES: dict[str, Sequence[float]] = {
    "set": range(1, 101),
    "add": (*range(-20, 0), *range(1, 51)),
    "multiply": (0.5, 0.75, 1.25, 1.5, 2.0),
}
"""Action -> the values that the design document draws from."""
_HEAVIEST = 100_000


def change_network(draws: Draws, data: Benchmark, count: int, recompute: bool) -> Made:
    """Change ``count`` weights or events, or as many as possible; return the result.

    Without ``recompute`` answers must stay, so no connection becomes lighter at a time that a path
    or flow question refers to: heavier connections open no shortcut and limit no flow. Raise
    RetryError if a question no longer has a good answer.
    """
    records: list[Record] = list(data.records)
    network = Network(records)
    kept_places: set[int] = set()
    times: list[int | None] = []
    if not recompute:
        for question in data.questions:
            kept_places.update(question.evidence)
            if question.about["ask"] in ("distance", "max_flow"):
                times.append(question.about["at"])
    remaining = count
    for place in draws.shuffled(range(len(records))):
        if not remaining:
            break
        record = records[place]
        if record["type"] == "node" or place in kept_places:
            continue
        key = "weight" if record["type"] == "edge" else "value"
        edge = (record["from"], record["to"])
        story = [network.base[edge], *network.events.get(edge, ())]
        before = _weights(records, story)
        stops = [_count_until(records, story, at) for at in dict.fromkeys(times)]
        number = story.index(place)
        options = VALUES["set" if record["type"] == "edge" else record["action"]]
        for value in draws.shuffled([option for option in options if option != record[key]]):
            after = _weights(records, story, number, value)
            if after and all(after[stop] >= before[stop] for stop in stops):
                records[place] = {**record, key: value}
                remaining -= 1
                break
    questions = list(data.questions)
    if recompute:
        changed = Network(records)
        try:
            questions = [changed.question(old.kind, old.about) for old in questions]
        except ValueError as error:  # no single record limits a flow anymore
            raise RetryError from error
    return Made(records, questions, {})


def _count_until(records: Sequence[Record], story: Sequence[int], at: int | None) -> int:
    """Return the number of a connection's events up to a time."""
    if at is None:
        return len(story) - 1
    return bisect_right([records[place]["ts"] for place in story[1:]], at)


def _weights(
    records: Sequence[Record],
    story: Sequence[int],
    changed: int | None = None,
    changed_value: float = 0,
) -> list[float]:
    """Return a connection's weight after each of its records; empty if a weight is invalid."""
    weights: list[float] = []
    for number, place in enumerate(story):
        record = records[place]
        value = record["weight"] if number == 0 else record["value"]
        if number == changed:
            value = changed_value
        if number:
            value = _changed(weights[-1], record["action"], value)
        if not 1 <= value <= _HEAVIEST or value % 1:
            return []
        weights.append(value)
    return weights
