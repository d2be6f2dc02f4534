"""MuSiQue: questions of two to four hops over twenty paragraphs.

Format: JSONL of ``{"id", "question", "answer", "answer_aliases", "answerable", "paragraphs":
[{"idx", "title", "paragraph_text", "is_supporting"}], "question_decomposition": [{"question",
"answer", "paragraph_support_idx"}]}``. Source: Trivedi et al. 2022 (MuSiQue-Ans and -Full).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item, PiecedText, answer_place


class MuSiQueCorpus(BenchmarkCorpus):
    """The document consists of the paragraphs in the published order, each under its title.

    ``level`` is the number of hops, ``task`` names it (``2_hop``); the evidence is the paragraph of
    each hop, and the answer is searched for in the last one.
    """

    name = "musique"
    lengths = (
        "twenty paragraphs of Wikipedia put together by the authors, the needed ones among "
        "retrieved ones, not to reach a length"
    )

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        answerable = record.value.get("answerable", True)
        if "answer" not in record and answerable:
            yield LeftOut("without an answer in this file")
            return
        document = PiecedText()
        spans: dict[int, tuple[int, int]] = {}
        for number, paragraph in enumerate(record.items("paragraphs")):
            document.add(paragraph.text("title"), before="\n\n")
            index = paragraph.whole("idx") if "idx" in paragraph else number
            spans[index] = document.add(paragraph.text("paragraph_text"), before="\n")
        if not spans:
            raise record.error("'paragraphs' is empty")
        answers: tuple[str, ...] = ()
        if answerable:
            aliases = record.texts("answer_aliases") if "answer_aliases" in record else []
            answers = (record.text("answer"), *aliases)
        hops = list(record.items("question_decomposition"))
        # For an unanswerable question, some hop's paragraph is not among the twenty.
        indices = [
            hop.whole("paragraph_support_idx") for hop in hops if "paragraph_support_idx" in hop
        ]
        evidence = [spans[index] for index in indices if index in spans]
        if len(evidence) < len(hops):
            evidence = []
        yield Asked(
            text=document.text,
            question=record.text("question"),
            answers=answers,
            task=f"{len(hops)}_hop" if answers else "unanswerable",
            # MuSiQue-Full gives a question and its unanswerable twin the same id.
            identity=record.text("id") + ("" if answers else "-unanswerable"),
            level=len(hops) or None,
            evidence=evidence,
            place=answer_place(document.text, evidence[-1:], answers) if answers else None,
        )
