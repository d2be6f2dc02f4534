"""BABILong: bAbI's facts hidden in the text of books, in sizes from 0k to 10M tokens.

Format: JSON arrays (or JSONL, Parquet) of ``{"input", "question", "target"}``, in files
``qa1/4k.json`` and so on. Source: Kuratov et al. 2024, "BABILong: Testing the Limits of LLMs with
Long Context Reasoning-in-a-Haystack": every context was padded to its size with sentences from
PG-19.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item

_TASK = re.compile(r"qa\d{1,2}")
_FACTS = {"qa1": 1, "qa2": 2, "qa3": 3}
"""Number of supporting facts in each of bAbI's first tasks (Weston et al. 2015)."""

_PLACES = "bathroom bedroom garden hallway kitchen office"
_LABELS = {
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4", "qa11", "qa12", "qa13"), _PLACES),
    **dict.fromkeys(("qa6", "qa9", "qa17", "qa18"), "no yes"),
    "qa5": "Bill Fred Jeff Mary apple football milk",
    "qa7": "none one three two",
    "qa8": "apple football milk nothing",
    "qa10": "maybe no yes",
    "qa14": "bedroom cinema kitchen office park school",
    "qa15": "cat mouse sheep wolf",
    "qa16": "gray green white yellow",
    "qa19": "e,e e,n e,s n,e n,n n,w s,e s,s s,w w,n w,s w,w",
    "qa20": "bedroom bored garden hungry kitchen thirsty tired",
}
"""Possible answers for each task; a correct reply names only the accepted one (Kuratov et al.)."""


def published_rule(task: str, question: str) -> dict[str, Any] | None:
    """Return a task's rule for `scoring.scorers`; None if the task has no labels.

    Words that occur in the question do not count as answers, because a reply may repeat them.
    """
    if task not in _LABELS:
        return None
    labels = [label for label in _LABELS[task].split() if label.lower() not in question.lower()]
    return {"name": "only_label", "labels": labels}


class BabiLongCorpus(BenchmarkCorpus):
    """BABILong's tasks, named by file or folder (``qa1``); every length is manufactured."""

    name = "babilong"
    lengths = "manufactured: facts padded with text of books up to a chosen size"
    reader_version = 2

    def manufactured(self, task: str) -> str | None:
        return "a few facts padded with sentences of books up to a chosen size"

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        match = _TASK.search(file.stem) or _TASK.fullmatch(file.parent.name)
        task = match.group() if match else self.name
        question = record.text("question")
        yield Asked(
            text=record.text("input"),
            question=question,
            rule=published_rule(task, question),
            answers=(record.text("target"),),
            task=task,
            level=_FACTS.get(task),
        )
