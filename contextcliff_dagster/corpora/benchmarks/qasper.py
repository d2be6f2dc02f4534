"""Qasper: questions about a scientific paper, answered by annotators who read all of it.

Format: a JSON object of papers by id: ``{id: {"title", "abstract", "full_text": [{"section_name",
"paragraphs": [...]}], "qas": [{"question", "question_id", "answers": [{"answer": {"unanswerable",
"extractive_spans", "yes_no", "free_form_answer", "evidence": [paragraph, ...]}}]}]}}``.
Source: Dasigi et al. 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.corpus import Asked, BenchmarkCorpus, LeftOut
from contextcliff_dagster.corpora.benchmarks.item import Item, PiecedText, answer_place
from contextcliff_dagster.corpora.readers.rows import JsonStream


class QasperCorpus(BenchmarkCorpus):
    """The document is title, abstract and sections, separated by blank lines; one paper at a time.

    Every annotator's answer is accepted: spans joined by commas, yes or no, or free text. If only
    some annotators say that the paper has no answer, the others' answers count; if all say so, the
    question is unanswerable. ``task`` is extractive, free_form, yes_no or unanswerable, by the
    first answer. Evidence is the first annotator's paragraphs, if all are in the text (a figure or
    table is not).
    """

    name = "qasper"
    lengths = "whole papers as published, without figures, tables and references"
    endings = (".json",)

    def records(self, file: Path) -> Iterator[tuple[str, Any]]:
        for place, paper, value in JsonStream(file).members():
            if not isinstance(value, dict):
                raise CorpusError(f"{place}: {paper!r} is not a paper; choose a Qasper file.")
            yield f"{place}, paper {paper}", value

    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        text = _text(record)
        for qa in record.items("qas"):
            replies = [entry.item("answer") for entry in qa.items("answers")]
            if not replies:
                yield LeftOut("without an answer in this file")
                continue
            answered = [
                (answer, *_reply(answer))
                for answer in replies
                if answer.value.get("unanswerable") is not True
            ]
            answers = tuple(text for _, text, _ in answered)
            spans = _evidence(text, answered[0][0]) if answered else []
            yield Asked(
                text=text,
                question=qa.text("question"),
                answers=answers,
                task=answered[0][2] if answered else "unanswerable",
                identity=qa.text("question_id"),
                evidence=spans,
                place=answer_place(text, spans, [*_spans(answered[0][0]), *answers])
                if answered
                else None,
                more={"paper": record.label("title")},
            )


def _text(record: Item) -> str:
    document = PiecedText()
    document.add(record.text("title"))
    if record.label("abstract").strip():
        document.add(record.text("abstract"), before="\n\n")
    for section in record.items("full_text"):
        if name := section.label("section_name"):
            document.add(name, before="\n\n")
        for paragraph in section.texts("paragraphs"):
            document.add(paragraph, before="\n\n")
    return document.text


def _reply(answer: Item) -> tuple[str, str]:
    """Return an annotator's answer and its type."""
    if spans := _spans(answer):
        return ", ".join(spans), "extractive"
    if isinstance(yes := answer.value.get("yes_no"), bool):
        return "yes" if yes else "no", "yes_no"
    return answer.text("free_form_answer"), "free_form"


def _spans(answer: Item) -> list[str]:
    return answer.texts("extractive_spans") if "extractive_spans" in answer else []


def _evidence(text: str, answer: Item) -> list[tuple[int, int]]:
    """Return the positions of the annotator's paragraphs; empty if any is not in the text."""
    pieces = answer.texts("evidence") if "evidence" in answer else []
    starts = [text.find(piece) for piece in pieces]
    if -1 in starts:
        return []
    return [(start, start + len(piece)) for start, piece in zip(starts, pieces, strict=True)]
