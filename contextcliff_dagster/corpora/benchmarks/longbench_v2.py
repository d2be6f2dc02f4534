"""LongBench v2: multiple choice over real documents of 8,000 to 2,000,000 words.

Format: a JSON array (or JSONL, Parquet) of ``{"_id", "domain", "sub_domain", "difficulty",
"length", "question", "choice_A" .. "choice_D", "answer": "A".."D", "context"}``. Source: Bai et al.
2024, "LongBench v2: Towards Deeper Understanding and Reasoning on Realistic Long-context
Multitasks".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contextcliff_dagster.corpora.benchmarks.answers import choice_answers, choice_question
from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item


class LongBenchV2Corpus(BenchmarkCorpus):
    """``task`` is the domain (``Single-Document QA`` and so on), ``domain`` the sub-domain.

    Score it with ``em``: a letter stands inside many a wrong reply.
    """

    name = "longbench-v2"
    lengths = "documents as collected by the annotators; several together where a task needs them"

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        options = [record.text(f"choice_{letter}") for letter in "ABCD"]
        answer = record.text("answer").strip()
        if answer not in ("A", "B", "C", "D"):
            raise record.error(f"'answer' is {answer[:20]!r}, not one of A, B, C, D")
        yield Asked(
            text=record.text("context"),
            question=choice_question(record.text("question"), options),
            answers=choice_answers(options, "ABCD".index(answer)),
            task=record.label("domain") or self.name,
            identity=record.label("_id"),
            kind="multiple_choice",
            domain=record.label("sub_domain"),
            more={"difficulty": record.label("difficulty")},
        )
