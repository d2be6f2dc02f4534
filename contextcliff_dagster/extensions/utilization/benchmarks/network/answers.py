"""Answers to questions about a network, each with the records that it rests on."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.asking import make_question
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Question,
    QuestionKind,
    Record,
)
from contextcliff_dagster.extensions.utilization.benchmarks.network.graph import (
    Edge,
    Flow,
    distances,
    path_to,
)


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
            events = events[: bisect_right([self.records[one]["ts"] for one in events], at)]
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
        turned = {(to, one): weight for (one, to), weight in weights.items()}
        back, after = distances(turned, target)
        answer = ahead[target]
        path = path_to(before, target)
        evidence: list[int] = []
        changes: list[Fraction] = []
        for edge in path:
            others = {one: weight for one, weight in weights.items() if one != edge}
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
        most = sum(weight for (one, _), weight in weights.items() if one == source)
        return make_question(
            kind, about, flow.value, evidence, float(min(changes)), choices=(1, most)
        )


def _meet(before: Mapping[str, str], after: Mapping[str, str], edge: Edge) -> bool:
    """Whether the shortest ways to ``edge`` and on from it have a node in common."""
    ways = (before, edge[0]), (after, edge[1])
    there, on = ({end, *(node for pair in path_to(way, end) for node in pair)} for way, end in ways)
    return not there.isdisjoint(on)
