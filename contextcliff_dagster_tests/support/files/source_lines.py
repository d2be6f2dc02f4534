"""Real text for a real model: the standard library's own source, asked for its lines verbatim.

A document is one class or function of the Python that runs the tests; a question is the
beginning of one of its lines, the answer the rest. No word of it is made up.
"""

from __future__ import annotations

import argparse
import ast
import calendar
import configparser
import csv
import difflib
import fractions
import gettext
import hashlib
import inspect
import json.decoder
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

MODULES = (
    *(argparse, calendar, configparser, csv, difflib),
    *(fractions, gettext, json.decoder, shlex, textwrap),
)
SHORTEST_REST = 10
"""Characters; less might be guessed."""


@dataclass(frozen=True)
class Line:
    beginning: str
    rest: str


@dataclass(frozen=True)
class SourceDocument:
    text: str
    lines: tuple[Line, ...]

    @property
    def document_id(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def source_documents(count: int, chars: tuple[int, int], lines: int = 3) -> list[SourceDocument]:
    """The first ``count`` definitions within ``chars`` that have enough lines to ask for."""
    found = [
        SourceDocument(text, asked)
        for module in MODULES
        for text in _definitions(module)
        if chars[0] <= len(text) <= chars[1] and len(asked := _lines(text, lines)) == lines
    ]
    step = max(1, len(found) // count)
    chosen = found[::step][:count]
    assert len(chosen) == count, f"{len(found)} definitions"
    return chosen


def _definitions(module: ModuleType) -> list[str]:
    text = Path(inspect.getfile(module)).read_text(encoding="utf-8")
    kinds = (ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [
        textwrap.dedent(ast.get_source_segment(text, node, padded=True) or "") for node in nodes
    ]


def _lines(text: str, count: int) -> tuple[Line, ...]:
    """Statements of one line whose first words begin no other line of the text."""
    rows = [row.strip() for row in text.splitlines()]
    numbers = {
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and '"""' not in rows[node.lineno - 1]
    }
    found: list[Line] = []
    for number in sorted(numbers):
        words = rows[number - 1].split(" ")
        for cut in range(2, len(words)):
            beginning, rest = " ".join(words[:cut]), " ".join(words[cut:])
            if sum(row.startswith(beginning) for row in rows) == 1:
                if len(rest) >= SHORTEST_REST:
                    found.append(Line(beginning, rest))
                break
    step = max(1, len(found) // count)
    return tuple(found[::step][:count])
