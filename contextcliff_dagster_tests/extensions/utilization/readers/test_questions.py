"""Every question that can be asked is read back to what it asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.utilization.benchmarks.asking import question_text
from contextcliff_dagster.extensions.utilization.benchmarks.data import ASKS, DOMAINS, SCHEMAS
from contextcliff_dagster.extensions.utilization.readers import parse_question

BENCHMARK_OF = {
    "units": "warehouse", "stock": "warehouse", "transfers": "warehouse",
    "value": "constraints", "facts": "constraints",
    "initial_weight": "network", "weight": "network", "distance": "network", "max_flow": "network",
}  # fmt: skip


def code(letters: str) -> st.SearchStrategy[str]:
    return st.integers(0, 12_345).map(lambda number: f"{letters}-{number:04d}")


TIME = st.integers(1_704_067_200, 4_000_000_000)
PLACES: dict[str, st.SearchStrategy[Any]] = {
    "warehouse": code("WH"), "sku": code("SKU"), "entity": code("E"), "from": code("N"),
    "to": code("N"), "ts": TIME, "at": st.none() | TIME, "hops": st.integers(1, 16),
    "action": st.sampled_from([spec.name for spec in SCHEMAS["warehouse"]]),
    "attr": st.sampled_from(sorted(DOMAINS)),
}  # fmt: skip


@st.composite
def an_about(draw: st.DrawFn) -> dict[str, Any]:
    ask = draw(st.sampled_from(sorted(ASKS)))
    about: dict[str, Any] = {"ask": ask}
    for name in ASKS[ask]:
        values = st.sampled_from(DOMAINS[about["attr"]]) if name == "value" else PLACES[name]
        about[name] = draw(values)
    return about


@given(an_about())
def test_a_question_is_read_back(about: dict[str, Any]) -> None:
    assert ASKS.keys() == BENCHMARK_OF.keys()
    text = question_text(about)
    for prompt in (text, f"Some document.\n\nQuestion: {text}\nAnswer with just the number:"):
        asked = parse_question(prompt)
        assert asked is not None
        assert asked == (BENCHMARK_OF[about["ask"]], about)


@given(an_about(), an_about())
def test_of_two_questions_the_first_is_read(one: dict[str, Any], other: dict[str, Any]) -> None:
    asked = parse_question(f"{question_text(one)} {question_text(other)}")
    assert asked is not None
    assert asked.about == one


@pytest.mark.parametrize("text", ["", "How are you?", "What is the stock of it?"])
def test_what_asks_for_nothing_is_no_question(text: str) -> None:
    assert parse_question(text) is None
