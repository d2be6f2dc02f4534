"""Where the evidence lies, and that answers cannot be guessed."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BENCHMARKS,
    Benchmark,
    BenchmarkName,
)
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import generate, parameters_for

SEEDS = 400


@pytest.fixture(scope="module", params=BENCHMARKS)
def documents(request: pytest.FixtureRequest) -> list[Benchmark]:
    name: BenchmarkName = request.param
    return [generate(name, seed, parameters_for(name, 90)) for seed in range(SEEDS)]


def test_looked_up_records_are_as_likely_anywhere(documents: list[Benchmark]) -> None:
    parts = Counter(
        5 * one.evidence[0] // len(data.records)
        for data in documents
        for one in data.questions
        if one.kind == "lookup"
    )

    # Of 400, 80 a fifth are expected; 3.5 standard deviations are 28.
    assert all(abs(parts[part] - SEEDS / 5) < 28 for part in range(5)), parts


def test_evidence_lies_over_the_whole_length(documents: list[Benchmark]) -> None:
    places = defaultdict(list)
    for data in documents:
        for one in data.questions:
            if len(one.evidence) >= 4:
                found = [place / (len(data.records) - 1) for place in one.evidence]
                places[one.kind].append((found[0], found[-1]))
    for kind, found in places.items():
        first, last = (sum(side) / len(found) for side in zip(*found, strict=True))
        assert first < 0.3, kind
        assert last > (0.45 if kind == "as_of" else 0.7), kind


def test_no_answer_is_frequent(documents: list[Benchmark]) -> None:
    answers: dict[str, list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
    for data in documents:
        for one in data.questions:
            answers[one.kind].append((one.answer, one.choices))
    for kind, some in answers.items():
        ((most, times),) = Counter(answer for answer, _ in some).most_common(1)
        # Counts of few facts have few values; others are spread over their whole range.
        limit = {"warehouse": 0.33, "constraints": 0.35, "network": 0.06}[documents[0].name]
        assert times / len(some) < limit, (kind, most)


def test_what_the_last_record_says_is_no_answer(documents: list[Benchmark]) -> None:
    for data in documents:
        last = [str(one).lstrip("-") for one in data.records[-1].values()]
        for one in data.questions:
            assert one.kind == "lookup" or one.answer not in last


def test_what_was_is_no_longer_so(documents: list[Benchmark]) -> None:
    for data in documents:
        times = [one["ts"] for one in data.records if "ts" in one]
        for one in data.questions:
            if one.kind == "as_of":
                assert times[0] <= one.about["at"] < times[-1]
                later = {**one.about, "at": None}
                assert answer_to(data, later) != one.answer


def answer_to(data: Benchmark, about: dict[str, object]) -> str:
    from contextcliff_dagster.extensions.utilization.benchmarks.network_answers import Network
    from contextcliff_dagster.extensions.utilization.benchmarks.warehouse import Ledger

    reader = Ledger(data.records) if data.name == "warehouse" else Network(data.records)
    return reader.question("as_of", about).answer


def test_values_asked_for_are_balanced() -> None:
    places: Counter[int] = Counter()
    for seed in range(SEEDS):
        data = generate("constraints", seed, parameters_for("constraints", 60), kinds=["chain"])
        places.update(one.choices.index(one.answer) for one in data.questions)

    expected = sum(places.values()) / 8
    assert all(abs(places[place] - expected) < 0.2 * expected for place in range(8)), places


def test_hops_go_round_with_the_seed() -> None:
    hops = Counter(
        one.hops
        for seed in range(40)
        for one in generate("warehouse", seed, parameters_for("warehouse", 240)).questions
        if one.kind == "chain"
    )

    assert hops == {1: 10, 2: 10, 4: 10, 8: 10}
