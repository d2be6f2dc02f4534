"""A scale is met by a real tokenizer, with few trials; what cannot be met is one sentence."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMATS, Format
from contextcliff_dagster.extensions.utilization.rendering.structured import render
from contextcliff_dagster.extensions.utilization.scales import TOLERANCE, ScaleSolver, Wish
from contextcliff_dagster_tests.support.o200k import O200K

COUNT = O200K.count
SOLVER = ScaleSolver(COUNT)


@given(
    st.sampled_from(BENCHMARKS),
    st.integers(1_000, 20_000),
    st.integers(0, 500),
    st.sampled_from(FORMATS),
)
@example("network", 1_000, 138, "jsonl").via("no size of its first draw comes near enough")
def test_any_scale_from_1k_on_is_met(
    benchmark: BenchmarkName, tokens: int, seed: int, format: Format
) -> None:
    solved = SOLVER.solve(Wish(benchmark, tokens, seed, format=format))
    assert solved.tokens == COUNT(solved.text)
    assert abs(solved.tokens - tokens) <= TOLERANCE * tokens
    assert render(solved.data, format).text == solved.text
    assert solved.data.seed == seed


@given(st.integers(0, 200), st.sampled_from(["jsonl", "prose"]))
def test_half_a_thousand_is_met_within_half_a_record(seed: int, format: Format) -> None:
    assert abs(SOLVER.solve(Wish("warehouse", 500, seed, format=format)).tokens - 500) <= 25


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_long_document_takes_few_trials(benchmark: BenchmarkName) -> None:
    rendered: list[str] = []

    def count(text: str) -> int:
        rendered.append(text)
        return COUNT(text)

    solver = ScaleSolver(count)
    solver.solve(Wish(benchmark, 100_000, 0))
    assert len(rendered) <= 2 + 3, "two small ones, and three of the scale"
    rendered.clear()
    for seed in (1, 2):
        solver.solve(Wish(benchmark, 100_000, seed))
    assert len(rendered) <= 4


@given(
    st.lists(
        st.builds(
            Wish,
            st.sampled_from(BENCHMARKS),
            st.sampled_from([1_000, 1_500, 3_000, 8_000]),
            st.integers(0, 3),
            st.sampled_from(["growing", "fixed"]),
        ),
        min_size=2,
        max_size=6,
    )
)
def test_a_document_depends_on_none_that_was_made_before(wishes: list[Wish]) -> None:
    used = ScaleSolver(COUNT)
    for wish in wishes:
        assert used.solve(wish).text == ScaleSolver(COUNT).solve(wish).text


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_what_is_out_of_reach_is_one_sentence(benchmark: BenchmarkName) -> None:
    with pytest.raises(StudyError, match=r"200 tokens as jsonl is out of reach: the nearest one"):
        SOLVER.solve(Wish(benchmark, 200, 0))


def test_too_many_questions_are_one_sentence() -> None:
    with pytest.raises(
        StudyError, match=r"nearest one .* lower `questions` \(64\) or choose another"
    ):
        SOLVER.solve(Wish("network", 400, 0, questions=64))
