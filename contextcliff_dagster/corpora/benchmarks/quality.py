"""QuALITY: multiple choice about articles and stories of roughly 5,000 tokens.

Format: JSONL, one set of questions on an article a line: ``{"article_id", "set_unique_id",
"title", "source", "topic", "article", "questions": [{"question", "question_unique_id", "options":
[4 texts], "gold_label": 1..4, "difficult": 0|1}]}``. Source: Pang et al. 2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item, choice_answers, choice_question


class QualityCorpus(BenchmarkCorpus):
    """QuALITY: ``task`` is ``hard`` (most readers short of time failed) or ``easy``.

    Score it with ``em``: many wrong replies contain the letter. The test set has no labels and is
    left out.
    """

    name = "quality"
    lengths = "whole articles and stories, chosen by the authors for their length, not altered"
    endings = (".jsonl", ".json", ".parquet", ".train", ".dev", ".test")

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        article = record.text("article")
        for question in record.items("questions"):
            if "gold_label" not in question:
                yield LeftOut("without a label in this file")
                continue
            options = question.texts("options")
            right = question.whole("gold_label") - 1
            if not 0 <= right < len(options):
                raise question.error(
                    f"'gold_label' is {right + 1}, of {len(options)} options that are not blank"
                )
            yield Asked(
                text=article,
                question=choice_question(question.text("question"), options),
                answers=choice_answers(options, right),
                task="hard" if question.value.get("difficult") == 1 else "easy",
                identity=question.label("question_unique_id"),
                kind="multiple_choice",
                domain=record.label("topic"),
                source=record.label("source"),
            )
