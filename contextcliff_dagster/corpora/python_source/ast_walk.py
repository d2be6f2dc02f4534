"""One pass over a syntax tree, kept in an order in which every statement's inside is a range."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
_LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Found(NamedTuple):
    """Places in the order of the walk, ascending, and what stands there."""

    places: list[int]
    what: list[ast.AST]

    def within(self, start: int, end: int) -> list[ast.AST]:
        return self.what[bisect_left(self.places, start) : bisect_left(self.places, end)]


class Walk:
    """A tree's statements, calls, raises, scopes and bindings in depth-first order.

    Without recursion: a tree may be deeper than Python's own stack.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.statements: list[ast.stmt] = []
        self._range: dict[int, tuple[int, int]] = {}
        self._calls, self._raises, self._scopes = Found([], []), Found([], []), Found([], [])
        self._bound_at: list[int] = []
        self._bound: list[str] = []
        self._walk(tree)

    def _walk(self, tree: ast.Module) -> None:
        place = 0
        # An entry is a node to enter, or a statement that ends here with the place of its start.
        waiting: list[ast.AST | tuple[ast.AST, int]] = [tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, tuple):
                self._range[id(node[0])] = (node[1], place)
                continue
            if isinstance(node, ast.stmt):
                self.statements.append(node)
                waiting.append((node, place))
            self._note(node, place)
            place += 1
            waiting.extend(reversed(list(_children(node))))

    def _note(self, node: ast.AST, place: int) -> None:
        kind = type(node)
        if kind is ast.Call:
            found = self._calls
        elif kind is ast.Raise:
            found = self._raises
        elif kind in _SCOPES:
            found = self._scopes
        else:
            found = None
        if found is not None:
            found.places.append(place)
            found.what.append(node)
        for name in _bound_names(node):
            self._bound_at.append(place)
            self._bound.append(name)

    def bindings(self, inside: ast.stmt | None = None) -> Counter[str]:
        """How often each name is bound, in the whole file or below a statement."""
        if inside is None:
            return Counter(self._bound)
        start, end = self._range[id(inside)]
        low = bisect_left(self._bound_at, start + 1)
        return Counter(self._bound[low : bisect_left(self._bound_at, end)])

    def calls(self, body: Sequence[ast.stmt]) -> list[ast.Call] | None:
        """The calls of a function's body; None where it defines a function or class inside."""
        return self._own(self._calls, body, ast.Call)

    def raises(self, body: Sequence[ast.stmt]) -> list[ast.Raise] | None:
        """The raises of a function's body; None where it defines a function or class inside."""
        return self._own(self._raises, body, ast.Raise)

    def _own(self, found: Found, body: Sequence[ast.stmt], kind: type[_T]) -> list[_T] | None:
        start, end = self._range[id(body[0])][0], self._range[id(body[-1])][1]
        if self._scopes.within(start, end):
            return None
        return [node for node in found.within(start, end) if isinstance(node, kind)]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, ast.AST) and not isinstance(one, _LEAVES):
                    yield one
        elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
            yield value


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)
_PATTERNS = (ast.MatchAs, ast.MatchStar)
_TYPE_PARAMETERS = ("TypeVar", "ParamSpec", "TypeVarTuple")  # Python 3.12


def _bound_names(node: ast.AST) -> Iterable[str]:
    """The names that this node itself binds."""
    if isinstance(node, ast.Name):
        return () if isinstance(node.ctx, ast.Load) else (node.id,)
    if isinstance(node, ast.arg):
        return (node.arg,)
    if isinstance(node, (ast.expr, ast.keyword, ast.arguments)):
        return ()
    if isinstance(node, (*_NAMED, *_PATTERNS)) or type(node).__name__ in _TYPE_PARAMETERS:
        name = getattr(node, "name", None)
        return () if name is None else (str(name),)
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0],)
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return node.names
    if isinstance(node, ast.MatchMapping):
        return () if node.rest is None else (node.rest,)
    return ()
