"""The kinds of questions, and which of a file's questions are asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from contextcliff_dagster.corpora.python_source import single_hop, two_hop
from contextcliff_dagster.corpora.python_source.line_completion import LineQuestion, complete_line
from contextcliff_dagster.corpora.python_source.module import Question, SourceModule

_FROM_THE_TREE: dict[str, Callable[[SourceModule], Iterator[Question]]] = {
    "constant_value": single_hop.constant_value,
    "default_value": single_hop.default_value,
    "base_class": single_hop.base_class,
    "first_parameter": single_hop.first_parameter,
    "raised_exception": single_hop.raised_exception,
    "called_function": single_hop.called_function,
    "default_through_constant": two_hop.default_through_constant,
    "base_of_base": two_hop.base_of_base,
    "parameter_of_called": two_hop.parameter_of_called,
    "base_of_raised": two_hop.base_of_raised,
}
KINDS: tuple[str, ...] = (*_FROM_THE_TREE, "complete_line")
"""Every kind of question: the example's task."""


def choose_questions(
    module: SourceModule,
    kinds: Sequence[str],
    wording: LineQuestion,
    place: Callable[[str, str], bytes],
    most: int,
) -> list[Question]:
    """At most ``most`` questions of a file: one of each kind in turn, so that none prevails.

    ``place(kind, text)`` decides the order of the kinds (with an empty text) and, within a kind,
    that of its questions.
    """
    streams = [
        _fair(_of_kind(module, kind, wording, place))
        for kind in sorted(kinds, key=lambda kind: place(kind, ""))
    ]
    return list(islice(_distinct(_in_turn(streams)), most))


def _of_kind(
    module: SourceModule,
    kind: str,
    wording: LineQuestion,
    place: Callable[[str, str], bytes],
) -> Iterator[Question]:
    if kind == "complete_line":
        yield from complete_line(module, wording, lambda line: place(kind, line))
    else:
        asked = sorted(_FROM_THE_TREE[kind](module), key=lambda q: place(kind, q.text))
        yield from asked


def _fair(questions: Iterable[Question]) -> Iterator[Question]:
    """Without those whose answer stands in the question or is a single letter."""
    for question in questions:
        asked = question.text.casefold()
        if all(len(answer) > 1 and answer.casefold() not in asked for answer in question.answers):
            yield question


def _in_turn(streams: Iterable[Iterator[Question]]) -> Iterator[Question]:
    left = list(streams)
    while left:
        for stream in list(left):
            try:
                yield next(stream)
            except StopIteration:
                left.remove(stream)


def _distinct(questions: Iterable[Question]) -> Iterator[Question]:
    seen: set[str] = set()
    for question in questions:
        if question.text not in seen:
            seen.add(question.text)
            yield question


def order_of(seed: int, document_id: str) -> Callable[[str, str], bytes]:
    """The order of a document's questions: SHA-256 of the seed, the document, kind and text."""

    def place(kind: str, text: str) -> bytes:
        return hashlib.sha256(f"{seed}\n{document_id}\n{kind}\n{text}".encode()).digest()

    return place
