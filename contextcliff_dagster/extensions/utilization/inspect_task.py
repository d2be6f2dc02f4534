"""An inspect_ai task over the exported documents; needs only the files next to it.

    inspect eval inspect_task.py --model openai/gpt-4o-mini -T format=prose -T scale=8k

The score is 1 if the only number or value in the answer is the right one (extraction.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    Score,
    Scorer,
    Target,
    accuracy,
    grouped,
    scorer,
    stderr,
)
from inspect_ai.solver import TaskState, generate

FOLDER = Path(__file__).resolve().parent
extract_answer = run_path(str(FOLDER / "extraction.py"))["extract_answer"]


@task
def utilization(benchmark: str = "", format: str = "", scale: str = "") -> Task:
    """Ask every question about every document, or only those of a benchmark, format or scale."""
    filters = {"benchmark": benchmark, "format": format, "scale": scale}
    active_filters = {key: value for key, value in filters.items() if value}
    return Task(
        MemoryDataset(list(_samples(active_filters)), name="utilization"),
        solver=generate(),
        scorer=one_answer(),
    )


@scorer(
    metrics=[
        accuracy(),
        stderr(cluster="document_key"),
        grouped(accuracy(), "format", all=False),
    ]
)
def one_answer() -> Scorer:
    """Score 1 if the answer has exactly one number or value and it is right."""

    async def score(state: TaskState, target: Target) -> Score:
        question = state.metadata
        answer = extract_answer(state.output.completion, question["form"], question["choices"])
        correct = answer.answer == target.text
        return Score(
            value=CORRECT if correct else INCORRECT,
            answer=answer.answer,
            explanation=answer.problem and f"{answer.problem} in the answer",
        )

    return score


def _samples(chosen: dict[str, str]) -> Iterator[Sample]:
    answers = {row["question_id"]: row["answer"] for row in _rows("answers")}
    documents = {
        row["document_id"]: row
        for row in _rows("documents")
        if all(str(row[key]) == value for key, value in chosen.items())
    }
    for row in _rows("questions"):
        if (document := documents.get(row["document_id"])) is None:
            continue
        about = {key: value for key, value in {**document, **row}.items() if key not in _TEXTS}
        yield Sample(
            row["prompt"].replace("{document}", document["text"]),
            target=answers[row["question_id"]],
            id=row["question_id"],
            metadata=about,
        )


_TEXTS = ("text", "prompt", "evidence")


def _rows(name: str) -> Iterator[dict[str, Any]]:
    with (FOLDER / f"{name}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
