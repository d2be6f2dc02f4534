"""Made documents: what is true by construction is what follows from the text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BENCHMARKS,
    BenchmarkName,
    Evidence,
)
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import (
    generate,
    most_questions,
    parameters_for,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMATS, Format, Order
from contextcliff_dagster.extensions.utilization.rendering.structured import render
from contextcliff_dagster.extensions.utilization.verification import Verifier
from contextcliff_dagster_tests.support.examples import examples


@pytest.mark.parametrize("name", BENCHMARKS)
@examples(12)
@given(
    seed=st.integers(0, 10**6),
    records=st.integers(14, 300),
    questions=st.integers(1, 64),
    evidence=st.sampled_from(("growing", "fixed")),
    format=st.sampled_from(FORMATS),
    order=st.sampled_from(("chronological", "shuffled")),
)
@example(188, 102, 8, "growing", "jsonl", "chronological")
@example(0, 14, 64, "growing", "jsonl", "chronological")
@example(151, 71, 64, "fixed", "prose", "shuffled")
def test_a_document_of_any_size_is_supported_by_its_text_or_one_sentence(
    name: BenchmarkName,
    seed: int,
    records: int,
    questions: int,
    evidence: Evidence,
    format: Format,
    order: Order,
) -> None:
    parameters = parameters_for(name, records)
    most = most_questions(name, parameters)
    if questions > most:
        with pytest.raises(ValueError, match=f"holds at most {most} questions, not {questions};"):
            generate(name, seed, parameters, evidence=evidence, questions=questions)
        questions = most
    data = generate(name, seed, parameters, evidence=evidence, questions=questions)
    assert (len(data.records), len(data.questions)) == (records, questions)
    verdicts = Verifier(name).verify(render(data, format, "standard", order).text, data.questions)
    assert [verdict.answer for verdict in verdicts] == [one.answer for one in data.questions]
    assert all(verdict.agrees for verdict in verdicts)


@pytest.mark.parametrize("name", BENCHMARKS)
@examples(6)
@given(seed=st.integers(0, 10**6), records=st.integers(14, 200), data=st.data())
def test_a_record_that_matters_is_missed(
    name: BenchmarkName, seed: int, records: int, data: st.DataObject
) -> None:
    made = generate(name, seed, parameters_for(name, records), questions=5)
    lines = render(made, "jsonl").text.splitlines()
    for question in made.questions:
        without = data.draw(st.sampled_from(question.evidence))
        text = "\n".join(line for number, line in enumerate(lines) if number != without)
        (verdict,) = Verifier(name).verify(text, [question])
        assert not verdict.agrees, "every record of the evidence is needed"
