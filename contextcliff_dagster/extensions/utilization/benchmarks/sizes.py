"""Document sizes: the number of warehouses, entities or nodes for a number of records.

A document's data depend only on its benchmark, seed and parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from math import sqrt

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    KINDS,
    Asked,
    Made,
    questions_to_ask,
)
from contextcliff_dagster.extensions.utilization.benchmarks.constraints import (
    make_constraints,
    num_facts,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    BenchmarkName,
    Draws,
    Evidence,
    QuestionKind,
    RetryError,
)
from contextcliff_dagster.extensions.utilization.benchmarks.network import make_network
from contextcliff_dagster.extensions.utilization.benchmarks.warehouse import (
    make_warehouse,
    num_transactions,
)

DEFAULTS: Mapping[BenchmarkName, Mapping[str, int]] = {
    "warehouse": {"num_warehouses": 100, "num_skus": 50, "transactions_per_wh": 400},
    "constraints": {
        "num_entities": 200,
        "num_attributes": 10,
        "attribute_domains": 8,
        "num_constraints": 2000,
    },
    "network": {"num_nodes": 500, "num_edges": 2000, "num_weight_changes": 8000},
}
"""Benchmark -> the design document's parameters."""

SMALLEST: Mapping[BenchmarkName, int] = {"warehouse": 10, "constraints": 10, "network": 14}
"""Number of records of the smallest document that holds one question of each kind."""
_ROOMY: Mapping[BenchmarkName, int] = {"warehouse": 24, "constraints": 28, "network": 45}
"""Number of records from which more than the fewest warehouses, facts or nodes are used."""

_LEAST: Mapping[BenchmarkName, Mapping[str, int]] = {
    "warehouse": {"num_warehouses": 3, "num_skus": 2, "transactions_per_wh": 1},
    "constraints": {
        "num_entities": 2,
        "num_attributes": 2,
        "attribute_domains": 3,
        "num_constraints": 4,
    },
    "network": {"num_nodes": 2, "num_edges": 2, "num_weight_changes": 4},
}
_MORE: Mapping[BenchmarkName, set[str]] = {
    "warehouse": {"num_transactions"},
    "constraints": {"num_facts"},
    "network": set(),
}
"""Parameters absent from the design document; each defaults to a value from the others."""


def records_of(name: BenchmarkName, parameters: Mapping[str, int]) -> int:
    """Return the exact number of records in a document with these parameters."""
    if name == "warehouse":
        return parameters["num_warehouses"] * parameters["num_skus"] + num_transactions(parameters)
    if name == "constraints":
        return num_facts(parameters) + parameters["num_constraints"]
    return sum(parameters[key] for key in DEFAULTS["network"])


def most_questions(name: BenchmarkName, parameters: Mapping[str, int]) -> int:
    """Return how many questions a document with these parameters can hold, whatever the seed.

    In constraints only facts can be looked up, and a count needs two of them.
    """
    if name == "constraints":
        return num_facts(parameters) - 1
    return records_of(name, parameters) // 2


def require_parameters(name: BenchmarkName, parameters: Mapping[str, int]) -> None:
    """Raise ValueError if a parameter is missing, unknown, not an integer, or too small."""
    least = dict(_LEAST[name])
    if "num_transactions" in parameters:
        least.pop("transactions_per_wh", None)
    if missing := [key for key in least if key not in parameters]:
        raise ValueError(f"the {name} benchmark needs the parameter {missing[0]!r}")
    if unknown := parameters.keys() - DEFAULTS[name].keys() - _MORE[name] - {"draw", "num_needed"}:
        raise ValueError(f"the {name} benchmark has no parameter {min(unknown)!r}")
    for key, value in parameters.items():
        if not isinstance(value, int) or value < least.get(key, 0):
            raise ValueError(
                f"{key} of the {name} benchmark is {value!r}; use a whole number from "
                f"{least.get(key, 0)}"
            )


def parameters_for(name: BenchmarkName, records: float) -> Mapping[str, int]:
    """Return the parameters of a document with ``records`` records, rounded to whole records.

    Proportions follow the design document as long as there are enough warehouses, entities or nodes
    for the questions. The last parameter makes the number of records exact. Attributes and their
    domains never shrink.

    Raises:
        ValueError: ``records`` is too small for one question of each kind.
    """
    count = round(records)
    if count < SMALLEST[name]:
        raise ValueError(
            f"the {name} benchmark needs at least {SMALLEST[name]} records, not {count}; choose a "
            "larger scale"
        )
    if name == "warehouse":
        return _warehouse(count)
    return _constraints(count) if name == "constraints" else _network(count)


def _warehouse(count: int) -> Mapping[str, int]:
    # Of 11 records of a warehouse and a SKU, 8 are drawn, 2 are other sides of transfers, and
    # 1 is the initial stock; there are twice as many warehouses as SKUs.
    skus = sqrt(count / 22)
    warehouses = max(3 if count < _ROOMY["warehouse"] else 4, round(2 * skus))
    parameters = {"num_warehouses": warehouses, "num_skus": max(2, round(skus))}
    transactions = count - warehouses * parameters["num_skus"]
    return {
        **parameters,
        "transactions_per_wh": round(transactions * 0.8 / warehouses),
        "num_transactions": transactions,
    }


def _constraints(count: int) -> Mapping[str, int]:
    facts = max(6, min(12, count * 12 // _ROOMY["constraints"]), round(count / 5))
    return {
        "num_entities": max(8, round(count / 12.5)),
        "num_attributes": DEFAULTS["constraints"]["num_attributes"],
        "attribute_domains": DEFAULTS["constraints"]["attribute_domains"],
        "num_facts": facts,
        "num_constraints": count - facts,
    }


def _network(count: int) -> Mapping[str, int]:
    nodes = max(4, min(9, count * 9 // _ROOMY["network"]), round(count / 21))
    edges = max(nodes + nodes // 2, round(count * 4 / 21))
    return {
        "num_nodes": nodes,
        "num_edges": edges,
        "num_weight_changes": count - nodes - edges,
    }


_MOST_ATTEMPTS = 200
_ATTEMPTS_WITH_LOOKUPS = 50

_MAKERS: Mapping[
    BenchmarkName,
    Callable[[Draws, Mapping[str, int], Evidence, Sequence[Asked]], Made],
] = {
    "warehouse": make_warehouse,
    "constraints": make_constraints,
    "network": make_network,
}


def generate(
    name: BenchmarkName,
    seed: int,
    parameters: Mapping[str, int],
    *,
    evidence: Evidence = "growing",
    kinds: Sequence[QuestionKind] | None = None,
    hops: Sequence[int] = (1, 2, 4, 8),
    questions: int = 4,
) -> Benchmark:
    """Return the data of one document; the same arguments give the same data on any machine.

    Args:
        name: the benchmark.
        seed: the seed of the random draws.
        parameters: the sizes, from `sizes.DEFAULTS` or `sizes.parameters_for`. Further keys:
            ``draw`` (selects another document of the same seed and sizes) and ``num_needed``
            (number of records in a sum).
        evidence: whether the number of records in a sum grows with the document.
        kinds: the question kinds; None means all kinds of the benchmark.
        hops: the lengths of chains; lengths that do not fit into the document are shortened.
        questions: the number of questions. A lookup replaces a question if the document is too
            small for another one of that kind.

    Raises:
        ValueError: the parameters fit no document, or the benchmark lacks one of ``kinds``.
    """
    require_parameters(name, parameters)
    if questions > (most := most_questions(name, parameters)):
        raise ValueError(
            f"a {name} document of {records_of(name, parameters)} records holds at most {most} "
            f"questions, not {questions}; choose a larger scale or fewer questions"
        )
    asked = questions_to_ask(name, seed, kinds, hops, questions)
    for attempt, requested in enumerate(_attempts(asked, len(set(kinds or KINDS[name])))):
        draws = Draws(name, seed, parameters.get("draw", 0), attempt)
        try:
            records, drawn, notes = _MAKERS[name](draws, parameters, evidence, requested)
        except RetryError:
            continue
        return Benchmark(
            name, seed, dict(parameters), tuple(records), tuple(drawn), evidence, notes=notes
        )
    raise ValueError(
        f"a {name} document of {records_of(name, parameters)} records is too small for {questions} "
        "questions; choose a larger scale or fewer questions"
    )


def _attempts(asked: Sequence[Asked], least: int) -> Iterator[Sequence[Asked]]:
    """Yield the questions of each attempt: as requested, then with more and more lookups.

    The first ``least`` questions stay, because they contain one of each kind. The last attempts use
    small counts: 11 facts about one attribute can never fit among 10 entities.
    """
    yield from repeat(asked, _MOST_ATTEMPTS)
    kept_count = len(asked)
    while kept_count > least:
        kept_count = max(least, kept_count // 2)
        lookups = [question._replace(kind="lookup") for question in asked[kept_count:]]
        yield from repeat([*asked[:kept_count], *lookups], _ATTEMPTS_WITH_LOOKUPS)
    yield from repeat([question._replace(luck=0.0) for question in asked], _MOST_ATTEMPTS)
