"""LongBench (version 1), LongBench v2 and LongBench Pro.

Formats: LongBench is JSONL (or Parquet), a file a data set, of ``{"input", "context", "answers":
[...], "length", "dataset", "language", "all_classes", "_id"}``. LongBench v2 is a JSON array (or
JSONL, Parquet) of ``{"_id", "domain", "sub_domain", "difficulty", "length", "question",
"choice_A" .. "choice_D", "answer": "A".."D", "context"}``; LongBench Pro one of ``{"id",
"context", "language", "token_length", "primary_task", "secondary_task", "contextual_requirement",
"question_nonthinking", "question_thinking", "answer": [...], "difficulty"}``.

Sources: Bai et al. 2023, "LongBench: A Bilingual, Multitask Benchmark for Long Context
Understanding", which also describes how contexts were built; Bai et al. 2024, "LongBench v2:
Towards Deeper Understanding and Reasoning on Realistic Long-context Multitasks"; Chen et al. 2026,
"LongBench Pro: A More Realistic and Comprehensive Bilingual Long-Context Evaluation Benchmark".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item, choice_answers, choice_question

_FILLED = "needed passages among others that were added until a length was reached"
_SHOTS = "as many solved examples put together as fill a length"
_PASSAGES = "passages put together by a program"
MANUFACTURED = {
    "hotpotqa": _FILLED,
    "2wikimqa": _FILLED,
    "musique": _FILLED,
    "trec": _SHOTS,
    "triviaqa": _SHOTS,
    "lsht": _SHOTS,
    "passage_count": _PASSAGES,
    "passage_retrieval_en": _PASSAGES,
    "passage_retrieval_zh": _PASSAGES,
}
NATURAL = ("narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh")
NOT_SCORED = {
    **dict.fromkeys(
        ("gov_report", "qmsum", "multi_news", "vcsum", "samsum", "dureader"),
        "of data sets published with ROUGE",
    ),
    **dict.fromkeys(("lcc", "repobench-p"), "of data sets of code published with edit similarity"),
}
_RULES = {
    **dict.fromkeys(
        ("passage_count", "passage_retrieval_en", "passage_retrieval_zh"), "share_of_numbers"
    ),
    **dict.fromkeys(("trec", "lsht"), "labels"),
    "triviaqa": "first_line",
}
"""Rules for the data sets whose published score is not the F1 of the whole answer."""
_QUESTIONS = {  # for data sets whose `input` alone does not state the question
    "passage_count": "How many different paragraphs does the text hold, each repeated one counted "
    "once? Answer with the number.",
    "passage_retrieval_en": "Which paragraph does this summary describe? Answer as: Paragraph 1\n"
    "{input}",
    "passage_retrieval_zh": "以下摘要描述的是哪个段落？请回答：段落1\n{input}",
    "trec": "Name the type of the last question, as in the examples.\n{input}",
    "lsht": "判断最后一篇新闻的类别。\n{input}",
}
_SCORED = {
    "T3": "answer_line",
    "T8": "any_answer_line",
    "T10": "any_answer_line",
    "T11": "answer_line",
}
"""Rules for the LongBench Pro tasks whose published score is accuracy or "SubEM"."""
_LABELS = ("difficulty", "language", "contextual_requirement")


class LongBenchCorpus(BenchmarkCorpus):
    """LongBench's data sets as tasks, except those published with ROUGE or edit similarity.

    Score it with ``f1``, which is each set's published score: token F1, the fraction of the
    answer's numbers that are right (passages, counts), or 1 / labels named (trec, lsht). ``path``
    is the folder with the files, or one of them.
    """

    name = "longbench"
    lengths = "documents as they are"
    made_up_lengths = MANUFACTURED
    endings = (".jsonl", ".parquet")
    reader_version = 2

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        task = (record.label("dataset") or file.stem).removesuffix("_e")  # LongBench-E
        if task in NOT_SCORED:
            yield LeftOut(NOT_SCORED[task])
            return
        # An unknown set may have any kind of lengths: better ask than measure.
        if task not in NATURAL and task not in MANUFACTURED:
            raise record.error(f"'dataset' is {task[:40]!r}, which is not one of LongBench's")
        answers: tuple[str, ...] = tuple(record.texts("answers"))
        if not answers:
            yield LeftOut("without an answer in this file")
            return
        if task == "qasper" and any(answer.lower() == "unanswerable" for answer in answers):
            answers = tuple(answer for answer in answers if answer.lower() != "unanswerable")
        question_input = record.label("input")
        if not question_input and task not in _QUESTIONS:
            raise record.error("there is no 'input'")
        yield Asked(
            text=record.text("context"),
            question=_QUESTIONS.get(task, "{input}").replace("{input}", question_input),
            answers=answers,
            task=task,
            identity=record.label("_id"),
            domain=record.label("language"),
            source=task,
            rule=published_rule(task, record),
        )


def published_rule(task: str, record: Item) -> dict[str, Any] | None:
    """Return a data set's rule for `scoring.scorers`; None means token F1 of the whole answer."""
    if task not in _RULES:
        return None
    labels = {"labels": record.texts("all_classes")} if "all_classes" in record else {}
    return {"name": _RULES[task], **labels}


class LongBenchV2Corpus(BenchmarkCorpus):
    """LongBench v2: ``task`` is its domain (``Single-Document QA`` ...), ``domain`` its sub-domain.

    Score it with ``em``: many wrong replies contain the letter.
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


class LongBenchProCorpus(BenchmarkCorpus):
    """LongBench Pro's primary tasks (``T3``), except those that ask for a list or a ranking.

    Questions that need several answers at once are left out as well. Option ``question``:
    ``nonthinking`` (default) or ``thinking``, the published wording with reasoning first. Both ask
    for a reply that begins with ``[Answer]``; the answer has a line of its own.
    """

    name = "longbench-pro"
    lengths = "whole documents, chosen to lie within a fifth of six lengths"
    reader_version = 2
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
                rule={"name": _SCORED[task]},
                more={key: record.label(key) for key in _LABELS},
            )
