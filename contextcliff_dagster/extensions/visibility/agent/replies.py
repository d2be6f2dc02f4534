"""A model's reply to the object in it, and its form for engines that can write nothing else.

The order is context-eval's: the whole text, the first block marked as JSON, the first block, from
the first brace to the last. Against it: only an object counts, so that a bare number or a list is
unparsable instead of ending the run, and the places after it are still looked at; an empty object
is one; integers of any length are numbers; deep nesting is unparsable. As there, the last of two
equal keys counts, and NaN and Infinity are numbers (what becomes of them: `tasks.clamping`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from contextcliff_dagster.extensions.visibility.tasks.clamping import Shown, shown
from contextcliff_dagster.extensions.visibility.tasks.parameters import Number, Parameter
from contextcliff_dagster.extensions.visibility.tasks.task import Task

How: TypeAlias = Literal["whole", "json block", "block", "braces", "none"]
_FENCE = "```"
_BLOCKS: tuple[tuple[How, str], ...] = (("json block", f"{_FENCE}json"), ("block", _FENCE))
_DEEPEST = 32
_LONGEST_INTEGER = 400
"""Digits; the largest float has 309, and Python refuses to read integers of 4,300."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What was read in a reply.

    Attributes:
        proposal: the object, values as JSON has them; None where there is none.
        unparsable: there was text, and no object in it.
        how: where the object was.
    """

    proposal: Mapping[str, Any] | None
    unparsable: bool
    how: How

    @property
    def recorded(self) -> dict[str, Shown] | None:
        """The proposal as JSON can hold it: NaN, long and nested values in words."""
        if self.proposal is None:
            return None
        return {str(shown(name)): shown(value) for name, value in self.proposal.items()}


def parse_reply(text: str | None) -> Parsed:
    """Return the object in a reply; raises nothing, whatever the text."""
    if text is None or not text.strip():
        return Parsed(None, False, "none")
    for how, part in _places(text.strip()):
        found = _object(part)
        if found is not None:
            return Parsed(found, False, how)
    return Parsed(None, True, "none")


def _places(text: str) -> Iterator[tuple[How, str]]:
    yield "whole", text
    for how, opening in _BLOCKS:
        begin = text.find(opening)
        end = text.find(_FENCE, begin + len(opening))
        if begin >= 0 and end >= 0:
            yield how, text[begin + len(opening) : end]
    begin, end = text.find("{"), text.rfind("}")
    if 0 <= begin < end:
        yield "braces", text[begin : end + 1]


def _object(text: str) -> Mapping[str, Any] | None:
    # Nothing but an object is read at all: what is skipped here would be thrown away below.
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = _checked(json.loads(text, parse_int=_integer), _DEEPEST)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _integer(digits: str) -> float:
    return int(digits) if len(digits) < _LONGEST_INTEGER else float(digits)


def _checked(value: Any, depth: int) -> Any:
    """The value with texts that UTF-8 can hold.

    Raises:
        ValueError: it is nested deeply; how deep Python can read depends on the caller's stack.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict | list) and not depth:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {_checked(name, depth): _checked(one, depth - 1) for name, one in value.items()}
    if isinstance(value, list):
        return [_checked(one, depth - 1) for one in value]
    return value


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def reply_schema(task: Task) -> dict[str, Any]:
    """Return the JSON Schema of an object with every parameter of ``task`` and nothing else.

    It has types only: bounds and choices are an axis, and a schema may not give them away.
    """
    return {
        "type": "object",
        "properties": {one.name: {"type": _type(one)} for one in task.space.parameters},
        "required": list(task.space.names),
        "additionalProperties": False,
    }


def _type(parameter: Parameter) -> str | list[str]:
    if isinstance(parameter, Number):
        return "integer" if parameter.integer else "number"
    names = sorted({_TYPES[type(choice)] for choice in parameter.choices})
    return names[0] if len(names) == 1 else names
