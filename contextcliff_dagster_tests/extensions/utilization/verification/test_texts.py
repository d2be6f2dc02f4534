"""Verification of texts: every format and verbosity, and faults of the text itself."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from contextcliff_dagster.extensions.utilization import verification as verifying
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BENCHMARKS,
    Benchmark,
    BenchmarkName,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import (
    FORMATS,
    Format,
    Verbosity,
)
from contextcliff_dagster.extensions.utilization.rendering.structured import parse, render
from contextcliff_dagster.extensions.utilization.verification import Verdict, Verifier
from contextcliff_dagster_tests.extensions.utilization.hand_made import document

VERBOSITIES: tuple[Verbosity, ...] = ("standard", "terse", "descriptive")


def rendered(name: BenchmarkName, format: Format, verbosity: Verbosity = "standard") -> str:
    records, questions = document(name)
    data = Benchmark(name, 7, {}, tuple(records), tuple(questions))
    return render(data, format, verbosity, "shuffled").text


@pytest.mark.parametrize(("name", "format"), list(product(BENCHMARKS, FORMATS)))
def test_every_rendering_supports_the_same_answers(name: BenchmarkName, format: Format) -> None:
    _, questions = document(name)
    for verbosity in VERBOSITIES:
        text = rendered(name, format, verbosity)
        verdicts = Verifier(name).verify(text, questions, format)
        assert all(verdict.agrees for verdict in verdicts), (verbosity, verdicts)
        assert Verifier(name).verify(text, questions) == verdicts, "the format is detected"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_text_that_cannot_be_read_supports_nothing(name: BenchmarkName) -> None:
    _, questions = document(name)
    text = rendered(name, "jsonl").replace("}\n{", "}\nand then\n{", 1)
    for verdict in Verifier(name).verify(text, questions):
        assert verdict[:4] == (None, False, False, "parse")
        assert verdict.fault.startswith("the text cannot be parsed: line 2 is not a record")
    assert not any(verdict.agrees for verdict in Verifier(name).verify("", questions)), (
        "nothing at all"
    )


def test_a_word_that_is_changed_in_prose_is_found() -> None:
    _, questions = document("warehouse")
    text = rendered("warehouse", "prose")
    assert text.count("7 units") == 1
    verdicts = Verifier("warehouse").verify(text.replace("7 units", "8 units"), questions)
    assert [verdict.agrees for verdict in verdicts].count(False) == 1


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_same_records_in_another_format_are_not_solved_again(
    name: BenchmarkName, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = []
    verify_records = verifying.verify_records

    def noted(*given: Any) -> list[Verdict]:
        solved.append(given)
        return verify_records(*given)

    monkeypatch.setattr(verifying, "verify_records", noted)
    _, questions = document(name)
    verifier = Verifier(name)
    texts = [rendered(name, format) for format in FORMATS]
    verdicts = [verifier.verify(text, questions) for text in texts]
    assert len(solved) == 1
    assert verdicts == [Verifier(name).verify(text, questions) for text in texts]
    solved.clear()
    fewer = texts[0].rpartition("\n")[0]
    for text, asked in [(fewer, questions), (texts[0], questions), (texts[0], questions[1:])]:
        assert verifier.verify(text, asked) == verify_records(parse(text, name), name, asked)
    assert len(solved) == 3, "other records or questions are solved"
