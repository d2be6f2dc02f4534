"""L-Eval, and JSONL in its form: one document a line with several questions on it.

Format: JSONL, a file a data set, of ``{"instructions": [...], "outputs": [...], "input": document,
"source", "evaluation"}``, the outputs in the order of the instructions. Source: An et al. 2023,
"L-Eval: Instituting Standardized Evaluation for Long Context Language Models".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item

_LETTER = frozenset("ABCDEFGH")
MANUFACTURED = {
    "topic_retrieval_longchat": "conversations put together up to a chosen number",
    "gsm100": "a fixed set of solved examples before every question",
    "codeU": "functions of a library put together around the ones asked about",
}


class LEvalCorpus(BenchmarkCorpus):
    """``task`` is the file's name. Outputs that are letters (``B``, ``ACD``) count as choices.

    Option ``longest_answer``: ``short`` leaves out questions whose output is longer than 200
    characters (summaries and essays, which no score of this project judges), ``any`` keeps them.
    """

    name = "l-eval"
    lengths = "whole documents, except for the data sets that its authors put together"
    made_up_lengths = MANUFACTURED
    endings = (".jsonl",)
    own_options: ClassVar = {"longest_answer": ("short", "any")}

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        document = record.text("input")
        questions, outputs = record.sequence("instructions"), record.sequence("outputs")
        if len(questions) != len(outputs):
            raise record.error(f"{len(questions)} 'instructions' have {len(outputs)} 'outputs'")
        for number, (question, output) in enumerate(zip(questions, outputs, strict=True), start=1):
            for what, text in (("instruction", question), ("output", output)):
                if not isinstance(text, str) or not text.strip():
                    raise record.error(f"{what} {number} is not text with something in it")
            if len(output) > 200 and self.chosen["longest_answer"] == "short":
                yield LeftOut("with an answer above 200 characters")
                continue
            yield Asked(
                text=document,
                question=question,
                answers=(output.strip(),),
                task=file.stem,
                kind="multiple_choice" if set(output.strip()) <= _LETTER else None,
                source=record.label("source"),
            )
