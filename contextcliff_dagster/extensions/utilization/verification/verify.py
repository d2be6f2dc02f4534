"""Whether the text of a document supports the answers to its questions, and only them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from contextcliff_dagster.contracts import VerificationError
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BenchmarkName,
    Question,
    Record,
)
from contextcliff_dagster.extensions.utilization.rendering.formats import Format
from contextcliff_dagster.extensions.utilization.verification.solution import Solution, solver_for


class Verdict(NamedTuple):
    """What the text says about one question.

    Attributes:
        answer: the answer that the text allows; None where it allows none or cannot be read.
        unique: it allows no other.
        agrees: it is unique, the answer of the question, and the document is valid.
        method: how the answer was found.
        fault: what is wrong where ``agrees`` is false, a phrase.
    """

    answer: str | None
    unique: bool
    agrees: bool
    method: str
    fault: str = ""


def verify(
    text: str,
    benchmark: BenchmarkName,
    questions: Sequence[Question],
    format: Format | None = None,
) -> list[Verdict]:
    """Return the verdict on each question, from the rendered ``text`` alone.

    Of a question `Question.about` is solved; `Question.answer` is compared with what comes out.
    ``format`` None: it is detected.

    Raises:
        StudyError: OR-tools is not installed (constraints only).
    """
    return Verifier(benchmark).verify(text, questions, format)


class Verifier:
    """Verifies texts one after the other, such as the same records in several formats.

    Each text is read in full; where its records and the questions are those of the text before,
    in the same order, so are the verdicts, and nothing is solved again.
    """

    def __init__(self, benchmark: BenchmarkName) -> None:
        self.benchmark = benchmark
        self._before: tuple[list[Record], Sequence[Question], list[Verdict]] | None = None

    def verify(
        self, text: str, questions: Sequence[Question], format: Format | None = None
    ) -> list[Verdict]:
        """Return the verdict on each question; see `verify`."""
        from contextcliff_dagster.extensions.utilization.rendering.structured import parse

        try:
            records = parse(text, self.benchmark, format)
        except ValueError as error:
            fault = f"it cannot be read: {error}"
            return [Verdict(None, False, False, "parse", fault)] * len(questions)
        if self._before is None or self._before[:2] != (records, questions):
            verdicts = verify_records(records, self.benchmark, questions)
            self._before = (records, questions, verdicts)
        return self._before[2]


def verify_records(
    records: Sequence[Record], benchmark: BenchmarkName, questions: Sequence[Question]
) -> list[Verdict]:
    """Return the verdict on each question, from records that were read back; see `verify`."""
    solver = solver_for(records, benchmark)
    if faults := solver.faults() if records else ["it has no records"]:
        fault = "; ".join(faults)
        return [Verdict(None, False, False, "records", fault)] * len(questions)
    solutions = solver.solve([question.about for question in questions])
    return [_verdict(one, of) for one, of in zip(questions, solutions, strict=True)]


def _verdict(question: Question, solution: Solution) -> Verdict:
    values, method = solution
    if not values:
        return Verdict(None, False, False, method, "the text does not answer it")
    if len(values) > 1:
        shown = " and ".join(values)
        answer = question.answer if question.answer in values else values[0]
        return Verdict(answer, False, False, method, f"both {shown} are possible")
    agrees = values[0] == question.answer
    fault = "" if agrees else f"the answer is {values[0]}, not {question.answer}"
    return Verdict(values[0], True, agrees, method, fault)


def require_agreement(
    verdicts: Sequence[Verdict],
    questions: Sequence[Question],
    benchmark: BenchmarkName,
    seed: int,
    where: str = "",
) -> None:
    """Raise VerificationError for the first question whose verdict disagrees.

    ``where``: which rendering it is, such as "prose, 8k".
    """
    for question, verdict in zip(questions, verdicts, strict=True):
        if not verdict.agrees:
            of = f" ({where})" if where else ""
            raise VerificationError(
                f"The {benchmark} document of seed {seed}{of} fails its own verification by "
                f"{verdict.method}: {verdict.fault} (question: {question.text!r}); this is a fault "
                "of this program, please report it with this sentence."
            )
