"""Shortest paths and maximum flows, in exact numbers."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from fractions import Fraction
from heapq import heappop, heappush

Edge = tuple[str, str]
"""Two nodes: from, to."""


def distances(weights: Mapping[Edge, int], source: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return the distance of each node that can be reached, and the node before it (Dijkstra)."""
    near: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for (one, other), weight in weights.items():
        near[one].append((other, weight))
    found: dict[str, int] = {}
    before: dict[str, str] = {}
    best = {source: 0}
    ahead = [(0, source)]
    while ahead:
        length, node = heappop(ahead)
        if node in found:
            continue
        found[node] = length
        for other, weight in near.get(node, ()):
            there = length + weight
            if other not in found and there < best.get(other, there + 1):
                best[other] = there
                before[other] = node
                heappush(ahead, (there, other))
    return found, before


def path_to(before: Mapping[str, str], target: str) -> list[Edge]:
    """Return the connections of the shortest path to ``target``, the first one first."""
    path = []
    while target in before:
        path.append((before[target], target))
        target = before[target]
    return path[::-1]


class Flow:
    """A maximum flow (Edmonds and Karp), and those of networks that differ in one capacity."""

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
        """Return the connections on which something flows."""
        return [edge for edge, most in self._capacities.items() if self._left[edge] < most]

    def value_with(self, edge: Edge, capacity: Fraction) -> Fraction | int:
        """Return the maximum flow if ``edge`` had this capacity."""
        more = capacity - self._capacities[edge]
        left = dict(self._left)
        left[edge] += more
        if left[edge] >= 0:
            most = more if more > 0 else 0
            return self.value + self._augment(left, self._source, self._target, most)
        # More flows than fits: as much as possible goes another way, the rest does not go at all.
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
        """Send as much as can flow, ``most`` at most, through what is ``left``; return it."""
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
