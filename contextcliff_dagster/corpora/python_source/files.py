"""Python files below a folder, and the definitions in each, taken from its syntax tree."""

from __future__ import annotations

import ast
import io
import math
import os
import re
import sysconfig
import tokenize
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster.corpora.corpus import seeded_place

SKIPPED: dict[str, str] = {
    "outside": "behind links out of the folder",
    "unreadable": "not readable",
    "too_short": "shorter than min_bytes",
    "too_long": "longer than max_bytes",
    "long_lines": "data or generated (a line above 2,000 characters)",
    "empty": "empty",
    "not_text": "not text in the encoding that they declare",
    "not_python": "not Python of this version",
    "too_deep": "nested too deeply",
    "duplicate": "the same as another",
    "no_question": "without a question",
}
"""Why a file is left out, in the words of the report."""

_PRUNED = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
_LONGEST_LINE = 2_000
"""Maximum length of a line in characters; longer lines are data tables or bundled programs."""
LINE_BREAK = re.compile(r"\r\n|\r|\n")


class SkippedFileError(Exception):
    """Raised for a file that is left out; ``reason`` is a key of `SKIPPED`."""

    def __init__(self, reason: str) -> None:
        super().__init__(SKIPPED[reason])
        self.reason = reason


class Root(NamedTuple):
    """A folder, and the label that its files' names begin with (``stdlib/json/decoder.py``)."""

    label: str
    folder: Path


class SourceFile(NamedTuple):
    """A file to be read; ``name`` is its root's label plus its path below, with slashes."""

    name: str
    path: Path


def installed_roots(label: str) -> list[Root]:
    """Return those folders of the interpreter's ``stdlib`` or ``site-packages`` that exist."""
    paths = sysconfig.get_paths()
    names = ("stdlib",) if label == "stdlib" else ("purelib", "platlib")
    folders = dict.fromkeys(Path(paths[name]).resolve() for name in names if name in paths)
    return [Root(label, folder) for folder in folders if folder.is_dir()]


def find_files(roots: list[Root], seed: int, skipped: Counter[str]) -> list[SourceFile]:
    """Return every ``.py`` file below the roots, ordered by SHA-256 of seed and file name.

    Links are followed only if they stay below their root. Omitted files are counted in ``skipped``:
    ``outside`` (a link that leads out of the root), ``unreadable`` (a folder that cannot be listed,
    or a path that is not a regular file).
    """
    files = {file.path: file for root in roots for file in _below(root, skipped)}
    return sorted(
        files.values(), key=lambda file: (seeded_place(seed, "file", file.name), file.name)
    )


def _below(root: Root, skipped: Counter[str]) -> Iterator[SourceFile]:
    home = root.folder.resolve()
    for folder, folders, files in os.walk(home, onerror=lambda _: skipped.update(["unreadable"])):
        folder_path = Path(folder)
        # Without a venv, the installed packages lie inside the standard library's folder.
        folders[:] = sorted(n for n in folders if n not in _PRUNED and not n.startswith("."))
        skipped.update("outside" for name in folders if _leads_out(folder_path / name, home))
        for path in sorted(folder_path / name for name in files if name.endswith(".py")):
            if _leads_out(path, home):
                skipped["outside"] += 1
            elif not path.is_file():  # opening a pipe or a device would block
                skipped["unreadable"] += 1
            else:
                # File names are bytes: a name that is not UTF-8 must not break a hash or a table.
                below = os.fsencode(path.relative_to(home)).decode(errors="replace")
                yield SourceFile(f"{root.label}/{below.replace(os.sep, '/')}", path)


def _leads_out(path: Path, home: Path) -> bool:
    with suppress(OSError, RuntimeError):  # a link to itself
        return path.is_symlink() and not path.resolve().is_relative_to(home)
    return True


def read_bytes(path: Path, min_bytes: int, max_bytes: int) -> bytes:
    """Read the file's bytes, at most one more than ``max_bytes``.

    Raises:
        SkippedFileError: it cannot be read, or its size is outside the limits.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise SkippedFileError("unreadable") from error
    if len(content) > max_bytes:
        raise SkippedFileError("too_long")
    if not content.strip():
        raise SkippedFileError("empty")
    if len(content) < min_bytes:
        raise SkippedFileError("too_short")
    return content


def decoded(content: bytes) -> str:
    """Decode the bytes by their declared encoding (PEP 263; UTF-8), keeping the line ends.

    A byte order mark is part of the encoding, not of the text.

    Raises:
        SkippedFileError: they are not text, or data rather than source.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
        text.encode()  # some encodings (unicode_escape) can give half a surrogate pair
    except (SyntaxError, UnicodeError, LookupError, ValueError, AssertionError) as error:
        raise SkippedFileError("not_text") from error
    if not isinstance(text, str) or "\0" in text:
        raise SkippedFileError("not_text")
    if max(map(len, LINE_BREAK.split(text))) > _LONGEST_LINE:
        raise SkippedFileError("long_lines")
    return text


def parsed(text: str) -> ast.Module:
    """Parse the text to a syntax tree; it is neither compiled nor executed.

    Raises:
        SkippedFileError: it is not Python, or nested too deeply for the parser.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # escapes and the like in others' files
            return ast.parse(text)
    except (RecursionError, MemoryError) as error:
        raise SkippedFileError("too_deep") from error
    except (SyntaxError, ValueError) as error:
        raise SkippedFileError("not_python") from error


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Located = ast.expr | ast.stmt | ast.arg
_LONGEST_ANSWER = 80
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TYPE_PARAMETERS = [
    getattr(ast, name) for name in ("TypeVar", "ParamSpec", "TypeVarTuple") if hasattr(ast, name)
]  # since Python 3.12
_BIND_BY_NAME = (*_DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, *_TYPE_PARAMETERS)
_NOT_WALKED = frozenset(("ctx", "op", "ops"))
_SCOPES = frozenset((*_DEFINITIONS, ast.Lambda))
_BLOCKS = ("body", "orelse", "finalbody")


class Function(NamedTuple):
    """A function at the file's top level, or a method (``Class.method``) of a top-level class.

    ``calls`` and ``raises`` come from its body, and are empty if it defines functions or classes.
    """

    name: str
    node: FunctionNode
    is_method: bool
    calls: list[ast.Call]
    raises: list[ast.Raise]


class SourceModule:
    """A parsed Python file.

    A name counts as known if the whole file binds it only once: there is no second assignment, and
    no parameter, import or local of that name. A file with ``from x import *`` has no known names.

    Raises:
        SkippedFileError: the text cannot be parsed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = parsed(text)
        self._starts = [0, *(match.end() for match in LINE_BREAK.finditer(text))]
        self._ascii = text.isascii()

    def line(self, number: int) -> str:
        """Return a line by its number (from 1), without its line end."""
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def _at(self, line: int, column: int) -> int:
        # The tree's columns count bytes of UTF-8.
        start = self._starts[line - 1]
        if self._ascii:
            return start + column
        return start + len(self.line(line).encode()[:column].decode(errors="ignore"))

    def offset(self, node: Located) -> int:
        """Return the position where the node begins, in characters."""
        return self._at(node.lineno, node.col_offset)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """Return the node's source text."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.text[self.offset(node) : self._at(node.end_lineno, node.end_col_offset)]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree except operators and contexts."""
        return _nodes(self.tree)

    @cached_property
    def _bound(self) -> Counter[str]:
        return _bindings(self.nodes)

    def is_known(self, name: str) -> bool:
        """Return whether the file binds the name exactly once."""
        return self._bound[name] == 1 and "*" not in self._bound

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The top-level classes, by name."""
        nodes = (n for n in self.tree.body if isinstance(n, ast.ClassDef))
        return {node.name: node for node in nodes if self.is_known(node.name)}

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The top-level functions and the methods of `classes`, by (qualified) name."""
        functions = [
            _function(node.name, node, False)
            for node in self.tree.body
            if isinstance(node, FunctionNode) and self.is_known(node.name)
        ]
        for owner in self.classes.values():
            bound = _bindings(_nodes(owner))
            functions += [
                _function(f"{owner.name}.{node.name}", node, True)
                for node in owner.body
                if isinstance(node, FunctionNode) and bound[node.name] == 1
            ]
        return {function.name: function for function in functions}

    @cached_property
    def constants(self) -> dict[str, tuple[ast.stmt, tuple[str, ...]]]:
        """Names bound to a literal at the top level -> the statement and the accepted answers."""
        constants: dict[str, tuple[ast.stmt, tuple[str, ...]]] = {}
        for node in self.tree.body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ) if self.is_known(name) and (answers := self.literal(value)):
                    constants[name] = node, answers
        return constants

    def literal(self, node: ast.expr) -> tuple[str, ...] | None:
        """Return the accepted answers for a literal worth asking about, else None.

        Such literals are numbers of at least two digits (as written, and as Python prints them) and
        one-line texts without escapes. ``None``, ``True``, 0 and 1 are too easy to guess.
        """
        try:
            value = ast.literal_eval(node)
            source = self.segment(node)
        except (ValueError, TypeError, MemoryError, RecursionError):
            return None
        if "\n" in source or "\r" in source or len(source) > _LONGEST_ANSWER:
            return None
        if isinstance(value, str):
            is_plain = value.isprintable() and value == value.strip() and "\\" not in source
            telling = sum(map(str.isalnum, value)) >= 2
            return (value,) if is_plain and telling and value in source else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not math.isfinite(value) or sum(map(str.isdigit, repr(value))) < 2:
                return None
            return None if abs(value) in (0, 1) else tuple(dict.fromkeys((source, repr(value))))
        return None

    def evidence_spans(self, places: Sequence[int]) -> list[list[int]]:
        """Return the spans of the statement at each place and of the headings of the functions and
        classes around it: [start, end) in characters, in order, without duplicates."""
        lines = (bisect_right(self._starts, place) for place in places)
        spans = {
            (self._starts[first - 1], self._starts[last - 1] + len(self.line(last)))
            for line in lines
            for first, last in _evidence_lines(self.tree.body, line)
        }
        return [list(span) for span in sorted(spans)]


def _function(name: str, node: FunctionNode, is_method: bool) -> Function:
    nodes = _nodes(*node.body)
    if not _SCOPES.isdisjoint(map(type, nodes)):
        nodes = []
    calls = [child for child in nodes if isinstance(child, ast.Call)]
    raises = [child for child in nodes if isinstance(child, ast.Raise)]
    return Function(name, node, is_method, calls, raises)


def _nodes(*roots: ast.AST) -> list[ast.AST]:
    """Return the roots and all nodes below, without recursion, because trees may be very deep."""
    nodes = list(roots)
    for node in nodes:  # the list grows meanwhile
        for field in node._fields:
            if field not in _NOT_WALKED:
                value = getattr(node, field, None)
                if isinstance(value, list):
                    nodes += [child for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.AST):
                    nodes.append(value)
    return nodes


def _bindings(nodes: Iterable[ast.AST]) -> Counter[str]:
    """Count how often the nodes themselves bind each name."""
    bound: list[str | None] = []
    for node in nodes:
        if isinstance(node, ast.expr):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.append(node.id)
        elif isinstance(node, ast.arg):
            bound.append(node.arg)
        elif isinstance(node, _BIND_BY_NAME):
            bound.append(node.name)
        elif isinstance(node, ast.alias):
            bound.append(node.asname or node.name.partition(".")[0])
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            bound += node.names
        elif isinstance(node, ast.MatchMapping):
            bound.append(node.rest)
    return Counter(filter(None, bound))


def _evidence_lines(body: Sequence[ast.stmt], line: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last lines of each heading around a line, then of its statement."""
    while around := [s for s in body if _first_line(s) <= line <= (s.end_lineno or s.lineno)]:
        statement = around[0]
        parts = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
        blocks = [getattr(part, name, []) for part in parts for name in _BLOCKS]
        body = [child for block in blocks for child in block]
        first = min((_first_line(block[0]) for block in blocks if block), default=0)
        last = statement.end_lineno or statement.lineno
        heading = last if first <= statement.lineno else first - 1
        if line <= heading or isinstance(statement, _DEFINITIONS):
            yield statement.lineno, heading
        if line <= heading:
            return


def _first_line(statement: ast.stmt) -> int:
    """Return the line in which the statement begins, decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def dotted(node: ast.expr | None) -> str | None:
    """Return ``a.b.C`` if the expression is only a dotted name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None
