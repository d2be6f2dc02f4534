"""Questions about a Python file: their text, accepted answers, and the nodes that answer them.

A question about one node needs one place in the file (level 1); one about two nodes, two (level 2).
`choose_questions` selects the questions to ask about a file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from contextcliff_dagster.corpora.python_source.files import Function, Located, SourceModule, dotted

Questions = Iterator[tuple[str, tuple[str, ...], Sequence[Located]]]


class Reference(NamedTuple):
    """A name that the file uses, and the expression in which it occurs."""

    name: str
    node: ast.expr

    @property
    def answers(self) -> tuple[str, ...]:
        """Return the name as written (``abc.ABC``) and its last part."""
        return tuple(dict.fromkeys((self.name, self.name.rpartition(".")[2])))


def constant_value(module: SourceModule) -> Questions:
    """Ask for the value of a name that the top level binds to a literal."""
    for name, (node, answers) in module.constants.items():
        text = f"What is the value of `{name}`, as assigned at the top level of this file?"
        yield text, answers, [node]


def default_value(module: SourceModule) -> Questions:
    """Ask for the default value of a parameter."""
    for text, default in _defaults(module):
        if answers := module.literal(default):
            yield text, answers, [default]


def default_through_constant(module: SourceModule) -> Questions:
    """Ask for the default value of a parameter, if the default is a constant of the file."""
    for text, default in _defaults(module):
        if isinstance(default, ast.Name) and default.id in module.constants:
            assigned, answers = module.constants[default.id]
            yield text, answers, [default, assigned]


def _defaults(module: SourceModule) -> Iterator[tuple[str, ast.expr]]:
    """Yield a question for each parameter with a default, and that default."""
    for function in module.functions.values():
        arguments = function.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        with_default = positional[len(positional) - len(arguments.defaults) :]
        defaults = [
            *zip(with_default, arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        for parameter, default in defaults:
            if default is not None:
                name = f"parameter `{parameter.arg}` of `{function.name}`"
                yield f"What value does {name} have by default?", default


def base_class(module: SourceModule) -> Questions:
    """Ask which class a class with a single base inherits from."""
    for owner in module.classes.values():
        if base := _base(owner):
            text = f"Which class does `{owner.name}` inherit from?"
            yield text, base.answers, [base.node]


def base_of_base(module: SourceModule) -> Questions:
    """Ask which class a class's base inherits from, if the file defines both."""
    for owner in module.classes.values():
        base = _base(owner)
        if base and base.name in module.classes and (grandbase := _base(module.classes[base.name])):
            text = f"Which class does the base class of `{owner.name}` inherit from?"
            yield text, grandbase.answers, [base.node, grandbase.node]


def _base(owner: ast.ClassDef) -> Reference | None:
    """Return a class's only base; None if there are none, several, or keywords."""
    if len(owner.bases) != 1 or owner.keywords:
        return None
    name = dotted(owner.bases[0])
    return None if name in (None, "object") else Reference(str(name), owner.bases[0])


def first_parameter(module: SourceModule) -> Questions:
    """Ask for the first parameter of a function, or of a method after ``self``."""
    for function in module.functions.values():
        if parameter := _parameter(function):
            subject = f"the function `{function.name}`"
            if function.is_method:
                subject = f"`{function.name}` after `{function.node.args.args[0].arg}`"
            text = f"What is the first parameter of {subject}?"
            yield text, (parameter.arg,), [parameter]


def _parameter(function: Function) -> ast.arg | None:
    """Return the first positional parameter; for a method, the one after ``self`` or ``cls``."""
    args = function.node.args
    positional = [*args.posonlyargs, *args.args]
    if function.is_method:
        if args.posonlyargs or not args.args or args.args[0].arg not in ("self", "cls"):
            return None
        positional = positional[1:]
    return positional[0] if positional else None


def raised_exception(module: SourceModule) -> Questions:
    """Ask which exception a function raises, if all its ``raise`` statements name the same one."""
    for function in module.functions.values():
        if error := _raised_exception(module, function):
            yield f"Which exception does `{function.name}` raise?", error.answers, [error.node]


def base_of_raised(module: SourceModule) -> Questions:
    """Ask which class the exception raised by a function inherits from."""
    for function in module.functions.values():
        exception = _raised_exception(module, function)
        owner = module.classes.get(exception.name) if exception else None
        if exception and owner and (base := _base(owner)):
            text = f"Which class does the exception that `{function.name}` raises inherit from?"
            yield text, base.answers, [exception.node, base.node]


def _raised_exception(module: SourceModule, function: Function) -> Reference | None:
    """Return the only exception named in a function's own ``raise`` statements, if any."""
    exceptions: list[Reference] = []
    for node in function.raises:
        exception = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = dotted(exception)
        # A bare raise, a variable, a factory: reading does not show the exception.
        if exception is None or name is None or not name.rpartition(".")[2][0].isupper():
            return None
        exceptions.append(Reference(name, exception))
    return _only(module, exceptions)


def called_function(module: SourceModule) -> Questions:
    """Ask which of the file's functions a function calls, if it calls only one of them."""
    for function in module.functions.values():
        if callee := _called_function(module, function):
            text = "Which function defined at the top level of this file does "
            yield f"{text}`{function.name}` call?", (callee.name,), [callee.node]


def parameter_of_called(module: SourceModule) -> Questions:
    """Ask for the first parameter of the only function in the file that a function calls."""
    for function in module.functions.values():
        callee = _called_function(module, function)
        if callee and (parameter := _parameter(module.functions[callee.name])):
            text = (
                "What is the first parameter of the function, defined at the top level of this "
                f"file, that `{function.name}` calls?"
            )
            yield text, (parameter.arg,), [callee.node, parameter]


def _called_function(module: SourceModule, function: Function) -> Reference | None:
    """Return the only top-level function that the given function calls by name."""
    names = (call.func for call in function.calls if isinstance(call.func, ast.Name))
    callees = [
        Reference(name.id, name)
        for name in names
        if name.id in module.functions and not module.functions[name.id].is_method
    ]
    only = _only(module, callees)
    return None if only and only.name == function.name else only


def _only(module: SourceModule, references: Sequence[Reference]) -> Reference | None:
    """Return the earliest reference in the text, if all references have the same name."""
    if len({reference.name for reference in references}) != 1:
        return None
    return min(references, key=lambda reference: module.offset(reference.node))


_KINDS: dict[str, Callable[[SourceModule], Questions]] = {
    "constant_value": constant_value,
    "default_value": default_value,
    "base_class": base_class,
    "first_parameter": first_parameter,
    "raised_exception": raised_exception,
    "called_function": called_function,
    "default_through_constant": default_through_constant,
    "base_of_base": base_of_base,
    "parameter_of_called": parameter_of_called,
    "base_of_raised": base_of_raised,
}
_LINE = "complete_line"
KINDS: tuple[str, ...] = (*_KINDS, _LINE)
"""All kinds of questions; an example's task is the kind of its question."""

_LINE_CHARACTERS = range(30, 101)
_LEAST_PART = 10
"""Minimum length in characters of a line's beginning and of its rest."""
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise, ast.Assert)
_WORD = re.compile(r"\w+")


class Question(NamedTuple):
    """A question and its accepted answers.

    ``places``: where its one or two pieces of evidence start in the text, in characters; the answer
    is at the last one.
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
    """Choose at most ``most`` questions about a file, one of each kind in turn for balance.

    Questions that contain their answer, or whose answer is a single letter, are left out.
    ``place(kind, text)`` decides the order of the kinds (with an empty text) and, within a kind,
    the order of its questions.
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
        else sorted(_KINDS[kind](module), key=lambda question: order(question[0]))
    )
    for text, answers, nodes in asked:
        lowered = text.casefold()
        if all(len(answer) > 1 and answer.casefold() not in lowered for answer in answers):
            yield Question(kind, text, answers, tuple(map(module.offset, nodes)))


def complete_line(module: SourceModule, wording: str, order: Callable[[str], bytes]) -> Questions:
    """Ask for the rest of a line, given its beginning; ``order`` sorts the lines.

    Only statements that fill one line are used. The beginning and the rest each occur once in the
    whole file, so that neither another line nor another place gives the answer.
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
    """Cut the line before the word nearest its middle at which both parts are unique."""
    starts = [match.start() for match in _WORD.finditer(line)]
    for place in sorted(starts, key=lambda start: (abs(2 * start - len(line)), start)):
        beginning, rest = line[:place].rstrip(), line[place:]
        if min(len(beginning), len(rest)) < _LEAST_PART:
            return None
        if len(_WORD.findall(rest)) < 2 or rest.casefold() in beginning.casefold():
            continue
        if text.count(beginning) == text.count(rest) == 1:
            return beginning, rest
    return None
