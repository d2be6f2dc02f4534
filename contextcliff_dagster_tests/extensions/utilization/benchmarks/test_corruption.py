"""Changed records, and what still holds of their document."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.utilization.benchmarks.corruption import corrupt
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import generate, parameters_for
from contextcliff_dagster.extensions.utilization.verification import verify_records
from contextcliff_dagster_tests.support.examples import examples

FREE = {
    "warehouse": {"qty"},
    "constraints": {"value", "if_value", "then_value", "e1", "e2"},
    "network": {"weight", "value"},
}


@pytest.mark.parametrize("name", BENCHMARKS)
@examples(12)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(60, 300),
    share=st.sampled_from([0.02, 0.1, 0.3]),
    of=st.sampled_from(["distractors", "recomputed"]),
)
def test_a_changed_document_is_sound_and_its_answers_right(
    name: BenchmarkName, seed: int, size: int, share: float, of: Any
) -> None:
    data = generate(name, seed, parameters_for(name, size))
    try:
        changed = corrupt(data, share, of, seed)
    except ValueError:
        assert share == 0.3  # more than the records that matter to nothing
        return

    assert len(changed.corrupted) == round(share * size)
    for place, (one, other) in enumerate(zip(data.records, changed.records, strict=True)):
        assert (one != other) == (place in changed.corrupted)
        assert list(one) == list(other)
        assert {key for key in one if one[key] != other[key]} <= FREE[name]
    assert [one.about for one in changed.questions] == [one.about for one in data.questions]
    verdicts = verify_records(changed.records, name, changed.questions)
    assert all(verdict.agrees for verdict in verdicts), verdicts
    if of == "distractors":
        assert changed.questions == data.questions
        needed = {place for one in data.questions for place in one.evidence}
        assert needed.isdisjoint(changed.corrupted)
    assert corrupt(data, share, of, seed) == changed


@pytest.mark.parametrize("name", BENCHMARKS)
def test_recomputed_answers_do_change(name: BenchmarkName) -> None:
    pairs = []
    for seed in range(10):
        data = generate(name, seed, parameters_for(name, 200))
        changed = corrupt(data, 0.3, "recomputed", 0)
        pairs += list(zip(data.questions, changed.questions, strict=True))

    others = [one.answer != other.answer for one, other in pairs]
    assert 0.2 < sum(others) / len(others) < 0.95
    assert all(other.margin > 0 for _, other in pairs)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_more_than_can_be_changed_is_refused(name: BenchmarkName) -> None:
    data = generate(name, 1, parameters_for(name, 60))

    with pytest.raises(ValueError, match=rf"54 records of a {name} document of 60 cannot be"):
        corrupt(data, 0.9, "distractors", 0)
    with pytest.raises(ValueError, match="is out of range"):
        corrupt(data, 1.0, "distractors", 0)
    assert corrupt(data, 0, "distractors", 0) is data


@pytest.mark.parametrize(("seed", "share"), [(494, 0.5), (727, 0.3), (727, 0.5)])
def test_a_flow_that_no_record_alone_limits_any_more_is_drawn_again(
    seed: int, share: float
) -> None:
    data = generate("network", seed, parameters_for("network", 30), kinds=("flow",), questions=2)
    changed = corrupt(data, share, "recomputed", 0)

    assert all(one.margin > 0 and one.evidence for one in changed.questions)
