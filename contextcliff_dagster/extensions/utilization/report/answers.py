"""Examples of wrong answers, where a report may show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.reporting.sections import Cell, Code, DataTable, Paragraph, Section

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts import Example

MOST_WRONG = 24


class WrongAnswer(NamedTuple):
    """One answer that scored 0, as the report shows it."""

    model: str
    cell: str
    question: str
    expected: str
    answer: str | None
    failure: str | None
    needed: int | None
    evidence_position: float | None


def wrong_answers(records: pd.DataFrame, examples: Mapping[str, Example]) -> list[WrongAnswer]:
    """Return the wrong answers: the first one of each cell, then the second ones, and so on."""
    wrong = records[records["score"] == 0].sort_values(["model", "bin", "seed", "example_id"])
    turn = wrong.groupby(["model", "bin"]).cumcount()
    ordered = wrong.assign(turn=turn).sort_values("turn", kind="stable")
    columns = ["model", "bin", "expected", "raw_output", "failure", "needed", "evidence_position"]
    names = ordered["example_id"]
    return [
        WrongAnswer(
            row["model"],
            row["bin"],
            _question(examples.get(name)),
            row["expected"],
            row["raw_output"],
            row["failure"],
            row["needed"],
            row["evidence_position"],
        )
        for name, row in zip(names, ordered[columns].to_dict("records"), strict=True)
    ]


def _question(example: Example | None) -> str:
    return "" if example is None else example.question.partition("\n")[0]


def withheld(how: str) -> list[Section]:
    """In place of the examples: the command that shows them."""
    text = ("This report has no question and no answer in it. With examples of wrong ones: ",)
    return [Section("", [Paragraph([*text, Code(how)])], 3)]


def examples_shown(wrong: Sequence[WrongAnswer]) -> list[Section]:
    """A table of wrong answers, at most `MOST_WRONG`."""
    if not wrong:
        return [Section("", [Paragraph("No answer was wrong.")], 3)]
    rows: list[list[Cell]] = [
        [
            Code(one.model),
            Code(one.cell),
            one.question,
            Code(one.expected),
            None if one.answer is None else Code(_short(one.answer)),
            None if one.failure is None else one.failure.replace("_", " "),
            one.needed,
            None if one.evidence_position is None else f"{one.evidence_position:.2f}",
        ]
        for one in wrong[:MOST_WRONG]
    ]
    columns = [
        "model",
        "documents",
        "question",
        "right",
        "answer",
        "failure",
        "records that matter",
        "position of the evidence (0: start, 1: end)",
    ]
    caption = f"{len(rows)} of {len(wrong):,} wrong answers, from every format and scale in turn"
    return [Section("Wrong answers", [DataTable(columns, rows, caption, right=())], 3)]


def _short(answer: str, most: int = 160) -> str:
    line = " ".join(answer.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
