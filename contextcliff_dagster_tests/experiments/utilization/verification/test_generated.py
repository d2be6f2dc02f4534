"""Made documents: what is true by construction is what follows from the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextcliff_dagster.experiments.utilization.benchmarks.data import (
    BENCHMARKS,
    BenchmarkName,
    Evidence,
)
from contextcliff_dagster.experiments.utilization.benchmarks.generate import generate
from contextcliff_dagster.experiments.utilization.benchmarks.sizes import parameters_for
from contextcliff_dagster.experiments.utilization.rendering.formats import FORMATS
from contextcliff_dagster.experiments.utilization.rendering.render import render
from contextcliff_dagster.experiments.utilization.verification.verify import verify

ROOMY = 112
"""So many records hold 8 questions of any seed; in fewer, ledgers of some seeds do not."""


@pytest.mark.parametrize("name", BENCHMARKS)
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    records=st.integers(ROOMY, 400),
    evidence=st.sampled_from(("growing", "fixed")),
    format=st.sampled_from(FORMATS),
    order=st.sampled_from(("chronological", "shuffled")),
)
def test_the_text_supports_what_is_true_by_construction(
    name: BenchmarkName, seed: int, records: int, evidence: Evidence, format: str, order: str
) -> None:
    data = generate(name, seed, parameters_for(name, records), evidence=evidence, questions=8)
    text = render(data, format, "standard", order).text  # type: ignore[arg-type]
    verdicts = verify(text, name, data.questions)
    assert [verdict.answer for verdict in verdicts] == [one.answer for one in data.questions]
    assert all(verdict.agrees for verdict in verdicts)


@pytest.mark.parametrize("name", BENCHMARKS)
@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), records=st.integers(ROOMY, 200), data=st.data())
def test_a_record_that_matters_is_missed(
    name: BenchmarkName, seed: int, records: int, data: st.DataObject
) -> None:
    made = generate(name, seed, parameters_for(name, records), questions=6)
    lines = render(made, "jsonl").text.splitlines()
    for question in made.questions:
        without = data.draw(st.sampled_from(question.evidence))
        text = "\n".join(line for number, line in enumerate(lines) if number != without)
        (verdict,) = verify(text, name, [question])
        assert not verdict.agrees, "every record of the evidence is needed"
