"""NarrativeQA: questions about whole books and film scripts, each with two reference answers.

Format: the authors' folder: ``qaps.csv`` (``document_id, set, question, answer1, answer2, ...``)
next to the stories, ``<document_id>.content``, in any folder below (their script puts them into
``tmp/``); summaries in ``third_party/wikipedia/summaries.csv`` (``document_id, set, summary``).
Or Parquet/JSONL rows with ``document`` (``id``, ``kind``, ``text``, ``summary.text``),
``question.text`` and ``answers[].text``. Source: Kocisky et al. 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item
from contextcliff_dagster.corpora.readers.rows import READERS

_ROWS = (".jsonl", ".parquet")


class NarrativeQACorpus(BenchmarkCorpus):
    """The document is the whole story (``text: story``) or its summary (``text: summary``).

    Option ``split``: ``all`` (default), ``train``, ``valid`` or ``test``, for the folder's files.
    ``task`` is the kind of text. Questions whose story is missing, or is not UTF-8, are left out
    and counted.
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
        self._text = lru_cache(maxsize=1)(self._read_text)  # rows of one document follow each other
        rows = any(file.name == "qaps.csv" or file.suffix in _ROWS for file in files)
        if not rows or self.path.suffix == ".csv":
            raise CorpusError(
                f"{self.path} is neither a folder with NarrativeQA's 'qaps.csv' (next to its "
                "stories, .content) nor rows of it (.jsonl, .parquet); choose one of these."
            )
        self._refuse_no_texts(files)
        return files

    def _refuse_no_texts(self, files: Sequence[Path]) -> None:
        names = {file.name for file in files}
        if "qaps.csv" not in names or any(file.suffix in _ROWS for file in files):
            return
        if self.chosen["text"] == "summary" and "summaries.csv" not in names:
            raise CorpusError(
                f"{self.path} holds NarrativeQA's questions and not its summaries: put "
                "third_party/wikipedia/summaries.csv of the authors' folder there."
            )
        if self.chosen["text"] == "story" and not self._stories:
            raise CorpusError(
                f"{self.path} holds NarrativeQA's questions and not its stories (.content): fetch "
                "them with the authors' download_stories.sh, or ask about the summaries (in a "
                "study: corpus.text: summary)."
            )

    def records(self, file: Path) -> Iterator[tuple[str, Any]]:
        if file.suffix == ".content" or (file.suffix == ".csv" and file.name != "qaps.csv"):
            return iter(())
        return super().records(file)

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        text_kind = self.chosen["text"]
        if file.suffix != ".csv":
            document = record.item("document")
            text = (document.item("summary") if text_kind == "summary" else document).text("text")
            answers = tuple(answer.text("text") for answer in record.items("answers"))
            question = record.item("question").text("text")
            yield Asked(text, question, answers, text_kind, domain=document.label("kind"))
        elif self.chosen["split"] not in ("all", record.label("set")):
            yield LeftOut("of another split")
        elif story := self._text(record.text("document_id")):
            keys = (key for key in ("answer1", "answer2") if record.label(key))
            yield Asked(story, record.text("question"), tuple(map(record.text, keys)), text_kind)
        else:
            yield LeftOut(f"whose {text_kind} is not there as UTF-8 text")

    def _read_text(self, document: str) -> str | None:
        """Return the story or summary; None if it is missing or not UTF-8."""
        if self.chosen["text"] == "summary":
            return self._summary(document)
        try:
            text = self._stories[document].read_text(encoding="utf-8-sig")
        except (KeyError, OSError, UnicodeDecodeError):
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
