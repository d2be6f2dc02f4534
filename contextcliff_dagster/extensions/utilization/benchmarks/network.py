"""Network benchmark: shortest paths and flows over directed connections whose weights change.

Differences from the design document: the connections' records hold initial weights; events keep
every weight an integer of at least 1; questions only concern nodes with a path between them.
Connections and nodes are spread over the document instead of listed first, so that a lookup can
concern a record at any position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    START,
    Asked,
    Made,
    draw_lookup,
    in_order,
    longest_chain,
    needed_records,
    require_not_last,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Draws,
    Evidence,
    Question,
    QuestionKind,
    Record,
    RetryError,
)
from contextcliff_dagster.extensions.utilization.benchmarks.network_answers import (
    VALUES,
    Edge,
    Flow,
    Network,
    distances,
    path_to,
)

_HEAVY = 300
"""Events reduce weights above this value, so that weights stay comparable."""
_DECOYS = 2
_FEWEST_EVENTS = 2
"""Minimum number of events of a connection that a question concerns."""


class Busy(NamedTuple):
    """A connection with planned records only; ``actions`` maps its slots to actions.

    ``until``: the last slot that counts for an `as_of` question, else None.
    """

    kind: QuestionKind | None
    edge: Edge
    actions: Mapping[int, str]
    until: int | None


def draw_edges(draws: Draws, parameters: Mapping[str, int]) -> list[Edge]:
    """Return connections among all nodes: a directed tree plus random further ones.

    Raise ValueError if ``num_edges`` is too small or too large for the nodes.
    """
    nodes = draws.shuffled([f"N-{number:04d}" for number in range(parameters["num_nodes"])])
    count = parameters["num_edges"]
    if not len(nodes) - 1 <= count <= len(nodes) * (len(nodes) - 1):
        raise ValueError(f"{len(nodes)} nodes cannot have {count} connections")
    edges = {
        (nodes[draws.below(number)], node): None for number, node in enumerate(nodes) if number
    }
    choices = list(edges)
    while len(edges) < count:
        # Connections both ways mislead a reader that misses the direction.
        edge = (
            draws.pick(choices)[::-1]
            if draws.below(4) == 0
            else (draws.pick(nodes), draws.pick(nodes))
        )
        if edge[0] != edge[1] and edge not in edges:
            edges[edge] = None
            choices.append(edge)
    return draws.shuffled(list(edges))


class Plan:
    """The order of the records; slots number all records except those of nodes."""

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
        kinds = [question.kind for question in asked if question.kind in ("aggregate", "as_of")]
        events = events if events < 24 else events * 3 // 4
        kinds = kinds[: min(len(self._edges) - 1, events // _FEWEST_EVENTS)]
        room = events // max(1, len(kinds))
        needed = needed_records(self._size + parameters["num_nodes"], evidence, parameters, room)
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
        edges = set(self._edges)
        # First the connections in both directions, each pair once.
        two_way = [edge for edge in self._edges if edge[::-1] in edges and edge < edge[::-1]]
        two_way = [self._draws.pick([edge, edge[::-1]]) for edge in two_way]
        one_way = [edge for edge in self._edges if edge[::-1] not in edges]
        return [*two_way, *one_way, *(edge[::-1] for edge in two_way)][:count]

    def _plan_busy(self, kind: QuestionKind | None, edge: Edge, needed: int, room: int) -> None:
        """Plan ``needed`` records that set the weight of ``edge``, in up to ``room`` slots."""
        until, later = None, []
        stop = self._size
        if kind == "as_of":
            part = 0.4 + 0.5 * self._draws.random()
            stop = min(self._size - 1, max(needed + 2, int(part * self._size)))
            until = stop - 1
            count = max(1, min(room // 3, round((needed - 1) * (1 - part) / part)))
            later = self._draws.spread(self._taken, count, stop, self._size)
        before = min(needed, room + 1 - len(later))
        slots = self._draws.spread(self._taken, before, 0, stop)
        actions = dict.fromkeys([*slots, *later], "change")
        first = [slot for slot in range(slots[0]) if slot not in self._taken]
        if room >= before + 2 + len(later) and len(first) > 4 and self._draws.below(2):
            # Events before a set no longer matter.
            known, changed = sorted(self._draws.shuffled(first)[:2])
            self._taken.update((known, changed))
            actions.update({known: "edge", changed: "change", slots[0]: "set"})
        else:
            actions[slots[0]] = "edge"
        self.busy.append(Busy(kind, edge, actions, until))

    def write(self) -> tuple[list[Record], list[int]]:
        """Draw the unplanned records; return all records and the time of each slot."""
        draws = self._draws
        planned = {
            slot: (busy.edge, action) for busy in self.busy for slot, action in busy.actions.items()
        }
        busy = {use.edge for use in self.busy}
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
    """A builder of the network's records, with the weights so far."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._weights: dict[Edge, int] = {}
        self._nodes: set[str] = set()
        self.ts = START
        self.records: list[Record] = []

    def write(self, edge: Edge, action: str) -> None:
        """Write an event, or a connection after its nodes; "change" is add or multiply.

        Events are drawn as in the design document but keep weights whole and at least 1.
        """
        draws = self._draws
        if action == "edge":
            for node in edge:
                if node not in self._nodes:
                    self._nodes.add(node)
                    self.records.append({"type": "node", "id": node})
            weight = self._weights[edge] = draws.between(1, 100)
            self.records.append({"type": "edge", **_ends(edge), "weight": weight})
            return
        weight = self._weights[edge]
        if action == "change":
            action = draws.pick(("add", "multiply"))
        factors = [
            factor
            for factor in VALUES["multiply"]
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
        event = {"type": "event", "ts": self.ts, **_ends(edge), "action": action, "value": value}
        self.records.append(event)


_PATHS_FROM = 12
"""With this many nodes, half of the `as_of` questions ask for a path instead of a weight."""
_SOURCES = 12
_TARGETS = 4


def make_network(
    draws: Draws, parameters: Mapping[str, int], evidence: Evidence, asked: Sequence[Asked]
) -> Made:
    """Draw a network, its events, and questions; raise RetryError at a dead end."""
    paths = parameters["num_nodes"] >= _PATHS_FROM
    by_paths = [paths and question.luck < 0.5 for question in asked if question.kind == "as_of"]
    of_paths = iter(by_paths)
    questions = [question for question in asked if question.kind != "as_of" or not next(of_paths)]
    plan = Plan(draws, parameters, evidence, questions)
    records, times = plan.write()
    network = Network(records)
    by_kind: dict[str, list[Question]] = {"aggregate": [], "as_of": [], "chain": [], "flow": []}
    for busy in plan.busy:
        if busy.kind:
            at = None if busy.until is None else times[busy.until]
            about = {"ask": "weight", **_ends(busy.edge), "at": at}
            by_kind[busy.kind].append(network.question(busy.kind, about))
    search = _Search(draws, network)
    for number, by_path in enumerate(by_paths):
        if by_path:
            by_kind["as_of"].insert(number, search.past_distance(times))
    for question in asked:
        if question.kind == "chain":
            by_kind["chain"].append(search.distance(question.hops))
        elif question.kind == "flow":
            by_kind["flow"].append(search.flow())
    _require_hard(network, by_kind)
    used = {place for group in by_kind.values() for q in group for place in q.evidence}
    places = list(network.base.values())

    def lookup() -> Question:
        used.add(place := draw_lookup(draws, len(records), places, used))
        ends = (records[place]["from"], records[place]["to"])
        return network.question("lookup", {"ask": "initial_weight", **_ends(ends)})

    return Made(records, in_order(asked, by_kind, lookup), {})


def _ends(edge: Edge) -> dict[str, Any]:
    return {"from": edge[0], "to": edge[1]}


def _require_hard(network: Network, made: Mapping[str, Sequence[Question]]) -> None:
    """Raise RetryError if the last record has an answer, or an `as_of` answer is still valid."""
    require_not_last(network.records, made)
    for question in made["as_of"]:
        if not network.times[0] <= question.about["at"] < network.times[-1]:
            raise RetryError
        if network.question("as_of", {**question.about, "at": None}).answer == question.answer:
            raise RetryError


class _Search:
    """A search for pairs of nodes that make good questions."""

    def __init__(self, draws: Draws, network: Network) -> None:
        self._draws, self._network = draws, network
        self._nodes = sorted({node for edge in network.base for node in edge})
        self._asked: list[Mapping[str, Any]] = []

    def distance(self, hops: int) -> Question:
        """Return a question whose shortest path has ``hops`` connections, or fewer if necessary."""
        while True:
            for source, ahead, before in self._from(None):
                targets = [
                    node for node in ahead if node != source and len(path_to(before, node)) == hops
                ]
                if question := self._good("chain", source, targets, None):
                    return question
            if hops == 1:
                raise RetryError
            hops = longest_chain(hops, hops - 1)

    def past_distance(self, times: Sequence[int]) -> Question:
        """Return a question on a past distance that has changed since."""
        at = times[int(len(times) * (0.4 + 0.5 * self._draws.random()))]
        for source, ahead, _ in self._from(at):
            now, _ = distances(self._network.weights_at(None), source)
            targets = [node for node, length in ahead.items() if length != now[node]]
            if question := self._good("as_of", source, targets, at):
                return question
        raise RetryError

    def flow(self) -> Question:
        """Return a maximum-flow question, if possible one whose flow its end nodes do not limit."""
        weights = self._network.weights_at(None)
        out: Counter[str] = Counter()
        into: Counter[str] = Counter()
        for (start, end), weight in weights.items():
            out[start] += weight
            into[end] += weight
        fallback = None
        for _ in range(_SOURCES):
            source = max((self._draws.pick(self._nodes) for _ in range(3)), key=out.__getitem__)
            target = max((self._draws.pick(self._nodes) for _ in range(3)), key=into.__getitem__)
            about = {"ask": "max_flow", **_ends((source, target)), "at": None}
            value = Flow(weights, source, target).value if source != target else 0
            if not value or about in self._asked:
                continue
            if value < min(out[source], into[target]):
                break
            fallback = fallback or about
        else:
            if fallback is None:
                raise RetryError
            about = fallback
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
