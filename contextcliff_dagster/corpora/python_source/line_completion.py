"""Completing a line by its beginning: verbatim recall, which the smallest models manage."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Literal

from contextcliff_dagster.corpora.python_source.module import Question, SourceModule

LineQuestion = Literal["sentence", "beginning"]
"""What is asked: a sentence, or the bare beginning for prompts that begin the answer with it."""

LINE_CHARACTERS = (30, 100)
LEAST_PART = 10
"""Characters that beginning and rest have at least."""
_STATEMENTS = (
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Expr,
    ast.Return,
    ast.Raise,
    ast.Assert,
)
_WORD = re.compile(r"\w+")


def complete_line(
    module: SourceModule, wording: LineQuestion, order: Callable[[str], bytes]
) -> Iterator[Question]:
    """What is the rest of the line that begins so? In the order of the lines' ``order``.

    Asked of statements that fill one line. The beginning and the rest each stand once in the whole
    file, so that neither another line nor another place gives the answer.
    """
    text = module.text
    lines = {}
    for node in module.walk.statements:
        if isinstance(node, _STATEMENTS) and node.lineno == node.end_lineno:
            line = module.line(node.lineno).strip()
            if LINE_CHARACTERS[0] <= len(line) <= LINE_CHARACTERS[1]:
                lines[line] = node
    for line in sorted(lines, key=order):
        node = lines[line]
        if module.segment(node) != line or text.count(line) != 1:
            continue
        if parts := _cut(line, text):
            beginning, rest = parts
            asked = beginning
            if wording == "sentence":
                asked = f"How does the line of this file go on that begins with `{beginning}`?"
            yield Question("complete_line", asked, (rest, line), (module.offset(node),))


def _cut(line: str, text: str) -> tuple[str, str] | None:
    """Beginning and rest, cut before the word nearest to the middle at which both stand alone."""
    starts = [match.start() for match in _WORD.finditer(line)]
    for at in sorted(starts, key=lambda start: (abs(2 * start - len(line)), start)):
        beginning, rest = line[:at].rstrip(), line[at:]
        if min(len(beginning), len(rest)) < LEAST_PART:
            return None
        if len(_WORD.findall(rest)) < 2 or rest.casefold() in beginning.casefold():
            continue
        if text.count(beginning) == text.count(rest) == 1:
            return beginning, rest
    return None
