"""Statements, and what follows from them by a solver that knows nothing of chains."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.utilization.benchmarks.data import DOMAINS, Benchmark
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import (
    DEFAULTS,
    generate,
    parameters_for,
)
from contextcliff_dagster.extensions.utilization.verification import solver_for
from contextcliff_dagster_tests.support.examples import examples


def possible(data: Benchmark, about: Any, missing: int | None = None) -> tuple[str, ...]:
    records = [one for place, one in enumerate(data.records) if place != missing]
    ((values, _),) = solver_for(records, "constraints").solve([about])
    return values


@examples(10)
@given(st.integers(0, 10**9), st.integers(10, 90), st.sampled_from(["growing", "fixed"]))
def test_each_record_that_matters_and_no_other_leaves_the_value_open(
    seed: int, size: int, evidence: Any
) -> None:
    data = generate("constraints", seed, parameters_for("constraints", size), evidence=evidence)
    for one in data.questions:
        assert possible(data, one.about) == (one.answer,)
        for place in range(len(data.records)):
            kept = possible(data, one.about, missing=place) == (one.answer,)
            assert kept == (place not in one.evidence), (one, place)


@pytest.mark.parametrize("seed", range(6))
def test_the_margin_counts_the_values_that_become_possible(seed: int) -> None:
    data = generate("constraints", seed, parameters_for("constraints", 300), kinds=["chain"])
    for one in data.questions:
        entity, attr = one.about["entity"], one.about["attr"]
        counts = []
        for place in one.evidence:
            rest = [*data.records[:place], *data.records[place + 1 :]]
            stated = [
                {"type": "fact", "entity": entity, "attr": attr, "value": value}
                for value in DOMAINS[attr]
            ]
            open_values = [
                fact["value"]
                for fact in stated
                if solver_for([*rest, fact], "constraints").solve([one.about])[0][0]
            ]
            counts.append(len(open_values) - 1)
        assert min(counts) == one.margin


@example(159, 128)
@examples(25)
@given(st.integers(0, 10**9), st.integers(10, 600))
def test_numbers_are_met_and_all_is_true_of_one_assignment(seed: int, size: int) -> None:
    data = generate("constraints", seed, parameters_for("constraints", size))
    types = Counter(one["type"] for one in data.records)
    assert types.pop("fact") == data.parameters["num_facts"]
    assert sum(types.values()) == data.parameters["num_constraints"]
    assert max(types.values()) - min(types.values()) <= 1
    digits = iter(data.notes["assignment"])
    truth = {
        (f"E-{entity:04d}", attr): DOMAINS[attr][int(next(digits))]
        for entity in range(data.parameters["num_entities"])
        for attr in DOMAINS
    }
    for one in data.records:
        if one["type"] in ("fact", "neq"):
            same = truth[one["entity"], one["attr"]] == one["value"]
            assert same == (one["type"] == "fact")
        elif one["type"] == "impl":
            holds = truth[one["if_entity"], one["if_attr"]] == one["if_value"]
            then = truth[one["then_entity"], one["then_attr"]] == one["then_value"]
            assert then or not holds
        else:
            assert (one["a1"] == one["a2"]) == (one["type"] == "eq")
            assert truth[one["e1"], one["a1"]] == truth[one["e2"], one["a2"]]


def test_a_chain_may_begin_with_all_that_a_value_is_not() -> None:
    parameters = parameters_for("constraints", 400)
    chains = [
        [data.records[place] for place in one.evidence]
        for seed in range(10)
        for data in [generate("constraints", seed, parameters)]
        for one in data.questions
        if one.kind == "chain"
    ]
    begun = [some for some in chains if all(one["type"] != "fact" for one in some)]

    assert 0 < len(begun) < len(chains)
    assert all(sum(one["type"] == "neq" for one in some) == 7 for some in begun)


def test_the_documents_own_size() -> None:
    data = generate("constraints", 42, DEFAULTS["constraints"])

    assert len(data.records) == 2000 + 200 * 10 // 4
