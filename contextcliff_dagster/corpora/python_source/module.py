"""What one source file defines, by its syntax tree: only names that mean one thing in the file."""

from __future__ import annotations

import ast
import math
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from contextcliff_dagster.corpora.python_source.ast_walk import Walk
from contextcliff_dagster.corpora.python_source.source_file import parse

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_BREAK = re.compile(r"\r\n|\r|\n")
LONGEST_ANSWER = 80


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its accepted answers.

    ``places``: where in the text its one or two pieces of evidence begin, in characters; the last
    one is where the answer stands.
    """

    kind: str
    text: str
    answers: tuple[str, ...]
    places: tuple[int, ...]

    @property
    def level(self) -> int:
        return len(self.places)


class Function(NamedTuple):
    """A function of the file's top level, or a method (``Class.method``) of one of its classes."""

    name: str
    node: FunctionNode
    is_method: bool


class SourceModule:
    """A parsed file.

    A name counts as known where nothing else in the whole file is bound to it: no second
    assignment, no parameter, import or local of that name. A file with ``from x import *`` has no
    such names.

    Raises:
        SkippedFileError: the text cannot be parsed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = parse(text)
        self.walk = Walk(self.tree)
        self._starts = [0, *(match.end() for match in _BREAK.finditer(text))]
        self._ascii = text.isascii()

    def line(self, number: int) -> str:
        """A line by its number (from 1) without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def line_number(self, offset: int) -> int:
        """The line, from 1, in which the character stands."""
        return bisect_right(self._starts, offset)

    def lines(self, first: int, last: int) -> tuple[int, int]:
        """Lines ``first`` to ``last`` as [start, end) in characters, without the last one's end."""
        return self._starts[first - 1], self._starts[last - 1] + len(self.line(last))

    def _at(self, line: int, column: int) -> int:
        # The tree counts a column in bytes of UTF-8.
        start = self._starts[line - 1]
        if self._ascii:
            return start + column
        return start + len(self.line(line).encode()[:column].decode(errors="ignore"))

    def offset(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        """Where the node begins, in characters."""
        return self._at(node.lineno, node.col_offset)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The node as it is written."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.text[self.offset(node) : self._at(node.end_lineno, node.end_col_offset)]

    @cached_property
    def _bound(self) -> Counter[str]:
        return self.walk.bindings()

    def is_known(self, name: str) -> bool:
        """Whether the file binds the name once."""
        return self._bound[name] == 1 and "*" not in self._bound

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes of the top level, by name."""
        nodes = (n for n in self.tree.body if isinstance(n, ast.ClassDef))
        return {node.name: node for node in nodes if self.is_known(node.name)}

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions of the top level and the methods of `classes`, by (qualified) name."""
        found = {
            node.name: Function(node.name, node, False)
            for node in self.tree.body
            if isinstance(node, FunctionNode) and self.is_known(node.name)
        }
        for owner in self.classes.values():
            bound = self.walk.bindings(owner)
            for node in owner.body:
                if isinstance(node, FunctionNode) and bound[node.name] == 1:
                    name = f"{owner.name}.{node.name}"
                    found[name] = Function(name, node, True)
        return found

    @cached_property
    def constants(self) -> dict[str, tuple[ast.stmt, tuple[str, ...]]]:
        """Names that the top level binds to a literal: the statement and the accepted answers."""
        found: dict[str, tuple[ast.stmt, tuple[str, ...]]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                target, value = node.target, node.value
            else:
                continue
            if (
                isinstance(target, ast.Name)
                and self.is_known(target.id)
                and (answers := self.literal(value))
            ):
                found[target.id] = node, answers
        return found

    def literal(self, node: ast.expr) -> tuple[str, ...] | None:
        """The accepted answers of a literal that is worth asking for, else None.

        Numbers of at least two digits, as written and as Python writes them; text of one line that
        stands in the file as it is. ``None``, ``True``, 0 and 1 anybody would guess.
        """
        try:
            value = ast.literal_eval(node)
            written = self.segment(node)
        except (ValueError, TypeError, MemoryError, RecursionError):
            return None
        if "\n" in written or "\r" in written or len(written) > LONGEST_ANSWER:
            return None
        if isinstance(value, str):
            plain = value.isprintable() and value == value.strip() and "\\" not in written
            return (value,) if plain and value in written and _says_something(value) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not math.isfinite(value) or sum(map(str.isdigit, repr(value))) < 2:
                return None
            if float(value) in (0.0, 1.0, -1.0):
                return None
            return tuple(dict.fromkeys((written, repr(value))))
        return None


def dotted(node: ast.expr | None) -> str | None:
    """``a.b.C`` of an expression that is nothing but that, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _says_something(text: str) -> bool:
    return 2 <= len(text) <= LONGEST_ANSWER and sum(map(str.isalnum, text)) >= 2
