"""What came instead of right answers where even the shortest documents fail."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import UNSCORED_TAGS, Verdict
from contextcliff_dagster.experiments.common.answers import read_answers
from contextcliff_dagster.redaction import redact, secrets_of
from contextcliff_dagster.reporting.html.render import visible
from contextcliff_dagster.reporting.sections import Block, Code, DataTable, Paragraph, Section

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.common.study_run import StudyRun

_SHOWN, _CHARACTERS = 3, 120
_HEAD = ("tokens", "question", "accepted", "what the model said")


def floor_sections(
    run: StudyRun, cliffs: Sequence[Cliffs], *, with_answers: bool = True
) -> list[Section]:
    """For each model at the floor, wrong answers to its shortest documents, shortened.

    Without ``with_answers``: the command that shows them.
    """
    secrets = secrets_of(os.environ)

    def shown(text: str | None) -> str:
        return redact(visible(text or ""), secrets, limit=_CHARACTERS) or "(nothing)"

    sections = []
    for result in cliffs:
        if result.verdict is not Verdict.FLOOR:
            continue
        shortest = next(b.bin for b in result.bins if b.n)
        wrong = {
            row["example_id"]: row
            for row in read_answers(run, [result.model], [shortest]).to_pylist()
            if row["question"] and row["failure"] and row["failure"] not in UNSCORED_TAGS
        }
        rows = []
        for row in sorted(wrong.values(), key=lambda row: row["length_tokens"])[:_SHOWN]:
            texts = (row["question"], " | ".join(row["accepted"] or ()), row["answer"])
            rows.append((row["length_tokens"], *map(shown, texts)))
        more = f"contextcliff answers {run.study.name} --campaign {run.campaign} --wrong"
        title = ("What ", Code(result.model), " answered to the shortest documents")
        blocks: list[Block] = [Paragraph(["All wrong answers: ", Code(more)])]
        if rows and with_answers:
            blocks.insert(0, DataTable(_HEAD, rows))
        sections.append(Section(title, blocks, first=True))
    return sections
