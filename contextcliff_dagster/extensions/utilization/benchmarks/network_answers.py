"""Answers to questions about a network, each with the records that it rests on, and its changes.

Shortest paths and maximum flows are exact; a change replaces weights and events of the network.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    Made,
    RetryError,
    make_question,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    Draws,
    Question,
    QuestionKind,
    Record,
)

Edge = tuple[str, str]
"""Two nodes: from, to."""


def distances(weights: Mapping[Edge, int], source: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return the distance of each node that can be reached, and the node before it (Dijkstra)."""
    near: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for (one, other), weight in weights.items():
        near[one].append((other, weight))
    lengths: dict[str, int] = {}
    before: dict[str, str] = {}
    best = {source: 0}
    ahead = [(0, source)]
    while ahead:
        length, node = heappop(ahead)
        if node in lengths:
            continue
        lengths[node] = length
        for other, weight in near.get(node, ()):
            there = length + weight
            if other not in lengths and there < best.get(other, there + 1):
                best[other] = there
                before[other] = node
                heappush(ahead, (there, other))
    return lengths, before


def path_to(before: Mapping[str, str], target: str) -> list[Edge]:
    """Return the connections of the shortest path to ``target``, the first one first."""
    path = []
    while target in before:
        path.append((before[target], target))
        target = before[target]
    return path[::-1]


class Flow:
    """A maximum flow (Edmonds and Karp), also for networks that differ in one capacity."""

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
        """Return the connections with a flow."""
        return [edge for edge, most in self._capacities.items() if self._left[edge] < most]

    def value_with(self, edge: Edge, capacity: Fraction) -> Fraction | int:
        """Return the maximum flow if ``edge`` had this capacity."""
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
        """Send as much flow as possible, ``most`` at most, through ``left``; return the amount."""
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
            path = path_to({one: node for one, node in before.items() if one != source}, target)
            some = min(left[edge] for edge in path)
            if most is not None:
                some = min(some, most - total)
            for edge in path:
                left[edge] -= some
                left[edge[::-1]] += some
            total += some
        return total


class Network:
    """The records of a network, by connection, in the order of time."""

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
        """Return the question ``about`` with its answer and evidence.

        Raises:
            ValueError: the records have no answer.
        """
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
        """Return the records of a connection up to a time, without those before the last set."""
        events = self.events.get(edge, [])
        if at is not None:
            events = events[: bisect_right([self.records[event]["ts"] for event in events], at)]
        for number in range(len(events) - 1, -1, -1):
            if self.records[events[number]]["action"] == "set":
                return events[number:]
        return [self.base[edge], *events]

    def _replay(self, places: Sequence[int], weight: Fraction | None = None) -> Fraction | None:
        for place in places:
            record = self.records[place]
            if record["type"] == "edge":
                weight = Fraction(record["weight"])
            elif record["action"] == "set":
                weight = Fraction(record["value"])
            elif weight is not None:
                value = Fraction(record["value"])
                weight = weight + value if record["action"] == "add" else weight * value
        return weight

    def weight(self, edge: Edge, at: int | None) -> int:
        """Return the weight of a connection as of a time."""
        return self.weights_at(at)[edge]

    def _weights_at(self, at: int | None) -> dict[Edge, int]:
        weights = {edge: self.records[place]["weight"] for edge, place in self.base.items()}
        stop = len(self.times) if at is None else bisect_right(self.times, at)
        for place in self._event_places[:stop]:
            record = self.records[place]
            edge = (record["from"], record["to"])
            value, action = record["value"], record["action"]
            if action == "set":
                weights[edge] = value
            elif action == "add":
                weights[edge] += value
            else:
                weights[edge] = int(weights[edge] * value)
        return weights

    def without(self, edge: Edge, at: int | None) -> Iterator[tuple[int, Fraction | None]]:
        """Yield each record that makes a weight, and the weight without it.

        None where the weight then has no beginning.
        """
        past = self.past(edge, at)
        first = self.records[past[0]]
        if first["type"] == "edge":
            yield past[0], None
        else:
            before = self.events[edge][: self.events[edge].index(past[0])]
            yield past[0], self._replay([self.base[edge], *before, *past[1:]])
        weight = self._replay(past[:1]) or Fraction(0)
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
            weight = self._replay([place], weight) or weight

    def _weight(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        edge, at = (about["from"], about["to"]), about["at"]
        answer = self.weight(edge, at)
        changes = [
            answer if other is None else abs(other - answer) for _, other in self.without(edge, at)
        ]
        weights = self.weights_at(at).values()
        return make_question(
            kind,
            about,
            answer,
            self.past(edge, at),
            float(min(changes)),
            choices=(min(weights), max(weights)),
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
            rest = ahead[edge[0]] + back[edge[1]]
            for place, other in self.without(edge, at):
                if other is None or rest + other >= answer:
                    continue
                # Below 0 it may close a circle, which is no path.
                if other > 0 or not _meet(before, after, edge):
                    evidence.append(place)
                    changes.append(answer - rest - other)
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
        most = sum(weight for (start, _), weight in weights.items() if start == source)
        return make_question(
            kind, about, flow.value, evidence, float(min(changes)), choices=(1, most)
        )


def _meet(before: Mapping[str, str], after: Mapping[str, str], edge: Edge) -> bool:
    """Whether the shortest ways to ``edge`` and on from it have a node in common."""
    ways = (before, edge[0]), (after, edge[1])
    there, on = ({end, *(node for pair in path_to(way, end) for node in pair)} for way, end in ways)
    return not there.isdisjoint(on)


_VALUES: dict[str, Sequence[float]] = {
    "set": range(1, 101),
    "add": (*range(-20, 0), *range(1, 51)),
    "multiply": (0.5, 0.75, 1.25, 1.5, 2.0),
}
"""Values that the document draws from, by action."""
_HEAVIEST = 100_000


def change_network(draws: Draws, data: Benchmark, count: int, recompute: bool) -> Made:
    """Change ``count`` weights or events, or as many as possible.

    Where answers are to stay, no connection gets lighter at a time as of which paths or flows are
    asked: heavier ones open no shortcut, and what limits a flow is kept.

    Raises:
        RetryError: a question has no good answer any more.
    """
    records: list[Record] = list(data.records)
    network = Network(records)
    kept: set[int] = set()
    times: list[int | None] = []
    if not recompute:
        for question in data.questions:
            kept.update(question.evidence)
            if question.about["ask"] in ("distance", "max_flow"):
                times.append(question.about["at"])
    left = count
    for place in draws.shuffled(range(len(records))):
        if not left:
            break
        record = records[place]
        if record["type"] == "node" or place in kept:
            continue
        key = "weight" if record["type"] == "edge" else "value"
        edge = (record["from"], record["to"])
        story = [network.base[edge], *network.events.get(edge, ())]
        before = _weights(records, story)
        stops = [_count_until(records, story, at) for at in dict.fromkeys(times)]
        number = story.index(place)
        options = _VALUES["set" if record["type"] == "edge" else record["action"]]
        for value in draws.shuffled([option for option in options if option != record[key]]):
            after = _weights(records, story, number, value)
            if after and all(after[stop] >= before[stop] for stop in stops):
                records[place] = {**record, key: value}
                left -= 1
                break
    questions = list(data.questions)
    if recompute:
        changed = Network(records)
        try:
            questions = [changed.question(old.kind, old.about) for old in questions]
        except ValueError as error:  # no single record limits a flow any more
            raise RetryError from error
    return Made(records, questions, {})


def _count_until(records: Sequence[Record], story: Sequence[int], at: int | None) -> int:
    """The number of events of a connection up to a time."""
    if at is None:
        return len(story) - 1
    return bisect_right([records[place]["ts"] for place in story[1:]], at)


def _weights(
    records: Sequence[Record],
    story: Sequence[int],
    changed: int | None = None,
    changed_value: float = 0,
) -> list[float]:
    """A connection's weight after each of its records; none where one is not allowed."""
    weights: list[float] = []
    for number, place in enumerate(story):
        record = records[place]
        value = record["weight"] if number == 0 else record["value"]
        if number == changed:
            value = changed_value
        if number and record["action"] == "add":
            value = weights[-1] + value
        elif number and record["action"] == "multiply":
            value = weights[-1] * value
        if not 1 <= value <= _HEAVIEST or value % 1:
            return []
        weights.append(value)
    return weights
