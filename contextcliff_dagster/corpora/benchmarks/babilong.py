"""BABILong: bAbI's facts hidden in text of books, in sizes from 0k to 10M tokens.

Format: JSON arrays (or JSONL, Parquet) of ``{"input", "question", "target"}``, in files
``qa1/4k.json`` and so on. Source: Kuratov et al. 2024, "BABILong: Testing the Limits of LLMs with
Long Context Reasoning-in-a-Haystack": every context was filled up to its size with sentences of
PG-19.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item

_TASK = re.compile(r"qa\d{1,2}")
_FACTS = {"qa1": 1, "qa2": 2, "qa3": 3}
"""Supporting facts of bAbI's first tasks (Weston et al. 2015)."""


class BabiLongCorpus(BenchmarkCorpus):
    """``task`` is bAbI's (``qa1``), by the name of file or folder; all are manufactured."""

    name = "babilong"
    lengths = "manufactured: facts padded with text of books up to a chosen size"

    def manufactured(self, task: str) -> str | None:
        return "a few facts padded with sentences of books up to a chosen size"

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        named = _TASK.search(file.stem) or _TASK.fullmatch(file.parent.name)
        task = named.group() if named else self.name
        yield Asked(
            text=record.text("input"),
            question=record.text("question"),
            answers=(record.text("target"),),
            task=task,
            level=_FACTS.get(task),
        )
