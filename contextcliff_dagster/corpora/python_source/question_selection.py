"""The kinds of questions, and which of a file's questions are asked."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from contextcliff_dagster.corpora.python_source import questions
from contextcliff_dagster.corpora.python_source.module import SourceModule

_KINDS: dict[str, Callable[[SourceModule], questions.Questions]] = {
    "constant_value": questions.constant_value,
    "default_value": questions.default_value,
    "base_class": questions.base_class,
    "first_parameter": questions.first_parameter,
    "raised_exception": questions.raised_exception,
    "called_function": questions.called_function,
    "default_through_constant": questions.default_through_constant,
    "base_of_base": questions.base_of_base,
    "parameter_of_called": questions.parameter_of_called,
    "base_of_raised": questions.base_of_raised,
}
_LINE = "complete_line"
KINDS: tuple[str, ...] = (*_KINDS, _LINE)
"""Every kind of question: the example's task."""

_LINE_CHARACTERS = range(30, 101)
_LEAST_PART = 10
"""Characters that beginning and rest of a line have at least."""
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise, ast.Assert)
_WORD = re.compile(r"\w+")


class Question(NamedTuple):
    """A question and its accepted answers.

    ``places``: where in the text its one or two pieces of evidence begin, in characters; the last
    one is where the answer is.
    """

    kind: str
    text: str
    answers: tuple[str, ...]
    places: tuple[int, ...]

    @property
    def level(self) -> int:
        return len(self.places)


def choose_questions(
    module: SourceModule,
    kinds: Sequence[str],
    wording: str,
    place: Callable[[str, str], bytes],
    most: int,
) -> list[Question]:
    """At most ``most`` questions of a file: one of each kind in turn, so that none prevails.

    Left out are those whose answer is in the question or is a single letter. ``place(kind,
    text)`` decides the order of the kinds (with an empty text) and, within a kind, that of its
    questions.
    """
    streams = [
        _of_kind(module, kind, wording, partial(place, kind))
        for kind in sorted(kinds, key=lambda kind: place(kind, ""))
    ]
    chosen: dict[str, Question] = {}
    while streams:
        for stream in list(streams):
            if (question := next(stream, None)) is None:
                streams.remove(stream)
            else:
                chosen.setdefault(question.text, question)
            if len(chosen) == most:
                return list(chosen.values())
    return list(chosen.values())


def _of_kind(
    module: SourceModule, kind: str, wording: str, order: Callable[[str], bytes]
) -> Iterator[Question]:
    asked = (
        complete_line(module, wording, order)
        if kind == _LINE
        else sorted(_KINDS[kind](module), key=lambda one: order(one[0]))
    )
    for text, answers, nodes in asked:
        folded = text.casefold()
        if all(len(answer) > 1 and answer.casefold() not in folded for answer in answers):
            yield Question(kind, text, answers, tuple(map(module.offset, nodes)))


def complete_line(
    module: SourceModule, wording: str, order: Callable[[str], bytes]
) -> questions.Questions:
    """What is the rest of the line that begins so? In the order of the lines' ``order``.

    Asked of statements that fill one line. The beginning and the rest each occur once in the whole
    file, so that neither another line nor another place gives the answer.
    """
    lines: dict[str, ast.stmt] = {}
    for node in module.nodes:
        if isinstance(node, _SIMPLE) and node.lineno == node.end_lineno:
            line = module.line(node.lineno).strip()
            if len(line) in _LINE_CHARACTERS:
                lines[line] = node
    for line in sorted(lines, key=order):
        if module.segment(lines[line]) != line or module.text.count(line) != 1:
            continue
        if parts := _cut(line, module.text):
            beginning, rest = parts
            asked = beginning
            if wording == "sentence":
                asked = f"How does the line of this file go on that begins with `{beginning}`?"
            yield asked, (rest, line), [lines[line]]


def _cut(line: str, text: str) -> tuple[str, str] | None:
    """Beginning and rest, cut before the word nearest to the middle at which both are unique."""
    starts = [match.start() for match in _WORD.finditer(line)]
    for at in sorted(starts, key=lambda start: (abs(2 * start - len(line)), start)):
        beginning, rest = line[:at].rstrip(), line[at:]
        if min(len(beginning), len(rest)) < _LEAST_PART:
            return None
        if len(_WORD.findall(rest)) < 2 or rest.casefold() in beginning.casefold():
            continue
        if text.count(beginning) == text.count(rest) == 1:
            return beginning, rest
    return None
