"""SQuAD 1.1 and 2.0: questions about a Wikipedia paragraph, answered by a span of it or not at all.

Format: the authors' JSON, ``{"version", "data": [{"title", "paragraphs": [{"context", "qas":
[{"id", "question", "is_impossible", "answers": [{"text", "answer_start"}]}]}]}]}``; or one row a
question (JSONL, Parquet) with ``id``, ``title``, ``context``, ``question`` and ``answers`` as
``{"text": [...], "answer_start": [...]}``. Source: Rajpurkar et al. 2016 (1.1); Rajpurkar, Jia and
Liang 2018 (2.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item
from contextcliff_dagster.corpora.readers.rows import JsonStream

_BETWEEN = "\n\n"


class SquadCorpus(BenchmarkCorpus):
    """One example per question; the document is the paragraph or, with ``text: article``, all of
    the article's paragraphs in SQuAD, in order. One article is in memory at a time.

    The answer's place is the first correct ``answer_start``. On articles the evidence is the
    question's paragraph, and the unanswerable questions are left out: another paragraph may answer
    them.
    """

    name = "squad"
    lengths = "paragraphs as in Wikipedia"
    own_options: ClassVar = {"text": ("paragraph", "article")}

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._whole = self.chosen["text"] == "article"
        if self._whole:
            self.lengths = "articles of Wikipedia, as many of their paragraphs as SQuAD has"

    def records(self, file: Path) -> Iterator[tuple[str, Any]]:
        if file.suffix.lower() == ".json":
            stream = JsonStream(file)
            if stream.begins_with("{"):
                return ((place, v) for place, key, v in stream.members({"data"}) if key == "data")
            return stream.values()
        return super().records(file)

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        if "paragraphs" not in record:
            if self._whole:
                raise CorpusError(
                    f"{record.place} is a row a question, in which an article's paragraphs are not "
                    "together: for 'text: article' name the authors' JSON file."
                )
            answers = record.item("answers")
            texts, starts = answers.texts("text"), answers.sequence("answer_start")
            yield self._question(record, record.text("context"), record, texts, starts)
            return
        paragraphs = list(record.items("paragraphs"))
        contexts = [paragraph.text("context") for paragraph in paragraphs]
        article = _BETWEEN.join(contexts)
        begin = 0
        for paragraph, context in zip(paragraphs, contexts, strict=True):
            text, offset = (article, begin) if self._whole else (context, 0)
            begin += len(context) + len(_BETWEEN)
            for qa in paragraph.items("qas"):
                replies = [] if qa.value.get("is_impossible") is True else list(qa.items("answers"))
                texts = [answer.text("text") for answer in replies]
                starts = [offset + answer.whole("answer_start") for answer in replies]
                if not replies and self._whole:
                    yield LeftOut("without an answer in their paragraph")
                elif not replies and qa.value.get("is_impossible") is not True:
                    yield LeftOut("without an answer in this file")
                else:
                    asked = self._question(qa, text, record, texts, starts)
                    evidence = ((offset, offset + len(context)),) if self._whole else ()
                    yield replace(asked, evidence=evidence)

    def _question(
        self, qa: Item, context: str, article: Item, texts: Sequence[str], starts: Sequence[Any]
    ) -> Asked:
        right = (
            start
            for text, start in zip(texts, starts, strict=False)
            if isinstance(start, int) and start >= 0 and context.startswith(text, start)
        )
        return Asked(
            text=context,
            question=qa.text("question"),
            answers=tuple(texts),
            task="extractive" if texts else "unanswerable",
            identity=qa.label("id"),
            level=1,
            place=next(right, None),
            domain=article.label("title"),
        )
