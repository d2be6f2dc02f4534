"""LongBench Pro: English and Chinese documents of six lengths from 8,000 to 256,000 tokens.

Format: a JSON array (or JSONL, Parquet) of ``{"id", "context", "language", "token_length",
"primary_task", "secondary_task", "contextual_requirement", "question_nonthinking",
"question_thinking", "answer": [...], "difficulty"}``. Source: Chen et al. 2026, "LongBench Pro: A
More Realistic and Comprehensive Bilingual Long-Context Evaluation Benchmark".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item

_SCORED = ("T3", "T8", "T10", "T11")
"""Tasks that are published with accuracy, or with whether the answer stands in the output."""
_LABELS = ("difficulty", "language", "contextual_requirement")


class LongBenchProCorpus(BenchmarkCorpus):
    """``task`` is the primary task (``T3``); those that need a list or a ranking are left out.

    So are questions with several answers, of which all would be needed. Option ``question``:
    ``nonthinking`` (default) or ``thinking``, the published wording with reasoning first. Both ask
    for a reply that begins with ``[Answer]``: score with ``contained``.
    """

    name = "longbench-pro"
    lengths = "whole documents, chosen to lie within a fifth of six lengths"
    own_options: ClassVar = {"question": ("nonthinking", "thinking")}

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        task = record.text("primary_task").split(".")[0].split()[0]
        answers = record.texts("answer")
        if task not in _SCORED:
            yield LeftOut("of tasks that need a list, a ranking or a summary")
        elif len(answers) != 1:
            yield LeftOut("with several answers that are all needed")
        else:
            yield Asked(
                text=record.text("context"),
                question=record.text(f"question_{self.chosen['question']}"),
                answers=tuple(answers),
                task=task,
                identity=record.label("id"),
                domain=record.label("secondary_task"),
                more={key: record.label(key) for key in _LABELS},
            )
