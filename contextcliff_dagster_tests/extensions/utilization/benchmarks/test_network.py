"""The network, replayed and searched by other code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.utilization.benchmarks.data import Record
from contextcliff_dagster.extensions.utilization.benchmarks.network_answers import Flow
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import (
    DEFAULTS,
    generate,
    parameters_for,
)
from contextcliff_dagster_tests.extensions.utilization.benchmarks.removal import (
    require_exact_evidence,
)
from contextcliff_dagster_tests.support.examples import examples

Edge = tuple[str, str]


def weights(records: Sequence[Record], at: int | None) -> dict[Edge, Fraction]:
    found: dict[Edge, Fraction] = {}
    for one in records:
        if one["type"] == "node" or (at is not None and one.get("ts", 0) > at):
            continue
        edge = (one["from"], one["to"])
        if one["type"] == "edge":
            found[edge] = Fraction(one["weight"])
        elif one["action"] == "set":
            found[edge] = Fraction(one["value"])
        elif edge in found:
            value = Fraction(one["value"])
            found[edge] = found[edge] + value if one["action"] == "add" else found[edge] * value
    return found


def shortest(lengths: dict[Edge, Fraction], source: str, target: str) -> Fraction | None:
    """Bellman and Ford; of paths, so that a connection made negative goes round in no circle."""
    best = {source: (Fraction(0), [source])}
    for _ in range(len({node for edge in lengths for node in edge}) - 1):
        for (one, other), length in lengths.items():
            if one in best and other not in best[one][1]:
                there = best[one][0] + length, [*best[one][1], other]
                best[other] = min(best.get(other, there), there)
    return best[target][0] if target in best else None


def flow(capacities: dict[Edge, Fraction], source: str, target: str) -> Fraction:
    """Ford and Fulkerson by depth first, on a full matrix."""
    left: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for (one, other), capacity in capacities.items():
        left[one][other] += max(Fraction(0), capacity)
        left[other][one] += 0

    def send(node: str, some: Fraction, seen: set[str]) -> Fraction:
        if node == target:
            return some
        seen.add(node)
        for other, capacity in list(left[node].items()):
            if capacity > 0 and other not in seen:
                sent = send(other, min(some, capacity), seen)
                if sent:
                    left[node][other] -= sent
                    left[other][node] += sent
                    return sent
        return Fraction(0)

    total = Fraction(0)
    while sent := send(source, Fraction(10**9), set()):
        total += sent
    return total


def answer(records: Sequence[Record], about: dict[str, Any]) -> Any:
    ends = (about["from"], about["to"])
    if about["ask"] == "initial_weight":
        found = [
            one["weight"]
            for one in records
            if one["type"] == "edge" and (one["from"], one["to"]) == ends
        ]
        return found[0] if found else None
    now = weights(records, about["at"])
    if about["ask"] == "weight":
        return now.get(ends)
    return (shortest if about["ask"] == "distance" else flow)(now, *ends)


@examples(40)
@given(st.integers(0, 10**9), st.integers(14, 130), st.sampled_from(["growing", "fixed"]))
@example(seed=46511, size=60, evidence="growing")  # without a record a circle is below 0
@example(seed=3738, size=65, evidence="growing")  # without a record a connection is
def test_each_record_that_matters_and_no_other_changes_the_answer(
    seed: int, size: int, evidence: Any
) -> None:
    parameters = parameters_for("network", size)
    data = generate("network", seed, parameters, evidence=evidence, questions=5)
    require_exact_evidence(data, answer)


@examples(25)
@given(st.integers(0, 10**9), st.integers(14, 800))
def test_weights_stay_whole_and_positive(seed: int, size: int) -> None:
    data = generate("network", seed, parameters_for("network", size))
    nodes: set[str] = set()
    now: dict[Edge, float] = {}
    last = 0
    for one in data.records:
        if one["type"] == "node":
            assert one["id"] not in nodes
            nodes.add(one["id"])
            continue
        edge = (one["from"], one["to"])
        assert nodes.issuperset(edge)
        if one["type"] == "edge":
            assert edge not in now
            now[edge] = one["weight"]
        else:
            assert one["ts"] > last
            last = one["ts"]
            before = now[edge]
            after = {
                "set": one["value"],
                "add": before + one["value"],
                "multiply": before * one["value"],
            }[one["action"]]
            assert after == int(after) >= 1
            assert after != before
            now[edge] = after
    assert len(nodes) == data.parameters["num_nodes"]
    assert len(now) == data.parameters["num_edges"]


def test_the_documents_own_size() -> None:
    data = generate("network", 42, DEFAULTS["network"])

    assert len(data.records) == 500 + 2000 + 8000


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")).filter(
            lambda e: e[0] != e[1]
        ),
        st.integers(1, 9),
        min_size=1,
    ),
    st.fractions(0, 20, max_denominator=4),
)
def test_a_flow_with_one_other_capacity_is_that_of_the_other_network(
    capacities: dict[Edge, int], other: Fraction
) -> None:
    found = Flow(capacities, "a", "b")
    exact = {edge: Fraction(capacity) for edge, capacity in capacities.items()}
    assert found.value == flow(exact, "a", "b")
    for edge in capacities:
        assert found.value_with(edge, other) == flow({**exact, edge: other}, "a", "b")
