"""Questions that one place in the file answers (level 1)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from contextcliff_dagster.corpora.python_source.module import (
    Function,
    Question,
    SourceModule,
    dotted,
)


class Named(NamedTuple):
    """A name that something in the file gives, and the node that gives it."""

    name: str
    node: ast.expr


def constant_value(module: SourceModule) -> Iterator[Question]:
    """What is the value of a name that the top level binds to a literal?"""
    for name, (node, answers) in module.constants.items():
        text = f"What is the value of `{name}`, as assigned at the top level of this file?"
        yield Question("constant_value", text, answers, (module.offset(node),))


def default_value(module: SourceModule) -> Iterator[Question]:
    """What is the default of a parameter?"""
    for function in module.functions.values():
        for parameter, default in defaults_of(function):
            if answers := module.literal(default):
                text = default_wording(function, parameter)
                yield Question("default_value", text, answers, (module.offset(default),))


def default_wording(function: Function, parameter: str) -> str:
    """One wording, whether the default stands there itself or is the name of a constant."""
    return f"What value does parameter `{parameter}` of `{function.name}` have by default?"


def defaults_of(function: Function) -> Iterator[tuple[str, ast.expr]]:
    """Parameters that have a default, with it."""
    given = function.node.args
    positional = [*given.posonlyargs, *given.args]
    for one, default in zip(
        positional[len(positional) - len(given.defaults) :], given.defaults, strict=True
    ):
        yield one.arg, default
    for one, keyword in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if keyword is not None:
            yield one.arg, keyword


def base_class(module: SourceModule) -> Iterator[Question]:
    """Which class does a class with one base inherit from?"""
    for owner in module.classes.values():
        if base := base_of(owner):
            text = f"Which class does `{owner.name}` inherit from?"
            yield Question("base_class", text, names_of(base), (module.offset(base.node),))


def base_of(owner: ast.ClassDef) -> Named | None:
    """The one base of a class; None where there are none, several, or keywords."""
    if len(owner.bases) != 1 or owner.keywords:
        return None
    name = dotted(owner.bases[0])
    return None if name in (None, "object") else Named(str(name), owner.bases[0])


def names_of(found: Named) -> tuple[str, ...]:
    """As written (``abc.ABC``), and the last part alone."""
    return tuple(dict.fromkeys((found.name, found.name.rpartition(".")[2])))


def first_parameter(module: SourceModule) -> Iterator[Question]:
    """What is the first parameter of a function, or of a method after ``self``?"""
    for function in module.functions.values():
        if one := parameter_of(function):
            if function.is_method:
                own = function.node.args.args[0].arg
                text = f"What is the first parameter of `{function.name}` after `{own}`?"
            else:
                text = f"What is the first parameter of the function `{function.name}`?"
            yield Question("first_parameter", text, (one.arg,), (module.offset(one),))


def parameter_of(function: Function) -> ast.arg | None:
    """The first parameter by position, of a method the one after ``self`` or ``cls``."""
    given = function.node.args
    if function.is_method:
        if given.posonlyargs or not given.args or given.args[0].arg not in ("self", "cls"):
            return None
        return given.args[1] if len(given.args) > 1 else None
    positional = [*given.posonlyargs, *given.args]
    return positional[0] if positional else None


def raised_exception(module: SourceModule) -> Iterator[Question]:
    """Which exception does a function raise, where all its ``raise`` name the same one?"""
    for function in module.functions.values():
        if raised := raised_by(module, function):
            text = f"Which exception does `{function.name}` raise?"
            places = (module.offset(raised.node),)
            yield Question("raised_exception", text, names_of(raised), places)


def raised_by(module: SourceModule, function: Function) -> Named | None:
    """The one exception that a function's own ``raise`` statements name."""
    found: list[Named] = []
    for node in module.walk.raises(function.node.body) or ():
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = dotted(raised)
        # A bare raise, a variable, a factory: what comes out of these no reading can tell.
        if raised is None or name is None or not name.rpartition(".")[2][0].isupper():
            return None
        found.append(Named(name, raised))
    if len({one.name for one in found}) != 1:
        return None
    return min(found, key=lambda one: module.offset(one.node))


def called_function(module: SourceModule) -> Iterator[Question]:
    """Which function of the file does a function call, where it calls just one of them?"""
    for function in module.functions.values():
        if called := called_by(module, function):
            text = (
                f"Which function defined at the top level of this file does `{function.name}` call?"
            )
            places = (module.offset(called.node),)
            yield Question("called_function", text, (called.name,), places)


def called_by(module: SourceModule, function: Function) -> Named | None:
    """The one function of the top level that another calls by its name."""
    found: list[Named] = []
    for node in module.walk.calls(function.node.body) or ():
        if isinstance(node.func, ast.Name):
            name = node.func.id
            if name in module.functions and not module.functions[name].is_method:
                found.append(Named(name, node.func))
    if len({one.name for one in found}) != 1 or found[0].name == function.name:
        return None
    return min(found, key=lambda one: module.offset(one.node))
