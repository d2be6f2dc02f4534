"""HotpotQA and 2WikiMultihopQA: questions that need sentences of two or more of ten paragraphs.

Format: a JSON array of ``{"_id", "question", "answer", "type", "level", "context": [[title,
[sentence, ...]], ...], "supporting_facts": [[title, sentence number], ...]}``; or rows (JSONL,
Parquet) whose ``context`` is ``{"title": [...], "sentences": [[...]]}`` and whose
``supporting_facts`` are ``{"title": [...], "sent_id": [...]}``, with ``id``. Source: Yang et al.
2018 (HotpotQA, distractor setting); Ho et al. 2020 (2WikiMultihopQA, the same format).

MuSiQue: questions of two to four hops over twenty paragraphs.

Format: JSONL of ``{"id", "question", "answer", "answer_aliases", "answerable", "paragraphs":
[{"idx", "title", "paragraph_text", "is_supporting"}], "question_decomposition": [{"question",
"answer", "paragraph_support_idx"}]}``. Source: Trivedi et al. 2022 (MuSiQue-Ans and -Full).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item, PiecedText, answer_place


class HotpotQACorpus(BenchmarkCorpus):
    """The document consists of the ten paragraphs in the published order, each under its title.

    ``task`` is the question's type (bridge, comparison); ``level`` the number of paragraphs that it
    needs; evidence the supporting sentences, if all are in the text. Test sets without answers are
    left out.
    """

    name = "hotpotqa"
    reader_version = 2
    lengths = (
        "paragraphs of two to ten Wikipedia articles put together by the authors, the needed ones "
        "among retrieved ones, not to reach a length"
    )

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        if "answer" not in record:
            yield LeftOut("without an answer in this file")
            return
        text, spans = _put_down(record, list(_paragraphs(record)))
        facts = list(_facts(record)) if "supporting_facts" in record else []
        pieces = [spans[fact] for fact in facts if fact in spans]
        evidence = pieces if len(pieces) == len(facts) else []
        answer = record.text("answer")
        yield Asked(
            text=text,
            question=record.text("question"),
            answers=(answer,),
            task=record.label("type") or self.name,
            identity=record.label("_id") or record.label("id"),
            level=len({title for title, _ in facts}) or None,
            evidence=evidence,
            place=answer_place(text, evidence, [answer]),
            rule={"name": "closed_apart"},
            more={"difficulty": record.label("level")},
        )


class TwoWikiCorpus(HotpotQACorpus):
    """Like HotpotQA; ``task`` is compositional, inference, comparison or bridge_comparison."""

    name = "2wikimultihopqa"


def _by_title(record: Item, name: str, column: str) -> list[Any]:
    """Return (title, ``column``) pairs, stored as a list of pairs or as two columns (Parquet)."""
    if not isinstance(record.value.get(name), dict):
        return list(record.sequence(name))
    columns = record.item(name)
    return list(zip(columns.sequence("title"), columns.sequence(column), strict=False))


def _paragraphs(record: Item) -> Iterator[tuple[str, list[str]]]:
    for number, pair in enumerate(_by_title(record, "context", "sentences"), start=1):
        match pair:
            case [str(title), [*sentences]] if all(isinstance(text, str) for text in sentences):
                yield title, sentences
            case _:
                raise record.error(f"paragraph {number} is not a title with a list of sentences")


def _facts(record: Item) -> Iterator[tuple[str, int]]:
    for number, pair in enumerate(_by_title(record, "supporting_facts", "sent_id"), start=1):
        match pair:
            case [str(title), int(sentence)]:
                yield title, sentence
            case _:
                raise record.error(f"supporting fact {number} is not a title with a number")


def _put_down(
    record: Item, paragraphs: list[tuple[str, list[str]]]
) -> tuple[str, dict[tuple[str, int], tuple[int, int]]]:
    """Return the document, and the position of each sentence by (title, number)."""
    document = PiecedText()
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for title, sentences in paragraphs:
        document.add(title, before="\n\n")
        for number, sentence in enumerate(sentences):
            # HotpotQA's sentences begin with their blank, 2WikiMultihopQA's do not.
            separator = "\n" if number == 0 else "" if sentence[:1].isspace() else " "
            # If a title occurs twice, the first counts.
            spans.setdefault((title, number), document.add(sentence, before=separator))
    if not spans:
        raise record.error("'context' holds no sentence")
    return document.text, spans


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
