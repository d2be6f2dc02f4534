"""Questions that need two places of the file (level 2)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from contextcliff_dagster.corpora.python_source.module import Question, SourceModule
from contextcliff_dagster.corpora.python_source.single_hop import (
    base_of,
    called_by,
    default_wording,
    defaults_of,
    names_of,
    parameter_of,
    raised_by,
)


def default_through_constant(module: SourceModule) -> Iterator[Question]:
    """What is the default of a parameter, where that is a constant of the file?"""
    for function in module.functions.values():
        for parameter, default in defaults_of(function):
            if isinstance(default, ast.Name) and default.id in module.constants:
                assigned, answers = module.constants[default.id]
                text = default_wording(function, parameter)
                places = (module.offset(default), module.offset(assigned))
                yield Question("default_through_constant", text, answers, places)


def base_of_base(module: SourceModule) -> Iterator[Question]:
    """Which class does a class's base inherit from, where the file defines both?"""
    for owner in module.classes.values():
        near = base_of(owner)
        if near is None or near.name not in module.classes:
            continue
        if far := base_of(module.classes[near.name]):
            text = f"Which class does the base class of `{owner.name}` inherit from?"
            places = (module.offset(near.node), module.offset(far.node))
            yield Question("base_of_base", text, names_of(far), places)


def parameter_of_called(module: SourceModule) -> Iterator[Question]:
    """What is the first parameter of the one function of the file that a function calls?"""
    for function in module.functions.values():
        if called := called_by(module, function):
            one = parameter_of(module.functions[called.name])
            if one is not None:
                text = (
                    "What is the first parameter of the function, defined at the top level of this "
                    f"file, that `{function.name}` calls?"
                )
                places = (module.offset(called.node), module.offset(one))
                yield Question("parameter_of_called", text, (one.arg,), places)


def base_of_raised(module: SourceModule) -> Iterator[Question]:
    """Which class does the exception that a function raises inherit from?"""
    for function in module.functions.values():
        raised = raised_by(module, function)
        if raised is None or raised.name not in module.classes:
            continue
        if base := base_of(module.classes[raised.name]):
            text = f"Which class does the exception that `{function.name}` raises inherit from?"
            places = (module.offset(raised.node), module.offset(base.node))
            yield Question("base_of_raised", text, names_of(base), places)
