"""LongBench (the first): twenty-one data sets in one format.

Format: JSONL (or Parquet), a file a data set, of ``{"input", "context", "answers": [...],
"length", "dataset", "language", "all_classes", "_id"}``. Source: Bai et al. 2023, "LongBench: A
Bilingual, Multitask Benchmark for Long Context Understanding", which also describes how contexts
were built.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item

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
_NOT_SCORED = {  # published with ROUGE or edit similarity
    *("gov_report", "qmsum", "multi_news", "vcsum", "samsum", "dureader", "lcc", "repobench-p"),
}
_QUESTIONS = {  # where `input` alone does not say what is wanted
    "passage_count": "How many different paragraphs does the text hold, each repeated one counted "
    "once? Answer with the number.",
    "passage_retrieval_en": "Which paragraph does this summary describe? Answer as: Paragraph 1\n"
    "{input}",
    "passage_retrieval_zh": "以下摘要描述的是哪个段落？请回答：段落1\n{input}",
    "trec": "Name the type of the last question, as in the examples.\n{input}",
    "lsht": "判断最后一篇新闻的类别。\n{input}",
}


class LongBenchCorpus(BenchmarkCorpus):
    """``task`` is the data set; those published with ROUGE or edit similarity are left out.

    ``path`` is the folder with the files, or one of them.
    """

    name = "longbench"
    lengths = (
        "natural for narrativeqa, qasper and multifieldqa; manufactured for the others that are "
        "scored here"
    )
    endings = (".jsonl", ".parquet")

    def manufactured(self, task: str) -> str | None:
        return MANUFACTURED.get(task)

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        task = (record.label("dataset") or file.stem).removesuffix("_e")  # LongBench-E
        if task in _NOT_SCORED:
            yield LeftOut("of data sets without short answers")
            return
        # A set that is not known may be of any making: better asked about than measured.
        if task not in NATURAL and task not in MANUFACTURED:
            raise record.error(f"'dataset' is {task[:40]!r}, which is none of LongBench's")
        answers: tuple[str, ...] = tuple(record.texts("answers"))
        if not answers:
            yield LeftOut("without an answer in this file")
            return
        if task == "qasper" and any(answer.lower() == "unanswerable" for answer in answers):
            answers = tuple(answer for answer in answers if answer.lower() != "unanswerable")
        given = record.label("input")
        if not given and task not in _QUESTIONS:
            raise record.error("there is no 'input'")
        yield Asked(
            text=record.text("context"),
            question=_QUESTIONS.get(task, "{input}").replace("{input}", given),
            answers=answers,
            task=task,
            identity=record.label("_id"),
            domain=record.label("language"),
            source=task,
        )
