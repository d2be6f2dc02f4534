"""The lines of a file that answer a question, without what stands around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from contextcliff_dagster.corpora.python_source.module import SourceModule

_NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def evidence_spans(module: SourceModule, places: Sequence[int]) -> list[list[int]]:
    """The statement in which each place stands, and the headings of the functions and classes that
    it stands in: [start, end) in characters, in order, each once."""
    spans = {span for place in places for span in _spans(module, module.line_number(place))}
    return [list(span) for span in sorted(spans)]


def _spans(module: SourceModule, line: int) -> Iterator[tuple[int, int]]:
    body: Sequence[ast.stmt] = module.tree.body
    while (found := _at(body, line)) is not None:
        inner = _blocks(found)
        first = min((_first_line(block[0]) for block in inner), default=None)
        last = found.end_lineno or found.lineno
        heading = last if first is None or first <= found.lineno else first - 1
        if line <= heading:
            yield module.lines(found.lineno, heading)
            return
        if isinstance(found, _NAMED):
            yield module.lines(found.lineno, heading)
        body = [statement for block in inner for statement in block]


def _at(body: Sequence[ast.stmt], line: int) -> ast.stmt | None:
    inside = (s for s in body if _first_line(s) <= line <= (s.end_lineno or s.lineno))
    return next(inside, None)


def _first_line(statement: ast.stmt) -> int:
    decorators = statement.decorator_list if isinstance(statement, _NAMED) else []
    return min([statement.lineno, *(one.lineno for one in decorators)])


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement, those of its handlers and cases, too."""
    parts = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    found = (getattr(part, name, []) for part in parts for name in ("body", "orelse", "finalbody"))
    return [block for block in found if block]
