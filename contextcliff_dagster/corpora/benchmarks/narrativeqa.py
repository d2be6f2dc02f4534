"""NarrativeQA: questions on whole books and film scripts, each with two reference answers.

Format: the authors' folder: ``qaps.csv`` (``document_id, set, question, answer1, answer2, ...``)
beside the stories, ``<document_id>.content``, in any folder below (their script puts them into
``tmp/``); summaries in ``third_party/wikipedia/summaries.csv`` (``document_id, set, summary``).
Or Parquet/JSONL rows with ``document`` (``id``, ``kind``, ``text``, ``summary.text``),
``question.text`` and ``answers[].text``. Source: Kocisky et al. 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item
from contextcliff_dagster.corpora.readers.tables import READERS

_ROWS = (".jsonl", ".parquet")


class NarrativeQACorpus(BenchmarkCorpus):
    """The document is the whole story (``text: story``) or its summary (``text: summary``).

    Option ``split``: ``all`` (default), ``train``, ``valid`` or ``test``, for the folder's files.
    ``task`` is which text is read. Questions whose story is not there, or is not UTF-8, are left
    out and counted.
    """

    name = "narrativeqa"
    lengths = "whole books and film scripts as found, with whatever their files carry around them"
    endings = (".csv", ".content", ".jsonl", ".parquet")
    own_options: ClassVar = {
        "text": ("story", "summary"),
        "split": ("all", "train", "valid", "test"),
    }

    def _found(self) -> list[Path]:
        files = super()._found()
        self._stories = {file.stem: file for file in files if file.suffix == ".content"}
        self._summaries: dict[str, str] | None = None
        self._last: tuple[str, str | None] = ("", None)
        rows = any(file.name == "qaps.csv" or file.suffix in _ROWS for file in files)
        if not rows or self.path.suffix == ".csv":
            raise CorpusError(
                f"{self.path} is neither a folder with NarrativeQA's 'qaps.csv' nor rows of it."
            )
        return files

    def records(self, file: Path) -> Iterator[tuple[str, Any]]:
        if file.suffix == ".content" or (file.suffix == ".csv" and file.name != "qaps.csv"):
            return iter(())
        return super().records(file)

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        reading = self.chosen["text"]
        if file.suffix != ".csv":
            document = record.item("document")
            holder = document.item("summary") if reading == "summary" else document
            answers = tuple(answer.text("text") for answer in record.items("answers"))
            asked = record.item("question").text("text")
            yield self._question(holder.text("text"), asked, answers, document.label("kind"))
            return
        if self.chosen["split"] not in ("all", record.label("set")):
            yield LeftOut("of another split")
            return
        text = self._text(record.text("document_id"), reading)
        if text is None:
            yield LeftOut(f"whose {reading} is not there as UTF-8 text")
            return
        answers = tuple(record.text(key) for key in ("answer1", "answer2") if record.label(key))
        yield self._question(text, record.text("question"), answers, "")

    def _question(self, text: str, asked: str, answers: tuple[str, ...], kind: str) -> Asked:
        return Asked(text, asked, answers, task=self.chosen["text"], domain=kind)

    def _text(self, document: str, reading: str) -> str | None:
        """The story or summary; rows of one document follow each other, so one is kept."""
        if self._last[0] != document:
            found = self._summary(document) if reading == "summary" else self._story(document)
            self._last = document, found
        return self._last[1]

    def _story(self, document: str) -> str | None:
        file = self._stories.get(document)
        if file is None:
            return None
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            return None
        return text if text.strip() else None

    def _summary(self, document: str) -> str | None:
        if self._summaries is None:
            self._summaries = {}
            for file in self.files:
                if file.name == "summaries.csv":
                    for place, row in READERS["csv"](file):
                        item = Item(row, place)
                        self._summaries[item.text("document_id")] = item.text("summary")
        return self._summaries.get(document)
