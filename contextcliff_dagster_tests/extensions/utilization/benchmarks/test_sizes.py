"""Documents of any number of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import (
    DEFAULTS,
    SMALLEST,
    generate,
    parameters_for,
    records_of,
)

LAST = {
    "warehouse": "num_transactions",
    "constraints": "num_constraints",
    "network": "num_weight_changes",
}
SIZES = [*range(14, 400), *range(400, 4000, 37), *range(4000, 70_000, 1111)]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_number_of_records_is_met_and_entities_only_grow(name: BenchmarkName) -> None:
    before: Mapping[str, int] = dict.fromkeys(parameters_for(name, 14), 0)
    for size in SIZES:
        parameters = parameters_for(name, size)
        assert records_of(name, parameters) == size
        for key in parameters.keys() - {LAST[name], "transactions_per_wh"}:
            assert parameters[key] >= before[key]
        assert 0 < parameters[LAST[name]] <= size
        before = parameters


def test_proportions_are_those_of_the_design_document() -> None:
    for name in BENCHMARKS:
        size = records_of(name, DEFAULTS[name])
        assert parameters_for(name, size).items() >= DEFAULTS[name].items()
        small = parameters_for(name, size / 10)
        for key, value in DEFAULTS[name].items():
            if key in ("num_attributes", "attribute_domains"):
                assert small[key] == value
            elif name == "warehouse":  # its records are products of two parameters
                assert small[key] == pytest.approx(value / 10**0.5, rel=0.05)
            else:
                assert small[key] == pytest.approx(value / 10, rel=0.05)


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("size", [250, 1000])
def test_evidence_grows_with_the_document_or_does_not(name: BenchmarkName, size: int) -> None:
    def needed(records: int, evidence: Any) -> float:
        sums = [
            len(one.evidence)
            for seed in range(6)
            for data in [generate(name, seed, parameters_for(name, records), evidence=evidence)]
            for one in data.questions
            if one.kind == "aggregate"
        ]
        return sum(sums) / len(sums)

    assert needed(size, "fixed") == needed(10 * size, "fixed") == pytest.approx(6, abs=1)
    assert needed(4 * size, "growing") == pytest.approx(0.04 * size, rel=0.25)
    assert needed(10 * size, "growing") == pytest.approx(0.1 * size, rel=0.25)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_smallest_document_has_a_question_of_each_kind(name: BenchmarkName) -> None:
    parameters = parameters_for(name, SMALLEST[name])
    kinds = {one.kind for seed in range(50) for one in generate(name, seed, parameters).questions}
    records = records_of(name, parameters)

    assert kinds >= {"lookup", "aggregate", "chain"}
    assert ("as_of" in kinds) == (name != "constraints")
    with pytest.raises(ValueError, match=f"at least {records} records, not {records - 1}"):
        parameters_for(name, records - 1)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("warehouse", {"num_warehouses": 2}, "num_warehouses .* is 2; use a whole number from 3"),
        ("warehouse", {"num_skus": 2.5}, "num_skus .* is 2.5"),
        ("warehouse", {"skus": 3}, "has no parameter 'skus'"),
        ("constraints", {"num_attributes": 11}, "11 attributes with 8 values each are out"),
        ("constraints", {"num_facts": 3}, "of 2003 records holds at most 2 questions, not 4"),
        ("network", {"num_edges": 10**6}, "500 nodes cannot have 1000000 connections"),
        ("network", {"num_weight_changes": 0}, "use a whole number from 4"),
    ],
)
def test_parameters_of_no_document_are_refused(
    name: BenchmarkName, changes: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generate(name, 0, {**DEFAULTS[name], **changes})


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(ValueError, match="needs the parameter 'num_edges'"):
        generate("network", 0, {"num_nodes": 5, "num_weight_changes": 9})
