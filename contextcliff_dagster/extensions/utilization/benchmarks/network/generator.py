"""The network: shortest paths and flows over directed connections whose weights change.

Where it differs from the design document: the connections' records hold initial weights; weights
stay whole and at least 1, for only events are drawn that keep them so; no two nodes are asked about
without a path. Connections and nodes are written where the document comes to them, so that a single
record can be asked for at any position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    Asked,
    Made,
    RetryError,
    draw_lookup,
    in_order,
    longest_chain,
    require_not_last,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Evidence,
    Question,
    QuestionKind,
)
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws
from contextcliff_dagster.extensions.utilization.benchmarks.network.answers import (
    Edge,
    Flow,
    Network,
    distances,
    path_to,
)
from contextcliff_dagster.extensions.utilization.benchmarks.network.plan import Plan

_PATHS_FROM = 12
"""So many nodes that half of the questions as of a time are about a path, the others a weight."""
_SOURCES = 12
_TARGETS = 4


def make_network(
    draws: Draws, parameters: Mapping[str, int], evidence: Evidence, asked: Sequence[Asked]
) -> Made:
    """Draw a network, its events, and what is asked.

    Raises:
        RetryError: these draws came to a dead end.
        ValueError: sizes that no network has.
    """
    paths = parameters["num_nodes"] >= _PATHS_FROM
    past = [paths and one.luck < 0.5 for one in asked if one.kind == "as_of"]
    of_paths = iter(past)
    planned = [one for one in asked if one.kind != "as_of" or not next(of_paths)]
    plan = Plan(draws, parameters, evidence, planned)
    records, times = plan.write()
    network = Network(records)
    made: dict[str, list[Question]] = {"aggregate": [], "as_of": [], "chain": [], "flow": []}
    for busy in plan.busy:
        if busy.kind:
            at = None if busy.until is None else times[busy.until]
            about = {"ask": "weight", **_ends(busy.edge), "at": at}
            made[busy.kind].append(network.question(busy.kind, about))
    search = _Search(draws, network)
    for number, by_path in enumerate(past):
        if by_path:
            made["as_of"].insert(number, search.past_distance(times))
    for one in asked:
        if one.kind == "chain":
            made["chain"].append(search.distance(one.hops))
        elif one.kind == "flow":
            made["flow"].append(search.flow())
    _require_hard(network, made)
    used = {place for some in made.values() for one in some for place in one.evidence}
    places = list(network.base.values())

    def lookup() -> Question:
        used.add(place := draw_lookup(draws, len(records), places, used))
        ends = (records[place]["from"], records[place]["to"])
        return network.question("lookup", {"ask": "initial_weight", **_ends(ends)})

    return Made(records, in_order(asked, made, lookup), {})


def _ends(edge: Edge) -> dict[str, Any]:
    return {"from": edge[0], "to": edge[1]}


def _require_hard(network: Network, made: Mapping[str, Sequence[Question]]) -> None:
    """Raise RetryError where an answer is the last number, or is now what it was then."""
    require_not_last(network.records, made)
    for one in made["as_of"]:
        at = one.about["at"]
        if not network.times[0] <= at < network.times[-1]:
            raise RetryError
        if network.question("as_of", {**one.about, "at": None}).answer == one.answer:
            raise RetryError


class _Search:
    """Finds pairs of nodes that make good questions."""

    def __init__(self, draws: Draws, network: Network) -> None:
        self._draws, self._network = draws, network
        self._nodes = sorted({node for edge in network.base for node in edge})
        self._asked: list[Mapping[str, Any]] = []

    def distance(self, hops: int) -> Question:
        """Return a question whose shortest path has so many connections, or what there is."""
        while True:
            for source, found, before in self._from(None):
                targets = [
                    node for node in found if node != source and len(path_to(before, node)) == hops
                ]
                if question := self._good("chain", source, targets, None):
                    return question
            if hops == 1:
                raise RetryError
            hops = longest_chain(hops, hops - 1)

    def past_distance(self, times: Sequence[int]) -> Question:
        """Return a question of a distance as of a time that is another one now."""
        at = times[int(len(times) * (0.4 + 0.5 * self._draws.random()))]
        for source, found, _ in self._from(at):
            now, _ = distances(self._network.weights_at(None), source)
            targets = [node for node, length in found.items() if length != now[node]]
            if question := self._good("as_of", source, targets, at):
                return question
        raise RetryError

    def flow(self) -> Question:
        """Return a question of a maximum flow, one that more than its ends limits if there is."""
        weights = self._network.weights_at(None)
        out: Counter[str] = Counter()
        into: Counter[str] = Counter()
        for (one, other), weight in weights.items():
            out[one] += weight
            into[other] += weight
        easy = None
        for _ in range(_SOURCES):
            source = max((self._draws.pick(self._nodes) for _ in range(3)), key=out.__getitem__)
            target = max((self._draws.pick(self._nodes) for _ in range(3)), key=into.__getitem__)
            about = {"ask": "max_flow", **_ends((source, target)), "at": None}
            value = Flow(weights, source, target).value if source != target else 0
            if not value or about in self._asked:
                continue
            if value < min(out[source], into[target]):
                break
            easy = easy or about
        else:
            if easy is None:
                raise RetryError
            about = easy
        self._asked.append(about)
        try:
            return self._network.question("flow", about)
        except ValueError as error:
            raise RetryError from error

    def _from(self, at: int | None) -> Iterator[tuple[str, dict[str, int], dict[str, str]]]:
        weights = self._network.weights_at(at)
        for _ in range(_SOURCES):
            source = self._draws.pick(self._nodes)
            yield source, *distances(weights, source)

    def _good(
        self, kind: QuestionKind, source: str, targets: Sequence[str], at: int | None
    ) -> Question | None:
        for target in self._draws.shuffled(sorted(targets))[:_TARGETS]:
            about = {"ask": "distance", **_ends((source, target)), "at": at}
            if about not in self._asked:
                question = self._network.question(kind, about)
                if question.margin:
                    self._asked.append(about)
                    return question
        return None
