"""L-Eval, and JSONL in the same format: one document per line, with several questions about it.

Format: JSONL, a file a data set, of ``{"instructions": [...], "outputs": [...], "input": document,
"source", "evaluation"}``, the outputs in the order of the instructions; ``evaluation``
says how L-Eval scores them. Source: An et al. 2023, "L-Eval: Instituting Standardized Evaluation
for Long Context Language Models".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import AnswerType, Item, letters_of

MANUFACTURED = {
    "topic_retrieval_longchat": "conversations put together up to a chosen number",
    "gsm100": "a fixed set of solved examples before every question",
}
_CHOICES = ("coursera", "quality", "tpo")
_RULES = {"gsm100": "last_number", "topic_retrieval_longchat": "said"}
_NOT_SCORED = {
    "rouge": "published with ROUGE",
    "LLM": "judged by a model",
    "human": "judged by people",
}
_BY_LETTER = "\nAnswer with the letter of the right option, or all letters if several are right."
_BY_STORY = "\nAnswer True or False, by the text and not by what you know."
_OPTIONS = re.compile(r"(?<!\w)A[.):]\s.*(?<!\w)B[.):]\s", re.DOTALL)
_FACT = re.compile(r"(true|false)\s*\[fact:.*", re.IGNORECASE | re.DOTALL)


class LEvalCorpus(BenchmarkCorpus):
    """L-Eval's tasks, identified by file. Outputs that are letters (``B``, ``ACD``) are choices in
    tasks with lettered options, and in other tasks if the instruction lists lettered options.

    In ``True [fact: False]``, the answer is the first word, the one that follows the text. Records
    that L-Eval scores with ROUGE or a judge, and ``codeU`` (the output of code), are left out.
    Option ``longest_answer``: ``short`` leaves out questions whose output is longer than 200
    characters (essays, which no score of this project judges), ``any`` keeps them.
    """

    name = "l-eval"
    lengths = "whole documents"
    made_up_lengths = MANUFACTURED
    endings = (".jsonl",)
    reader_version = 2
    own_options: ClassVar = {"longest_answer": ("short", "any")}

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        document, task = record.text("input"), file.stem
        questions, outputs = record.sequence("instructions"), record.sequence("outputs")
        if len(questions) != len(outputs):
            raise record.error(f"{len(questions)} 'instructions' have {len(outputs)} 'outputs'")
        not_scored = _NOT_SCORED.get(record.label("evaluation"))
        for number, (question, output) in enumerate(zip(questions, outputs, strict=True), start=1):
            for field, text in (("instruction", question), ("output", output)):
                if not isinstance(text, str) or not text.strip():
                    raise record.error(f"{field} {number} is not text, or is empty")
            if task == "codeU" or not_scored:
                yield LeftOut(not_scored or "of codeU, whose answers are what code prints")
                continue
            asked = _question(document, task, question, output.strip())
            if len(asked.answers[0]) > 200 and self.chosen["longest_answer"] == "short":
                yield LeftOut("with an answer above 200 characters")
                continue
            yield replace(asked, source=record.label("source"))


def _question(document: str, task: str, question: str, output: str) -> Asked:
    rule = {"name": _RULES[task]} if task in _RULES else None
    result = Asked(document, question, (output,), task, rule=rule)
    if by_text := _FACT.fullmatch(output):
        answers, rule = (by_text[1],), {"name": "true_or_false"}
        return replace(result, question=question + _BY_STORY, answers=answers, rule=rule)
    choice = task in _CHOICES or _OPTIONS.search(question) is not None
    if choice and (letters := letters_of(output) or letters_of(output.split()[0])):
        kind: AnswerType = "multiple_choice"
        return replace(result, question=question + _BY_LETTER, answers=(letters,), kind=kind)
    if task == "gsm100" and (match := re.search(r"The answer is (\S+)", output)):
        return replace(result, answers=(match[1].rstrip("."),))
    return result
