"""Calls go out in blocks of every bin: time says nothing about length."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.requests.call_plan import (
    Order,
    PlannedCall,
    in_blocks,
    length_time_correlation,
)
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    openai_entry,
    plan_of,
    unreliable_server,
)

ON, OFF = Recipe(), Recipe(prefix_cache=False)


def calls_of(
    documents: dict[str, int], questions: int = 1, recipe: Recipe = ON
) -> list[PlannedCall]:
    """As a plan has them: bin after bin, each of so many documents, longer from bin to bin."""
    return [
        PlannedCall(
            call_key=f"{bin}-{document}-{question}",
            example=Example(
                f"{bin}-{document}-{question}", f"{bin}-{document}", "?", ["a"], "lookup", {}
            ),
            length_tokens=1_000 * number + 10 * ((document * 7) % count),
            bin=bin,
            rank=document * questions + question,
            replicate=0,
            recipe=recipe,
            document_text=str,
        )
        for number, (bin, count) in enumerate(documents.items(), start=1)
        for document in range(count)
        for question in range(questions)
    ]


def correlation(calls: list[PlannedCall]) -> float:
    return abs(length_time_correlation([call.length_tokens for call in calls]))


BINS = st.lists(st.integers(1, 12), min_size=1, max_size=10).map(
    lambda counts: {f"b{number:02d}": count for number, count in enumerate(counts)}
)


@given(BINS, st.integers(1, 4), st.integers(0, 5), st.sampled_from([ON, OFF]))
def test_every_call_is_there_once_in_an_order_that_the_seed_decides(
    documents: dict[str, int], questions: int, seed: int, recipe: Recipe
) -> None:
    calls = calls_of(documents, questions, recipe)
    order = in_blocks(calls, seed)
    assert sorted(call.call_key for call in order) == sorted(call.call_key for call in calls)
    assert order == in_blocks(calls, seed)


@given(BINS, st.integers(0, 5))
def test_length_and_time_are_uncorrelated(documents: dict[str, int], seed: int) -> None:
    count = sum(documents.values())
    most = 0.1 if count >= 50 else 2.0 / count**0.5
    assert correlation(in_blocks(calls_of(documents), seed)) <= most


@pytest.mark.parametrize("each", [1, 5, 20])
@pytest.mark.parametrize("seed", range(5))
def test_so_are_they_in_a_pilot_and_in_a_whole_sample(each: int, seed: int) -> None:
    documents = {f"b{number:02d}": each for number in range(10)}
    calls = calls_of(documents)
    assert correlation(calls) > 0.9
    assert correlation(in_blocks(calls, seed)) <= (0.1 if each > 1 else 0.3)


@given(BINS, st.integers(2, 4))
def test_questions_on_one_document_follow_each_other(
    documents: dict[str, int], questions: int
) -> None:
    order = in_blocks(calls_of(documents, questions), 0)
    runs = [name for name, _ in groupby(call.example.document_id for call in order)]
    assert len(runs) == len(set(runs)) == sum(documents.values())


@given(BINS, st.integers(2, 4))
def test_without_prefix_cache_they_come_a_round_of_the_bin_apart(
    documents: dict[str, int], questions: int
) -> None:
    order = in_blocks(calls_of(documents, questions, OFF), 0)
    for bin, count in documents.items():
        asked = [call.example.document_id for call in order if call.bin == bin]
        for first in range(0, len(asked), count):
            assert len(set(asked[first : first + count])) == count


def test_a_bin_with_few_documents_spreads_over_the_whole_run() -> None:
    order = in_blocks(calls_of({"b00": 40, "b01": 4}), 3)
    places = [number for number, call in enumerate(order) if call.bin == "b01"]
    assert [place * 4 // len(order) for place in places] == [0, 1, 2, 3]


def test_bins_take_turns() -> None:
    order = in_blocks(calls_of({f"b{number}": 6 for number in range(5)}), 0)
    for bin in {call.bin for call in order}:
        places = [number for number, call in enumerate(order) if call.bin == bin]
        assert max(b - a for a, b in pairwise(places)) <= 2 * 5


@pytest.mark.parametrize("order", ["blocks", "by_length"])
def test_a_run_sends_them_in_that_order(order: Order, tmp_path: Path) -> None:
    sample = LedgerSample(4, 6, max_tokens=300)
    plan = plan_of(sample, 6)
    with unreliable_server() as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1)
        measure(plan, entry, ledger, RunControl(order=order))
        rows = prediction_rows(plan, entry.name, ledger)
    asked = [row["bin"] for row in sorted(rows, key=lambda row: str(row["finished_at"]))]
    assert len(asked) == 24
    assert (asked == sorted(asked)) == (order == "by_length")
    assert len(set(asked[:8])) == (4 if order == "blocks" else 2)


def test_rounds_after_a_pilot_are_in_blocks_of_their_own(tmp_path: Path) -> None:
    sample = LedgerSample(4, 8, max_tokens=300)
    with unreliable_server() as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1)
        measure(plan_of(sample, 2), entry, ledger)
        measure(plan_of(sample, 8), entry, ledger)
        rows = prediction_rows(plan_of(sample, 8), entry.name, ledger)
    asked = [row["bin"] for row in sorted(rows, key=lambda row: str(row["finished_at"]))]
    assert len(asked) == 32
    for first in (0, 8, 16, 24):
        assert len(set(asked[first : first + 8])) == 4
