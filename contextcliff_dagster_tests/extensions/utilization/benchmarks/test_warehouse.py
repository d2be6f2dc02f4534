"""The ledger, replayed by other code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.utilization.benchmarks.data import Record
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import (
    DEFAULTS,
    generate,
    parameters_for,
)
from contextcliff_dagster_tests.extensions.utilization.benchmarks.removal import (
    require_exact_evidence,
)
from contextcliff_dagster_tests.support.examples import examples


def answer(records: Sequence[Record], about: dict[str, Any]) -> Any:
    here = [one for one in records if one["sku"] == about["sku"]]
    if about["ask"] == "transfers":
        warehouse, after = about["warehouse"], -1
        for _ in range(about["hops"]):
            outs = [one for one in here if one["action"] == "transfer_out"]
            outs = [one for one in outs if one["warehouse"] == warehouse and one["ts"] > after]
            if not outs:
                return None
            first = min(outs, key=lambda one: one["ts"])
            warehouse, after = first["dest"], first["ts"]
        return warehouse
    here = [one for one in here if one["warehouse"] == about["warehouse"]]
    if about["ask"] == "stock":
        until = about["at"] or 10**12
        return sum(one["qty"] for one in here if one["ts"] <= until)
    found = [
        one["qty"] for one in here if (one["ts"], one["action"]) == (about["ts"], about["action"])
    ]
    if not found:
        return None
    return found[0] if about["action"] == "adjustment" else abs(found[0])


@examples(40)
@given(st.integers(0, 10**9), st.integers(10, 300), st.sampled_from(["growing", "fixed"]))
def test_each_record_that_matters_and_no_other_changes_the_answer(
    seed: int, size: int, evidence: Any
) -> None:
    data = generate("warehouse", seed, parameters_for("warehouse", size), evidence=evidence)
    require_exact_evidence(data, answer)


@examples(25)
@given(st.integers(0, 10**9), st.integers(10, 600))
def test_the_books_are_sound(seed: int, size: int) -> None:
    data = generate("warehouse", seed, parameters_for("warehouse", size))
    stock: dict[tuple[str, str], int] = {}
    pairs = data.parameters["num_warehouses"] * data.parameters["num_skus"]
    assert [one["action"] for one in data.records].count("initial") == pairs
    for number, one in enumerate(data.records):
        pair = (one["warehouse"], one["sku"])
        if one["action"] == "initial":
            assert pair not in stock
            assert 10 <= one["qty"] <= 100
        stock[pair] = stock.get(pair, 0) + one["qty"]
        assert stock[pair] >= 0
        assert one["qty"] != 0
        if one["action"] == "transfer_out":
            other = data.records[number + 1]
            assert other == {
                "ts": one["ts"],
                "warehouse": one["dest"],
                "sku": one["sku"],
                "action": "transfer_in",
                "qty": -one["qty"],
                "source": one["warehouse"],
            }
    times = [one["ts"] for one in data.records if one["action"] != "transfer_in"][pairs:]
    assert times == sorted(set(times))


def test_the_documents_own_size() -> None:
    data = generate("warehouse", 42, DEFAULTS["warehouse"])

    assert len(data.records) == 100 * 50 + 100 * 400 * 5 // 4
    assert max(len(one.evidence) for one in data.questions) == round(0.01 * len(data.records))


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_has_decoys(seed: int) -> None:
    """Without its order of time the same transfers lead elsewhere."""
    data = generate("warehouse", seed, parameters_for("warehouse", 240), hops=[8], questions=4)
    (chain,) = [one for one in data.questions if one.kind == "chain"]
    outs = [
        one
        for one in data.records
        if one["action"] == "transfer_out" and one["sku"] == chain.about["sku"]
    ]

    assert chain.hops == len(chain.evidence) == 8
    assert len(outs) >= 20
    at_any_time = {one["warehouse"]: one["dest"] for one in reversed(outs)}
    warehouse = chain.about["warehouse"]
    path = []
    for _ in range(8):
        warehouse = at_any_time[warehouse]
        path.append(warehouse)
    on_the_way = [data.records[place]["dest"] for place in chain.evidence]
    assert path != on_the_way
