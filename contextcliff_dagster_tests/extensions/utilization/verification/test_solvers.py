"""The solvers against plain counting and trying out, on random records."""

from __future__ import annotations

import sys
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.utilization import verification
from contextcliff_dagster.extensions.utilization.benchmarks.data import DOMAINS
from contextcliff_dagster.extensions.utilization.verification import solver_for
from contextcliff_dagster_tests.extensions.utilization.hand_made import document
from contextcliff_dagster_tests.extensions.utilization.records import make_record
from contextcliff_dagster_tests.support.examples import examples

ENTITIES = ("E-0000", "E-0001")
ATTRIBUTES = ("color", "accent")
VARIABLES = list(product(ENTITIES, ATTRIBUTES))
COLORS = DOMAINS["color"]
a_variable = st.sampled_from(VARIABLES)
a_color = st.sampled_from(COLORS[:3])


@st.composite
def a_constraint(draw: st.DrawFn) -> dict[str, Any]:
    (e1, a1), (e2, a2) = draw(a_variable), draw(a_variable)
    kind = draw(st.sampled_from(("fact", "neq", "neq", "eq", "mut", "impl", "impl")))
    if kind in ("fact", "neq"):
        return make_record("constraints", kind, entity=e1, attr=a1, value=draw(a_color))
    if kind == "impl":
        return make_record(
            "constraints", kind, if_entity=e1, if_attr=a1, if_value=draw(a_color),
            then_entity=e2, then_attr=a2, then_value=draw(a_color),
        )  # fmt: skip
    return make_record("constraints", kind, e1=e1, a1=a1, e2=e2, a2=a2)


def holds(record: dict[str, Any], world: dict[tuple[str, str], Any]) -> bool:
    if record["type"] in ("fact", "neq"):
        same = world[record["entity"], record["attr"]] == record["value"]
        return same == (record["type"] == "fact")
    if record["type"] == "impl":
        if world[record["if_entity"], record["if_attr"]] != record["if_value"]:
            return True
        return bool(world[record["then_entity"], record["then_attr"]] == record["then_value"])
    return bool(world[record["e1"], record["a1"]] == world[record["e2"], record["a2"]])


def named(record: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (record[entity], record[attribute])
        for entity, attribute in (
            ("entity", "attr"), ("e1", "a1"), ("e2", "a2"),
            ("if_entity", "if_attr"), ("then_entity", "then_attr"),
        )
        if entity in record
    }  # fmt: skip


@examples(40)
@given(st.lists(a_constraint(), min_size=1, max_size=12))
def test_constraints_are_solved_as_by_trying_every_assignment(
    records: list[dict[str, Any]],
) -> None:
    variables = sorted(set().union(*map(named, records)))
    worlds = [
        world
        for colors in product(COLORS, repeat=len(variables))
        if (world := dict(zip(variables, colors, strict=True)))
        and all(holds(record, world) for record in records)
    ]
    solver = solver_for(records, "constraints")
    assert solver.faults() == ([] if worlds else ["its constraints contradict each other"])
    if not worlds:
        return
    abouts = [{"ask": "value", "entity": e, "attr": a} for e, a in VARIABLES]
    for about, (values, _) in zip(abouts, solver.solve(abouts), strict=True):
        variable = (about["entity"], about["attr"])
        possible = {str(world[variable]) for world in worlds} if variable in variables else set()
        assert set(values) <= possible
        assert len(values) == min(2, len(possible))


@examples(40)
@given(st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda pair: pair[0] != pair[1]),
    st.integers(1, 100), min_size=1, max_size=14,
))  # fmt: skip
def test_distances_and_flows_are_those_of_plain_search(edges: dict[tuple[int, int], int]) -> None:
    names = [f"N-{number:04d}" for number in range(6)]
    records = [
        *(make_record("network", "node", id=name) for name in names),
        *(
            make_record("network", "edge", from_=names[one], to=names[two], weight=weight)
            for (one, two), weight in edges.items()
        ),
    ]
    solver = solver_for(records, "network")
    assert solver.faults() == []
    about = {"from": names[0], "to": names[5], "at": None}
    (distance,), (flow,) = (
        solver.solve([{**about, "ask": ask}])[0].values or ("none",)
        for ask in ("distance", "max_flow")
    )
    shortest = {0: 0}
    for _ in names:  # Bellman and Ford
        for (one, two), weight in edges.items():
            if one in shortest:
                shortest[two] = min(shortest.get(two, 10**9), shortest[one] + weight)
    assert distance == str(shortest.get(5, "none"))
    cuts = (
        sum(w for (one, two), w in edges.items() if one in side and two not in side)
        for chosen in product((False, True), repeat=4)
        for side in [{0, *(n for n, taken in enumerate(chosen, 1) if taken)}]
    )
    assert flow == str(min(cuts)), "the smallest of all cuts"


def test_weights_beyond_exact_arithmetic_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    records, _ = document("network")
    monkeypatch.setattr(verification, "_MOST_CAPACITY", 20)
    about = {"ask": "max_flow", "from": "N-0000", "to": "N-0003", "at": None}
    with pytest.raises(ValueError, match="the weights add up to 100, more than"):
        solver_for(records, "network").solve([about])


def test_a_question_may_have_two_answers_or_none() -> None:
    records, _ = document("constraints")
    abouts = [{"ask": "value", "entity": f"E-{n:04d}", "attr": "size"} for n in (5, 77)]
    solutions = solver_for(records, "constraints").solve(abouts)
    assert [len(values) for values, _ in solutions] == [2, 0]


def test_without_or_tools_only_constraints_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("ortools")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ortools", None)
    for name in ("warehouse", "network"):
        records, (question, *_) = document(name)
        ((values, _),) = solver_for(records, name).solve([question.about])
        assert values == (question.answer,)
    records, (question, *_) = document("constraints")
    with pytest.raises(StudyError, match=r"pip install 'contextcliff-dagster\[utilization\]'"):
        solver_for(records, "constraints").solve([question.about])


@examples(15)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_stocks_and_chains_are_those_of_a_replay(seed: int, hops: int) -> None:
    random = Random(seed)
    places = [f"WH-{number:04d}" for number in range(5)]
    stock = dict.fromkeys(places, 900)
    values = {"sku": "SKU-0000"}
    records = [
        make_record("warehouse", "initial", ts=0, warehouse=place, qty=900, **values)
        for place in places
    ]
    at_half = stock
    for ts in range(1, 201):  # enough for DuckDB to plan as for a long document
        giver, taker = random.sample(places, 2)
        for name, end, other, where, qty in (
            ("transfer_out", giver, "dest", taker, -2), ("transfer_in", taker, "source", giver, 2),
        ):  # fmt: skip
            given = {"ts": ts, "warehouse": end, "qty": qty, other: where, **values}
            records.append(make_record("warehouse", name, **given))
        stock = {**stock, giver: stock[giver] - 2, taker: stock[taker] + 2}
        at_half = stock if ts <= 100 else at_half
    place, after, steps = places[0], -1, 0
    for record in records:
        leaves = record["action"] == "transfer_out" and record["warehouse"] == place
        if leaves and record["ts"] > after and steps < hops:
            place, after, steps = record["dest"], record["ts"], steps + 1
    solver = solver_for(random.sample(records, len(records)), "warehouse")
    assert solver.faults() == []
    where = {"warehouse": places[0], "sku": "SKU-0000"}
    found = solver.solve([
        {"ask": "stock", **where, "at": None},
        {"ask": "stock", **where, "at": 100},
        {"ask": "transfers", **where, "hops": hops},
    ])  # fmt: skip
    expected = [str(stock[places[0]]), str(at_half[places[0]]), place]
    assert [values for values, _ in found] == [(answer,) for answer in expected]
