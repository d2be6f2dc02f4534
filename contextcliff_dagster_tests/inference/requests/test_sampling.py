"""Rounds of sampling: the same prompt under another seed, each a call of its own, sent in full."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.engines.base import Decoding
from contextcliff_dagster.inference.engines.openai.wire_format import request
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.requests.call_plan import plan_calls
from contextcliff_dagster.inference.requests.recipe import Recipe, Sampling
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    faulty_server,
    openai_entry,
    plan_of,
    read_log,
    reference_entry,
)

ROUNDS = Recipe(temperature=0.8, max_output_tokens=8, sampling=Sampling(40, 0.9, seed=7, rounds=3))
SAMPLINGS = st.builds(
    Sampling,
    st.integers(0, 500),
    st.floats(0.01, 1),
    st.integers(0, 10**6),
    st.integers(1, 50),
)


@given(SAMPLINGS, st.floats(0, 2))
def test_a_recipe_with_sampling_is_written_and_read(drawn: Sampling, temperature: float) -> None:
    recipe = Recipe(temperature=temperature, sampling=drawn)
    assert Recipe.from_dict(json.loads(recipe.body)) == recipe
    assert recipe.replicates == drawn.rounds


@given(SAMPLINGS)
def test_another_round_is_another_call_and_more_rounds_leave_the_earlier_ones_paid(
    drawn: Sampling,
) -> None:
    recipe = Recipe(temperature=1.0, sampling=drawn)
    more = Recipe(temperature=1.0, sampling=replace(drawn, rounds=drawn.rounds + 1))
    hashes = [more.replicate_hash(number) for number in range(more.replicates)]
    assert len(set(hashes)) == len(hashes)
    assert hashes[:-1] == [recipe.replicate_hash(number) for number in range(recipe.replicates)]


@pytest.mark.parametrize("change", [{"top_k": 3}, {"top_p": 0.5}, {"seed": 8}])
def test_what_decides_the_tokens_decides_the_call(change: dict[str, Any]) -> None:
    drawn = replace(ROUNDS.sampling or Sampling(), **change)
    assert replace(ROUNDS, sampling=drawn).replicate_hash(0) != ROUNDS.replicate_hash(0)
    hotter = replace(ROUNDS, temperature=0.9)
    assert hotter.replicate_hash(0) != ROUNDS.replicate_hash(0)


def test_a_recipe_without_sampling_keeps_its_hash() -> None:
    assert "sampling" not in Recipe().to_dict()
    assert Recipe().replicate_hash(0) == (
        "65240f1dc99ed936c5a0d942ad80a24c7f7b0ad72018f017d61278837729550d"
    )


@pytest.mark.parametrize(
    "wrong",
    [{"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"seed": -1}, {"rounds": 0}, {"rounds": 5000}],
)
def test_a_value_out_of_bounds_is_one_sentence(wrong: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match=rf"^{next(iter(wrong))} is .* it should be "):
        Sampling(**wrong)


def test_rounds_and_wordings_exclude_each_other_and_heat_has_a_limit() -> None:
    with pytest.raises(StudyError, match="one instruction"):
        Recipe(instructions=("a", "b"), sampling=Sampling())
    for temperature in (-0.1, 2.5, float("nan")):
        with pytest.raises(StudyError, match="from 0 to 2"):
            Recipe(temperature=temperature)


def body_of(dialect: str = "plain", **quirks: str) -> dict[str, Any]:
    entry = openai_entry("http://127.0.0.1:9/v1", quirks=quirks)
    decoding = Decoding(8, 0.8, sampling=ROUNDS.sampling)
    _, parts = request(entry, ROUNDS.render("d", "q"), decoding, dialect)
    body: dict[str, Any] = json.loads(b"".join(parts))
    return body


def test_all_parameters_are_sent_and_hidden_defaults_are_off() -> None:
    body = body_of()
    assert (body["temperature"], body["top_k"], body["top_p"], body["seed"]) == (0.8, 40, 0.9, 7)
    assert "min_p" not in body, "OpenAI's interface has no such parameter"
    for dialect in ("llamacpp", "vllm", "koboldcpp"):
        assert body_of(dialect)["min_p"] == 0.0
    assert not {"top_k", "seed"} & body_of(top_k="omit", seed="omit").keys()


def test_each_round_is_sent_with_its_seed_once(tmp_path: Path) -> None:
    sample, log = LedgerSample(1, 2), tmp_path / "log.jsonl"
    with faulty_server(["ok"], log) as url, Ledger.open(tmp_path / "ledger.db") as ledger:
        for _ in range(2):  # the second time everything is known
            summary = measure(plan_of(sample, 2, ROUNDS), openai_entry(url), ledger)
    seeds = [line["body"]["seed"] for line in read_log(log) if "body" in line]
    assert sorted(seeds) == [7, 7, 8, 8, 9, 9]
    assert summary.cached == 6
    assert len({call.call_key for call in plan_calls(sample, "i", ROUNDS, "c", ["b00"], 2)}) == 6


def test_an_engine_that_draws_nothing_refuses_before_it_starts(tmp_path: Path) -> None:
    sample = LedgerSample(1, 1)
    with (
        Ledger.open(tmp_path / "ledger.db") as ledger,
        pytest.raises(EngineError, match="only gives the likeliest tokens"),
    ):
        measure(plan_of(sample, 1, ROUNDS), reference_entry(), ledger)


def test_a_refused_parameter_names_the_setting_that_avoids_it(tmp_path: Path) -> None:
    sample = LedgerSample(1, 1)
    with (
        faulty_server(["400_top_k"]) as url,
        Ledger.open(tmp_path / "ledger.db") as ledger,
        pytest.raises(EngineError, match=r"quirks: \{top_k: omit\}"),
    ):
        measure(plan_of(sample, 1, ROUNDS), openai_entry(url), ledger)
